package reports

import _ "embed" // the style sheets, the script and the page

var (
	//go:embed assets/palette.css
	paletteCSS string
	//go:embed assets/drawing.css
	drawingCSS string
	//go:embed assets/page.css
	pageCSS string
	//go:embed assets/page.js
	pageJS string
	//go:embed assets/timeline.js
	timelineJS string
	//go:embed assets/index.js
	indexJS string
	//go:embed assets/live.js
	liveJS string
	//go:embed assets/index.html
	indexHTML string
	//go:embed assets/live.html
	liveHTML string
	//go:embed assets/compare.html
	compareHTML string
	//go:embed assets/matrix.html
	matrixHTML string
	//go:embed assets/report.html
	pageHTML string
)
