package chart

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/internal/say"
)

// A Sequence is what parties said to each other until a violation, in order of time.
type Sequence struct {
	Actors []Actor `json:"actors"`
	Steps  []Step  `json:"steps"`
}

// An Actor is a party of a sequence.
type Actor struct {
	Name string `json:"name"`
	Kind string `json:"kind"` // client, server, sentinels, resource
}

// A Step is a message between two parties, or a note beside one or more.
type Step struct {
	At   time.Duration `json:"at"`
	Kind string        `json:"kind"`
	From string        `json:"from,omitempty"`
	To   string        `json:"to,omitempty"` // of a note over several the last
	Text string        `json:"text"`
	// Over are the parties that a fault concerns; absent where it is one, or all.
	Over []string `json:"over,omitempty"`
	// Event is the index of the event that it was drawn from; absent where there is none.
	Event *int64 `json:"event,omitempty"`
}

// The kinds of steps of a [Sequence].
const (
	StepRequest   = "request"
	StepReply     = "reply"
	StepRefusal   = "refusal"   // a reply
	StepLost      = "lost"      // a message that did not arrive, as far as the record shows
	StepNote      = "note"      // what happened to a party
	StepFault     = "fault"     // a note
	StepViolation = "violation" // a note
)

// OneLook is how far apart the answers of several servers to one look at a key may lie.
const OneLook = 50 * time.Millisecond

// The measures of a sequence diagram, in SVG units.
const (
	sequenceLeft   = 78.0 // of the first party; times stand before it
	sequenceRow    = 27.0
	sequenceHead   = 30.0
	sequenceColumn = 118.0 // the least that a party gets
)

// Figure draws the sequence as an SVG element for a page.
func (q *Sequence) Figure() string {
	width := math.Max(Width, sequenceLeft+sequenceColumn*float64(len(q.Actors)))
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
	var s Drawing
	for _, a := range q.Actors {
		at := x[a.Name]
		s.Line("q-life", at, sequenceHead, at, height)
		s.Rect("q-actor q-"+actorClass(a.Kind), at-math.Min(column-12, 132)/2, 2, math.Min(column-12, 132), sequenceHead-4, 4, a.Kind)
		s.Text("q-name", at, 20, say.Shorten(actorName(a), int(math.Min(column-12, 132)/7)))
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
			s.Text("t-tick end", sequenceLeft-8, y+4, at)
			last = at
		}
		if runs := q.runs(step.Over); len(runs) > 0 {
			step.drawOver(&s, runs, x, y, width)
			continue
		}
		step.draw(&s, x, y, width)
	}
	return fmt.Sprintf(`<svg class="figure sequence" viewBox="0 0 %s %s" style="max-width:%spx" role="img" aria-label="Sequence of the messages that led to the violation">%s</svg>`,
		Num(width), Num(height), Num(width), s.String())
}

// beside reports whether two looks at servers share a row.
func beside(before, step *Step) bool {
	return before.Kind == StepNote && step.Kind == StepNote && say.Natural(before.From, step.From) < 0 && before.From != "" &&
		step.At-before.At < OneLook && Wide(before.Text, SmallSize) < sequenceColumn-20 && Wide(step.Text, SmallSize) < sequenceColumn-20
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
func (step *Step) drawOver(s *Drawing, runs [][2]string, x map[string]float64, y, width float64) {
	const half = 9.0 // of a bar over a single party
	w := Wide(step.Text, SmallSize) + 8
	at, free, class := -1.0, width-2, "q-text"
	for _, run := range slices.Backward(runs) { // behind the last bar, else before one
		from, to := x[run[0]]-half, x[run[1]]+half
		s.Rect("t-fault", from, y-10, to-from, 19, 3, step.Text)
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
	s.Text(class, at+w/2, y+4, step.Text)
}

func (step *Step) draw(s *Drawing, x map[string]float64, y, width float64) {
	from, placed := x[step.From]
	switch step.Kind {
	case StepViolation:
		s.Rect("t-flag", sequenceLeft, y-11, width-sequenceLeft-4, 21, 3, step.Text)
		s.Text("t-flag-text", sequenceLeft+10, y+4, say.Shorten("✗ "+step.Text, 110))
		return
	case StepNote, StepFault:
		class := "q-note"
		if step.Kind == StepFault {
			class = "t-fault"
		}
		words, title := step.Text, ""
		for n := len(words); Wide(words, SmallSize)+14 > width-sequenceLeft-4 && n > 0; n-- {
			words, title = say.Shorten(step.Text, n), step.Text
		}
		w := Wide(words, SmallSize) + 14
		left := from - w/2
		if !placed {
			left = sequenceLeft
		}
		left = math.Max(sequenceLeft, math.Min(left, width-w-2))
		s.Rect(class, left, y-10, w, 19, 3, title)
		s.Text("t-small", left+7, y+4, words)
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
	s.Path(class, fmt.Sprintf("M%s %sH%s", Num(from), Num(y+5), Num(to)), "")
	if step.Kind == StepLost {
		s.Path("t-bad-mark", Cross(to, y+5, 4.5), "")
	} else {
		s.Path("q-head "+class, fmt.Sprintf("M%s %sl%s -4v8z", Num(to), Num(y+5), Num(-head)), "")
	}
	text := "q-text"
	if step.Kind == StepLost {
		text = "q-text t-bad-text"
	}
	w := Wide(step.Text, SmallSize)
	middle := math.Max(sequenceLeft+w/2, math.Min((from+x[step.To])/2, width-w/2-2))
	s.Text(text, middle, y+1, step.Text)
}

// runs are parties as they stand beside each other in the diagram: the first and the last
// of each group that no other party divides.
func (q *Sequence) runs(parties []string) [][2]string {
	var runs [][2]string
	beside := false
	for _, a := range q.Actors {
		switch in := slices.Contains(parties, a.Name); {
		case in && beside:
			runs[len(runs)-1][1] = a.Name
		case in:
			runs = append(runs, [2]string{a.Name, a.Name})
			beside = true
		default:
			beside = false
		}
	}
	return runs
}

// Mermaid is the sequence as a diagram that GitHub and others draw from text.
func (q *Sequence) Mermaid() string {
	var b strings.Builder
	b.WriteString("sequenceDiagram\n")
	id := map[string]string{}
	for i, a := range q.Actors {
		id[a.Name] = fmt.Sprintf("p%d", i)
		name := a.Name
		if a.Kind == "client" {
			name = "client " + name
		}
		fmt.Fprintf(&b, "  participant p%d as %s\n", i, mermaidText(name))
	}
	all := fmt.Sprintf("p0,p%d", len(q.Actors)-1)
	for _, s := range q.Steps {
		text := mermaidText(say.Instant(s.At) + " " + s.Text)
		over := cmp.Or(id[s.From], all)
		if runs := q.runs(s.Over); len(runs) > 0 {
			over = id[runs[0][0]] + "," + id[runs[0][1]]
		}
		red := s.Kind == StepLost || s.Kind == StepViolation
		if red {
			b.WriteString("  rect rgba(196,22,28,0.15)\n")
		}
		switch s.Kind {
		case StepRequest:
			fmt.Fprintf(&b, "  %s->>%s: %s\n", id[s.From], id[s.To], text)
		case StepReply, StepRefusal:
			fmt.Fprintf(&b, "  %s-->>%s: %s\n", id[s.From], id[s.To], text)
		case StepLost:
			fmt.Fprintf(&b, "  %s--x%s: %s\n", id[s.From], id[s.To], text)
		case StepViolation:
			fmt.Fprintf(&b, "  Note over %s: ✗ %s\n", over, text)
		default:
			fmt.Fprintf(&b, "  Note over %s: %s\n", over, text)
		}
		if red {
			b.WriteString("  end\n")
		}
	}
	return b.String()
}

// mermaidText is a text that ends no statement of a diagram, and no block of code.
func mermaidText(s string) string {
	return strings.NewReplacer(";", ",", "#", "no. ", "`", "'", "<", "(", ">", "→", "%%", "%").Replace(say.OneLine(s))
}
