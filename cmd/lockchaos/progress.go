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

	at        time.Duration // when the rate was taken
	grants    int64         // by then
	perSecond float64
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
	// What changes comes first: a small terminal has no room for all.
	line := fmt.Sprintf("%4.0fs of %.0fs · fault: %s · %d grants, %.0f/s · %s",
		now.Elapsed.Seconds(), now.Length.Seconds(), fault, now.Grants, p.rate(now), p.title)
	switch {
	case p.live:
		fmt.Fprintf(p.w, "\r\x1b[K%s", clip(line, p.width-1))
	case now.Elapsed-p.said >= sayEvery || now.Fault != p.fault:
		p.said, p.fault = now.Elapsed, now.Fault
		fmt.Fprintln(p.w, time.Now().UTC().Format("15:04:05"), line)
	}
}

// rate is how many grants a second there were of late.
func (p *progress) rate(now harness.Progress) float64 {
	if since := now.Elapsed - p.at; since >= time.Second {
		p.perSecond = float64(now.Grants-p.grants) / since.Seconds()
		p.at, p.grants = now.Elapsed, now.Grants
	}
	return p.perSecond
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
