package reports

import (
	"fmt"
	"io"
	"strings"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/reports/internal/chart"
)

// The size of the picture to share: what previews of links and slides show whole.
const (
	shareWidth  = 1200.0
	shareHeight = 630.0
)

// How much of the story the picture has.
const (
	maxShareEvents = 6
	maxShareLanes  = 2
)

// writeShare writes a run as one picture of 1200 × 630: the verdict, the story, the two
// clients of the violation and the topology at its moment.
func (m *model) writeShare(w io.Writer) error {
	if _, err := io.WriteString(w, m.share()); err != nil {
		return fmt.Errorf("write picture to share: %w", err)
	}
	return nil
}

// share is the picture as an SVG that stands for itself.
func (m *model) share() string {
	story := m.story()
	var s chart.Drawing
	s.Raw(svgHead(shareWidth, shareHeight), `<style>`, paletteCSS, drawingCSS, `</style>`, hatchPattern)
	s.Rect("t-paper", 0, 0, shareWidth, shareHeight, 0, "")
	class := map[checker.Verdict]string{checker.Invalid: "t-title-bad", checker.Valid: "t-title-good"}[m.Report.Verdict]
	if class == "" {
		class = "t-title-open"
	}
	const left, middle = 44.0, 690.0
	s.Text("t-share t-share-verdict "+class, left, 52, sign(m.Report.Verdict)+" "+strings.ToUpper(string(m.Report.Verdict)))
	y := 52.0
	for _, line := range fold(story.Headline, 62, 2) {
		y += 36
		s.Text("t-share t-share-title", left, y, line)
	}
	y += 26
	s.Text("t-share t-share-small", left, y, say.Shorten("lockchaos · "+strings.Join(m.about(), " · "), 120))
	y += 16

	m.shareMap(&s, middle, y, shareWidth-left-middle)
	events := story.Events
	if len(events) == 0 {
		for _, words := range story.Outcome {
			for _, line := range fold(words, 70, 3) {
				y += 22
				s.Text("t-share", left, y, line)
			}
		}
	}
	for _, ev := range events[max(0, len(events)-maxShareEvents):] {
		class := "t-share"
		if ev.Kind == EventViolation {
			class += " t-bad-text"
		}
		y += 10
		for i, line := range fold(ev.Text, 64, 2) {
			y += 20
			if i == 0 {
				s.Text(class+" t-share-time", left, y, say.Instant(ev.At))
			}
			s.Text(class, left+78, y, line)
		}
	}
	if v := m.violation(); v != nil {
		m.shareLanes(&s, v)
	}
	s.Raw(`</svg>`, "\n")
	return s.String()
}

// shareMap draws the topology at the moment of the story into a box.
func (m *model) shareMap(s *chart.Drawing, x, y, width float64) {
	figure := m.topologyFigure(m.moment())
	if figure == "" {
		return
	}
	_, inner, _ := strings.Cut(figure, ">")
	scale := width / mapWidth
	s.Raw(`<g class="map" transform="translate(`, chart.Num(x), ` `, chart.Num(y), `) scale(`, fmt.Sprintf("%.3f", scale), `)">`, strings.TrimSuffix(inner, "</svg>"), `</g>`)
}

// shareLanes draws the lanes of the clients of a violation at the foot.
func (m *model) shareLanes(s *chart.Drawing, v *checker.Violation) {
	c := &timeline{model: m, win: m.focus(v), violation: v, used: map[string]bool{}, top: map[*lane]float64{}, y: 34}
	lanes, _ := m.focusLanes(v, c.win)
	if len(lanes) == 0 {
		return
	}
	lanes = lanes[:min(len(lanes), maxShareLanes)]
	for _, l := range lanes {
		c.lane(l)
	}
	bottom := c.y
	c.axis(26, bottom)
	c.mark(lanes)
	const scale = 1.11
	s.Raw(`<g transform="translate(40 `, chart.Num(shareHeight-c.y*scale-10), `) scale(`, fmt.Sprint(scale), `)">`, c.names.String(), c.behind.String(), c.out.String(), `</g>`)
}

// fold breaks a text into at most n lines of about this many characters.
func fold(text string, width, n int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(say.OneLine(text)) {
		if line != "" && len([]rune(line))+1+len([]rune(word)) > width {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimSpace(line + " " + say.Shorten(word, width))
	}
	lines = append(lines, line)
	if len(lines) > n {
		lines = append(lines[:n-1], say.Shorten(strings.Join(lines[n-1:], " "), width))
	}
	return lines
}
