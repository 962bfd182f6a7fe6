// Package draw draws a topology as SVG, and knows of plots.
package draw

import (
	"html"
	"strconv"
	"strings"

	"github.com/lockchaos/lockchaos/internal/say"
)

// A drawing is the inside of an SVG. All text and attributes are escaped;
// shapes carry classes, and the style sheet gives them their colours.
type drawing struct{ strings.Builder }

// num writes a coordinate with a tenth of a unit, which is finer than a pixel.
func num(f float64) string { return say.TrimZeros(strconv.FormatFloat(f, 'f', 1, 64)) }

// d makes a path of its letters and coordinates.
func d(parts ...any) string {
	var b strings.Builder
	for _, p := range parts {
		if f, is := p.(float64); is {
			b.WriteString(num(f) + " ")
		} else if letter, is := p.(string); is {
			b.WriteString(letter)
		}
	}
	return b.String()
}

// raw writes what is SVG already.
func (s *drawing) raw(parts ...string) {
	for _, p := range parts {
		s.WriteString(p)
	}
}

// rect draws a rectangle; a title is what a pointer that rests on it shows.
func (s *drawing) rect(class string, x, y, w, h, radius float64, title string) {
	s.raw(`<rect class="`, class, `" x="`, num(x), `" y="`, num(y), `" width="`, num(max(w, 0)), `" height="`, num(h), `" rx="`, num(radius), `">`, titled(title), `</rect>`)
}

// path draws a path.
func (s *drawing) path(class, d, title string) {
	s.raw(`<path class="`, class, `" d="`, d, `">`, titled(title), `</path>`)
}

func titled(title string) string {
	if title == "" {
		return ""
	}
	return "<title>" + escape(title) + "</title>"
}

// text draws a text in the middle of x, or where the class says.
func (s *drawing) text(class string, x, y float64, text string) {
	s.raw(`<text class="`, class, `" x="`, num(x), `" y="`, num(y), `">`, escape(text), `</text>`)
}

// cross is a path of two strokes around a point.
func cross(x, y, r float64) string {
	return d("M", x-r, y-r, "L", x+r, y+r, "M", x-r, y+r, "L", x+r, y-r)
}

// escape makes a text safe for XML, where most control characters are
// forbidden even as references.
func escape(s string) string { return html.EscapeString(say.OneLine(s)) }
