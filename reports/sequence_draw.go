package reports

import (
	"fmt"
	"math"
	"slices"

	"github.com/lockchaos/lockchaos/internal/say"
)

// The measures of a sequence diagram, in SVG units.
const (
	sequenceLeft   = 78.0 // of the first party; times stand before it
	sequenceRow    = 27.0
	sequenceHead   = 30.0
	sequenceColumn = 118.0 // the least that a party gets
)

// sequenceFigure draws a sequence.
func sequenceFigure(q *Sequence) string {
	width := math.Max(chartWidth, sequenceLeft+sequenceColumn*float64(len(q.Actors)))
	column := math.Min((width-sequenceLeft)/float64(len(q.Actors)), 260)
	width = math.Min(width, sequenceLeft+column*float64(len(q.Actors)))
	x := map[string]float64{}
	for i, a := range q.Actors {
		x[a.Name] = sequenceLeft + column*(float64(i)+0.5)
	}
	rows := 0
	for i := range q.Steps {
		if i == 0 || !beside(&q.Steps[i-1], &q.Steps[i]) {
			rows++
		}
	}
	height := sequenceHead + sequenceRow*(float64(rows)+0.7)
	var s drawing
	for _, a := range q.Actors {
		at := x[a.Name]
		s.line("q-life", at, sequenceHead, at, height)
		s.rect("q-actor q-"+actorClass(a.Kind), at-math.Min(column-12, 132)/2, 2, math.Min(column-12, 132), sequenceHead-4, 4, a.Kind)
		s.text("q-name", at, 20, shorten(actorName(a), int(math.Min(column-12, 132)/7)))
	}
	y := sequenceHead + sequenceRow*0.35
	last := ""
	for i := range q.Steps {
		step := &q.Steps[i]
		row := i == 0 || !beside(&q.Steps[i-1], step)
		if row {
			y += sequenceRow
		}
		if at := say.Instant(step.At); row && at != last {
			s.text("t-tick end", sequenceLeft-8, y+4, at)
			last = at
		}
		if runs := q.runs(step.Over); len(runs) > 0 {
			step.drawOver(&s, runs, x, y, width)
			continue
		}
		step.draw(&s, x, y, width)
	}
	return fmt.Sprintf(`<svg class="figure sequence" viewBox="0 0 %s %s" style="max-width:%spx" role="img" aria-label="Sequence of the messages that led to the violation">%s</svg>`,
		num(width), num(height), num(width), s.String())
}

// beside reports whether two looks at servers share a row.
func beside(before, step *SequenceStep) bool {
	return before.Kind == StepNote && step.Kind == StepNote && natural(before.From, step.From) < 0 && before.From != "" &&
		step.At-before.At < oneLook && wide(before.Text, smallSize) < sequenceColumn-20 && wide(step.Text, smallSize) < sequenceColumn-20
}

func actorName(a Actor) string {
	if a.Kind == "client" {
		return "client " + a.Name
	}
	return a.Name
}

// actorClass makes a kind, which may come from anywhere, part of a class.
func actorClass(kind string) string {
	if slices.Contains([]string{"client", "server", "sentinels", "resource"}, kind) {
		return kind
	}
	return "server"
}

// drawOver draws a fault over the parties that it concerns, and no other: its words stand in
// a bar that has room for them, else beside the bars.
func (step *SequenceStep) drawOver(s *drawing, runs [][2]string, x map[string]float64, y, width float64) {
	const half = 9.0 // of a bar over a single party
	w := wide(step.Text, smallSize) + 8
	at, free, class := -1.0, width-2, "q-text"
	for _, run := range slices.Backward(runs) { // behind the last bar, else before one
		from, to := x[run[0]]-half, x[run[1]]+half
		s.rect("t-fault", from, y-10, to-from, 19, 3, step.Text)
		if at < 0 && to+w <= free {
			at = to
		}
		free = from
	}
	if at < 0 && free-w >= sequenceLeft {
		at = free - w
	}
	for _, run := range runs {
		if from := x[run[0]] - half; w <= x[run[1]]+half-from {
			at, class = from, "q-text q-in"
		}
	}
	if at < 0 { // there is no room that is free
		at = math.Max(sequenceLeft, width-w-2)
	}
	s.text(class, at+w/2, y+4, step.Text)
}

func (step *SequenceStep) draw(s *drawing, x map[string]float64, y, width float64) {
	from, placed := x[step.From]
	switch step.Kind {
	case StepViolation:
		s.rect("t-flag", sequenceLeft, y-11, width-sequenceLeft-4, 21, 3, step.Text)
		s.text("t-flag-text", sequenceLeft+10, y+4, shorten("✗ "+step.Text, 110))
		return
	case StepNote, StepFault:
		class := "q-note"
		if step.Kind == StepFault {
			class = "t-fault"
		}
		w := wide(step.Text, smallSize) + 14
		left := from - w/2
		if !placed {
			left = sequenceLeft
		}
		left = math.Max(sequenceLeft, math.Min(left, width-w-2))
		s.rect(class, left, y-10, w, 19, 3, "")
		s.text("t-small", left+7, y+4, step.Text)
		return
	}
	to := x[step.To]
	class, head := "q-line", 6.0
	switch step.Kind {
	case StepReply:
		class = "q-line q-reply"
	case StepRefusal:
		class = "q-line q-reply q-refusal"
	case StepLost:
		class = "q-line q-reply q-lost"
		to = from + (to-from)*0.72
	}
	if to < from {
		head = -head
	}
	s.path(class, fmt.Sprintf("M%s %sH%s", num(from), num(y+5), num(to)), "")
	if step.Kind == StepLost {
		s.path("t-bad-mark", cross(to, y+5, 4.5), "")
	} else {
		s.path("q-head "+class, fmt.Sprintf("M%s %sl%s -4v8z", num(to), num(y+5), num(-head)), "")
	}
	text := "q-text"
	if step.Kind == StepLost {
		text = "q-text t-bad-text"
	}
	w := wide(step.Text, smallSize)
	middle := math.Max(sequenceLeft+w/2, math.Min((from+x[step.To])/2, width-w/2-2))
	s.text(text, middle, y+1, step.Text)
}
