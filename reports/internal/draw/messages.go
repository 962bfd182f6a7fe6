package draw

import (
	"cmp"
	"fmt"

	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/reports/internal/story"
)

// The measures of a diagram of messages, in SVG units.
const (
	fullWidth = 1000.0
	left      = 78.0 // of the first party; times stand before it
	rowHeight = 27.0
	headRoom  = 30.0
	leastWide = 118.0 // of a party
	mostWide  = 260.0
)

// Messages draws a sequence as an SVG element for a page.
func Messages(q *story.Sequence) string {
	n := float64(len(q.Actors))
	column := min((max(fullWidth, left+leastWide*n)-left)/n, mostWide)
	width := left + column*n
	x := map[string]float64{}
	for i, a := range q.Actors {
		x[a.Name] = left + column*(float64(i)+0.5)
	}
	height := headRoom + rowHeight*(float64(len(q.Steps))+0.9)
	var s drawing
	for _, a := range q.Actors {
		at, w, name := x[a.Name], min(column-12, 132), a.Name
		if a.Kind == story.ActorClient {
			name = "client " + name
		}
		s.path("q-life", d("M", at, headRoom, "V", height-4), "")
		s.rect("q-actor q-"+a.Kind, at-w/2, 2, w, headRoom-4, 4, a.Kind)
		s.text("q-name", at, 20, say.Shorten(name, int(w/7)))
	}
	y, last := headRoom+rowHeight*0.35, ""
	for i := range q.Steps {
		y += rowHeight
		if at := say.Instant(q.Steps[i].At); at != last {
			s.text("t-tick end", left-8, y+4, at)
			last = at
		}
		s.step(&q.Steps[i], x, y, width)
	}
	return fmt.Sprintf(`<svg class="figure sequence" viewBox="0 0 %s %s" style="max-width:%spx" role="img" aria-label="Sequence of the messages that led to the violation">%s</svg>`,
		num(width), num(height), num(width), s.String())
}

func (s *drawing) step(step *story.Step, x map[string]float64, y, width float64) {
	switch step.Kind {
	case story.StepViolation:
		s.rect("t-flag", left, y-11, width-left-4, 21, 3, step.Text)
		s.text("t-flag-text", left+10, y+4, say.Shorten("✗ "+step.Text, 110))
	case story.StepNote:
		s.note("q-note", x[step.From], y, width, step.Text)
	case story.StepFault:
		s.note("t-fault", cmp.Or(x[step.From], left), y, width, step.Text)
	default:
		s.message(step, x[step.From], x[step.To], y, width)
	}
}

// note draws words in a box around a place, or at the left.
func (s *drawing) note(class string, middle, y, width float64, text string) {
	words, title := text, ""
	for n := len(words); wide(words)+14 > width-left-4 && n > 0; n-- {
		words, title = say.Shorten(text, n), text
	}
	w := wide(words) + 14
	at := max(left, min(middle-w/2, width-w-2))
	s.rect(class, at, y-10, w, 19, 3, title)
	s.text("t-small", at+7, y+4, words)
}

func (s *drawing) message(step *story.Step, from, to, y, width float64) {
	class, text := "q-line", "q-text"
	tip, head := to, 6.0
	switch step.Kind {
	case story.StepReply:
		class = "q-line q-reply"
	case story.StepRefusal:
		class = "q-line q-reply q-refusal"
	case story.StepLost:
		class, text = "q-line q-reply q-lost", "q-text t-bad-text"
		tip = from + (to-from)*0.72
	}
	if to < from {
		head = -head
	}
	s.path(class, d("M", from, y+5, "H", tip), "")
	if step.Kind == story.StepLost {
		s.path("t-bad-mark", cross(tip, y+5, 4.5), "")
	} else {
		s.path("q-head "+class, d("M", tip, y+5, "l", -head, -4.0, "v", 8.0, "z"), "")
	}
	w := wide(step.Text)
	s.text(text, max(left+w/2, min((from+to)/2, width-w/2-2)), y+1, step.Text)
}
