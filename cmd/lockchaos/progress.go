package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/harness"
)

// sayEvery is how often progress is printed where no line can be rewritten.
const sayEvery = 5 * time.Second

// A progress shows how work goes: one line that is rewritten on a terminal, else a line now and then, and one at each
// change of what is done.
type progress struct {
	w     io.Writer
	live  bool
	width int
	said  time.Time
	doing string
}

func newProgress(w io.Writer) *progress {
	width, live := onTerminal(w)
	return &progress{w: w, live: live, width: width, said: time.Now()}
}

func (p *progress) show(doing, line string) {
	switch {
	case p.live:
		r := []rune(line)
		fmt.Fprintf(p.w, "\r\x1b[K%s", strings.TrimSpace(string(r[:min(len(r), max(p.width-1, 0))])))
	case doing != p.doing || time.Since(p.said) >= sayEvery:
		p.said, p.doing = time.Now(), doing
		fmt.Fprintln(p.w, time.Now().UTC().Format("15:04:05"), line)
	}
}

// run shows how a run goes, which is told by that title.
func (p *progress) run(title string) func(harness.Progress) {
	return func(now harness.Progress) {
		fault := now.Fault
		if fault == "" {
			fault = "none"
		}
		// What changes comes first: a small terminal has no room for all.
		p.show(now.Fault, fmt.Sprintf("%4.0fs of %.0fs · fault: %s · %d grants, %.0f/s · %s",
			now.Elapsed.Seconds(), now.Length.Seconds(), fault, now.Grants, float64(now.Grants)/max(now.Elapsed.Seconds(), 1), title))
	}
}

// end clears the live line.
func (p *progress) end() {
	if p.live {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
