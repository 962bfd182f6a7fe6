package reports

import (
	"html"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/lockchaos/lockchaos/internal/say"
)

// A drawing is the inside of an SVG. All text and attributes are escaped;
// shapes carry classes, and the style sheet gives them their colours.
type drawing struct{ strings.Builder }

// num writes a coordinate with a tenth of a unit, which is finer than a pixel.
func num(f float64) string { return say.TrimZeros(strconv.FormatFloat(f, 'f', 1, 64)) }

func (s *drawing) raw(parts ...string) {
	for _, p := range parts {
		s.WriteString(p)
	}
}

// rect draws a rectangle; a title is what a pointer that rests on it shows.
func (s *drawing) rect(class string, x, y, w, h, radius float64, title string) {
	s.raw(`<rect class="`, class, `" x="`, num(x), `" y="`, num(y), `" width="`, num(max(w, 0)), `" height="`, num(h), `"`)
	if radius > 0 {
		s.raw(` rx="`, num(radius), `"`)
	}
	s.end("rect", title)
}

func (s *drawing) line(class string, x1, y1, x2, y2 float64) {
	s.raw(`<line class="`, class, `" x1="`, num(x1), `" y1="`, num(y1), `" x2="`, num(x2), `" y2="`, num(y2), `"/>`)
}

// ring is the glyph of an unknown outcome.
func (s *drawing) ring(x, y, r float64, title string) {
	s.raw(`<circle class="t-info" cx="`, num(x), `" cy="`, num(y), `" r="`, num(r), `"`)
	s.end("circle", title)
}

func (s *drawing) path(class, d, title string) {
	if d == "" {
		return
	}
	s.raw(`<path class="`, class, `" d="`, d, `"`)
	s.end("path", title)
}

// cross is a path of two strokes around a point.
func cross(x, y, r float64) string {
	return "M" + num(x-r) + " " + num(y-r) + "L" + num(x+r) + " " + num(y+r) +
		"M" + num(x-r) + " " + num(y+r) + "L" + num(x+r) + " " + num(y-r)
}

func (s *drawing) end(tag, title string) {
	if title == "" {
		s.raw("/>")
		return
	}
	s.raw("><title>", escape(title), "</title></", tag, ">")
}

// text draws a text that begins at x, or ends there with the class "end".
func (s *drawing) text(class string, x, y float64, text string) {
	s.raw(`<text class="`, class, `" x="`, num(x), `" y="`, num(y), `">`, escape(text), `</text>`)
}

// escape makes a text safe for XML, where most control characters are
// forbidden even as references.
func escape(s string) string { return html.EscapeString(OneLine(s)) }

// wide estimates the width of a text, generously: the reader's font is not
// known.
func wide(text string, size float64) float64 {
	return float64(utf8.RuneCountInString(text)) * size * 0.6
}

// shorten cuts a text to a number of characters.
func shorten(text string, n int) string {
	r := []rune(text)
	if len(r) <= n {
		return text
	}
	return string(r[:n-1]) + "…"
}
