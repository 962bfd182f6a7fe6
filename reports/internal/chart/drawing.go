// Package chart draws: shapes as SVG, plots, and diagrams of messages. It knows nothing of
// runs and their stories.
package chart

import (
	"html"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/lockchaos/lockchaos/internal/say"
)

// The measures of a drawing that has a time axis, in SVG units: a page shows it about 1:1.
const (
	Width     = 1000.0
	Left      = 124.0 // of the axis: names stand before it
	Right     = 18.0  // what is free behind it
	TextSize  = 12.0
	SmallSize = 11.0
)

// A Drawing is the inside of an SVG. All text and attributes are escaped;
// shapes carry classes, and the style sheet gives them their colours.
type Drawing struct{ strings.Builder }

// Num writes a coordinate with a tenth of a unit, which is finer than a pixel.
func Num(f float64) string { return say.TrimZeros(strconv.FormatFloat(f, 'f', 1, 64)) }

// Raw writes what is SVG already.
func (s *Drawing) Raw(parts ...string) {
	for _, p := range parts {
		s.WriteString(p)
	}
}

// Rect draws a rectangle; a title is what a pointer that rests on it shows.
func (s *Drawing) Rect(class string, x, y, w, h, radius float64, title string) {
	s.Raw(`<rect class="`, class, `" x="`, Num(x), `" y="`, Num(y), `" width="`, Num(max(w, 0)), `" height="`, Num(h), `"`)
	if radius > 0 {
		s.Raw(` rx="`, Num(radius), `"`)
	}
	s.end("rect", title)
}

// Line draws a line between two points.
func (s *Drawing) Line(class string, x1, y1, x2, y2 float64) {
	s.Raw(`<line class="`, class, `" x1="`, Num(x1), `" y1="`, Num(y1), `" x2="`, Num(x2), `" y2="`, Num(y2), `"/>`)
}

// Ring is the glyph of an unknown outcome.
func (s *Drawing) Ring(x, y, r float64, title string) {
	s.Raw(`<circle class="t-info" cx="`, Num(x), `" cy="`, Num(y), `" r="`, Num(r), `"`)
	s.end("circle", title)
}

// Path draws a path, and nothing for an empty one.
func (s *Drawing) Path(class, d, title string) {
	if d == "" {
		return
	}
	s.Raw(`<path class="`, class, `" d="`, d, `"`)
	s.end("path", title)
}

// Cross is a path of two strokes around a point.
func Cross(x, y, r float64) string {
	return "M" + Num(x-r) + " " + Num(y-r) + "L" + Num(x+r) + " " + Num(y+r) +
		"M" + Num(x-r) + " " + Num(y+r) + "L" + Num(x+r) + " " + Num(y-r)
}

// Slash is the path of a mark like a slash: of a refusal, which is no violation.
func Slash(x, y, r float64) string {
	return "M" + Num(x-r) + " " + Num(y+r) + "L" + Num(x+r) + " " + Num(y-r)
}

func (s *Drawing) end(tag, title string) {
	if title == "" {
		s.Raw("/>")
		return
	}
	s.Raw("><title>", Escape(title), "</title></", tag, ">")
}

// Text draws a text that begins at x, or ends there with the class "end".
func (s *Drawing) Text(class string, x, y float64, text string) {
	s.Raw(`<text class="`, class, `" x="`, Num(x), `" y="`, Num(y), `">`, Escape(text), `</text>`)
}

// Escape makes a text safe for XML, where most control characters are
// forbidden even as references.
func Escape(s string) string { return html.EscapeString(say.OneLine(s)) }

// Wide estimates the width of a text, generously: the reader's font is not
// known.
func Wide(text string, size float64) float64 {
	return float64(utf8.RuneCountInString(text)) * size * 0.6
}
