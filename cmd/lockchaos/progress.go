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

// A progress shows how a run goes: one line that is rewritten on a terminal,
// else a line now and then and one at each change of the active fault.
type progress struct {
	w     io.Writer
	title string
	live  bool
	width int
	said  time.Duration
	fault string
}

func newProgress(w io.Writer, title string) *progress {
	width, live := onTerminal(w)
	return &progress{w: w, title: title, live: live, width: width}
}

func (p *progress) show(now harness.Progress) {
	fault := now.Fault
	if fault == "" {
		fault = "none"
	}
	line := fmt.Sprintf("%s · %4.0fs of %.0fs · %d grants · %.0f grants/s · fault: %s",
		p.title, now.Elapsed.Seconds(), now.Length.Seconds(), now.Grants,
		float64(now.Grants)/max(now.Elapsed.Seconds(), 0.001), fault)
	switch {
	case p.live:
		fmt.Fprintf(p.w, "\r\x1b[K%s", clip(line, p.width-1))
	case now.Elapsed-p.said >= sayEvery || now.Fault != p.fault:
		p.said, p.fault = now.Elapsed, now.Fault
		fmt.Fprintln(p.w, line)
	}
}

// end clears the live line.
func (p *progress) end() {
	if p.live {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}

func clip(s string, width int) string {
	r := []rune(s)
	if width <= 0 || len(r) <= width {
		return s
	}
	return strings.TrimSpace(string(r[:width]))
}
