package reports

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
)

// What a run that is under way is watched by: a page, and the stream of its figures.
const (
	liveFile   = "live"
	eventsFile = "events"
)

const (
	// liveEvery is how often a stream tells how a run goes.
	liveEvery = time.Second
	// liveTimeout bounds the wait for a reader of a stream.
	liveTimeout = 10 * time.Second
	// maxLiveEvents is up to how many events a run is judged while it is under way, and
	// maxLiveLine how long a line may be.
	maxLiveEvents = 200_000
	maxLiveLine   = 1 << 20
	// liveIsolation is the policy of the page that watches a run, with its script. It has nothing
	// of another author but names, which it shows as text, and asks this server alone.
	liveIsolation = "default-src 'none'; script-src %s; style-src 'unsafe-inline'; connect-src 'self'; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

// A Live is how a run goes.
type Live struct {
	Elapsed   float64  `json:"elapsed"` // seconds of the record
	Length    float64  `json:"length"`  // as it was planned; 0 if it is not known
	Granted   int      `json:"granted"`
	Refused   int      `json:"refused"`
	Unknown   int      `json:"unknown"`
	PerSecond float64  `json:"per_second"` // grants, of late
	Faults    []string `json:"faults"`     // in effect
	// Violations are those found so far, Found the first in words. Judged is false once
	// the record is too long to be judged while it grows.
	Violations int    `json:"violations"`
	Found      string `json:"found,omitempty"`
	Judged     bool   `json:"judged"`
	Done       bool   `json:"done"` // there is a report
}

// A follower reads a history while it is written.
type follower struct {
	Live

	rest   []byte // of a line that is not whole yet
	events []history.Event
	active map[string]string // faults by name and target

	at      time.Duration // when the rate was taken
	granted int           // by then
	judging time.Time     // when it was judged last
	took    time.Duration
}

// take adds what was written since.
func (f *follower) take(r *bufio.Reader) error {
	for {
		part, err := r.ReadSlice('\n')
		f.rest = append(f.rest, part...)
		switch {
		case len(f.rest) > maxLiveLine:
			return errors.New("read history: a line is too long")
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF): // the line is not whole yet
			return nil
		case err != nil:
			return fmt.Errorf("read history: %w", err)
		}
		var e history.Event
		if err := json.Unmarshal(f.rest, &e); err != nil {
			return fmt.Errorf("read history: %w", err)
		}
		f.rest = f.rest[:0]
		f.add(&e)
	}
}

func (f *follower) add(e *history.Event) {
	f.Elapsed = max(f.Elapsed, e.Time.Seconds())
	if len(f.events) < maxLiveEvents {
		f.events = append(f.events, *e)
	} else {
		f.Judged = false
	}
	switch {
	case e.Op == history.Acquire && e.Type == history.OK:
		f.Granted++
	case e.Op == history.Acquire && e.Type == history.Fail:
		f.Refused++
	case e.Op == history.Acquire && e.Type == history.Info:
		f.Unknown++
	case e.Op == history.Inject && e.Type == history.OK && e.Life != history.Momentary:
		f.active[e.Fault+" "+e.Target] = strings.TrimSpace(e.Fault + " " + e.Target)
	case e.Op == history.Heal && e.Type == history.OK:
		delete(f.active, e.Fault+" "+e.Target)
	}
}

// state is how the run goes now.
func (f *follower) state(ctx context.Context) Live {
	if now := time.Duration(f.Elapsed * 1e9); now > f.at {
		f.PerSecond = float64(f.Granted-f.granted) / (now - f.at).Seconds()
		f.at, f.granted = now, f.Granted
	}
	f.Faults = []string{}
	for _, name := range f.active {
		f.Faults = append(f.Faults, say.OneLine(name))
	}
	slices.Sort(f.Faults)
	// Judging takes no more than a tenth of the time.
	if f.Judged && time.Since(f.judging) > 10*f.took {
		begun := time.Now()
		f.judge(ctx)
		f.judging, f.took = time.Now(), time.Since(begun)
	}
	return f.Live
}

// judge looks for violations so far. That there are none is no verdict.
func (f *follower) judge(ctx context.Context) {
	r := checker.CheckRun(ctx, history.Run{}, &history.History{Events: slices.Clone(f.events)}, checker.RunOptions{
		Properties: []string{"mutual-exclusion", "capacity", "ownership", "use-within-lease", "protected-resource", "fencing-order"},
	})
	f.Violations, f.Found = 0, ""
	for i := range r.Results {
		if p := &r.Results[i]; p.Verdict == checker.Invalid {
			f.Violations += max(p.Total, len(p.Violations))
			f.Found = cmp.Or(f.Found, say.OneLine(p.Summary))
		}
	}
}

// watch answers with the page that shows a run under way.
func (h *handler) watch(w http.ResponseWriter, run string) {
	var b bytes.Buffer
	if err := writePage(&b, "live.html", map[string]any{"Name": say.OneLine(run)}, "live.js"); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Security-Policy", fmt.Sprintf(liveIsolation, scriptHash(asset("live.js"))))
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(b.Bytes()) // who asked may have gone
}

// stream tells how a run goes until it ends, or the reader goes.
func (h *handler) stream(w http.ResponseWriter, r *http.Request, run string) {
	file, err := openIn(h.root, path.Join(run, HistoryFile), os.FileMode.IsRegular)
	if err != nil {
		http.Error(w, "there is no history", http.StatusNotFound)
		return
	}
	defer file.Close()
	w.Header().Set("Content-Type", "text/event-stream")
	to := http.NewResponseController(w)
	from, f := bufio.NewReader(file), follower{active: map[string]string{}, Live: Live{Judged: true, Length: h.planned(run)}}
	tick := time.NewTicker(liveEvery)
	defer tick.Stop()
	for {
		f.Done = h.judged(run)
		if err := f.take(from); err != nil {
			f.Judged, f.Found = false, say.OneLine(err.Error())
		}
		b, err := json.Marshal(f.state(r.Context()))
		if err != nil {
			return
		}
		_ = to.SetWriteDeadline(time.Now().Add(liveTimeout)) // a server without deadlines needs none
		if _, err := fmt.Fprintf(w, "data: %s\n\n", b); err != nil || to.Flush() != nil || f.Done {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-tick.C:
		}
	}
}

// judged reports whether a run has its report.
func (h *handler) judged(run string) bool {
	_, err := h.root.Lstat(path.Join(run, HTMLFile))
	return err == nil
}

// planned is how long a run is to last, in seconds; 0 if it does not say.
func (h *handler) planned(run string) float64 {
	var r history.Run
	var settings struct {
		Length time.Duration `json:"length"`
	}
	err := readFile(inside(h.root), path.Join(run, RunFile), func(f io.Reader) (err error) {
		r, err = history.ReadRun(f)
		return err
	})
	if err != nil || json.Unmarshal(r.Settings, &settings) != nil {
		return 0
	}
	return settings.Length.Seconds()
}
