// Package network makes the faults of links: of all that passes them (cut, hold,
// latency, …), and of one message (drop-reply, hold-command, …).
package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lockchaos/lockchaos/faults"
)

// A Link is what a fault needs of one.
type Link interface {
	Name() string
	// Cut resets every connection and refuses new ones.
	Cut() (mend func())
	// Hold stops the data of a stream (upstream, downstream or both) and
	// delivers it once mended.
	Hold(stream string) (mend func(), err error)
	// Delay adds a latency, give or take the jitter.
	Delay(stream string, latency, jitter time.Duration) (mend func(), err error)
	// Reset resets every connection, once.
	Reset() int
	// Probe sends a request through and times its answer.
	Probe(ctx context.Context) (time.Duration, error)
}

const (
	// probeTimeout is how long the answer to a probe may take on a link that
	// ought to work.
	probeTimeout = 2 * time.Second
	// silence is how long a link must stay silent to count as held.
	silence = 100 * time.Millisecond
)

// fault is a fault on several links at once: how to put it on one, and how to
// see that it is there.
type fault struct {
	name  string
	links []Link
	put   func(Link) (mend func(), err error)
	seen  func(context.Context, Link) error
	words string // what the links are: "refusing"
}

// Name returns the fault's name.
func (f *fault) Name() string { return f.name }

// Inject puts the fault on all links, and sees that it is on each that worked
// before. If none did, nothing can be seen, and it fails.
func (f *fault) Inject(ctx context.Context) (faults.Injection, error) {
	working := answering(ctx, f.links)
	if len(working) == 0 {
		return faults.Injection{}, fmt.Errorf("%s shows no effect: no link answered before it", f.name)
	}
	var mends []func()
	mend := func() {
		for _, m := range mends {
			m()
		}
	}
	for _, l := range f.links {
		m, err := f.put(l)
		if err != nil {
			mend()
			return faults.Injection{}, fmt.Errorf("%s %s: %w", f.name, l.Name(), err)
		}
		mends = append(mends, m)
	}
	group, seeing := errgroup.WithContext(ctx)
	for _, l := range working {
		group.Go(func() error { return f.seen(seeing, l) })
	}
	if err := errors.Join(group.Wait(), ctx.Err()); err != nil {
		mend()
		return faults.Injection{}, fmt.Errorf("%s took no effect: %w", f.name, err)
	}
	heal := faults.Once(func(ctx context.Context) (string, error) {
		mend()
		again, err := f.mended(ctx, working)
		return count(len(working), "link") + " mended, " + again, err
	})
	return faults.Injection{Effect: f.effect(len(working)), Heal: heal}, nil
}

// effect is what was seen: "2 links refusing".
func (f *fault) effect(seen int) string {
	if seen < len(f.links) {
		return fmt.Sprintf("%d of %s %s", seen, count(len(f.links), "link"), f.words)
	}
	return count(seen, "link") + " " + f.words
}

// mended sees that no link is silent. One may refuse, when the server behind
// it is gone for reasons of its own.
func (f *fault) mended(ctx context.Context, links []Link) (string, error) {
	var answer atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for _, l := range links {
		group.Go(func() error {
			err := works(ctx, l)
			if err == nil {
				answer.Add(1)
			} else if timedOut(err) {
				return fmt.Errorf("heal %s: %s is still silent: %w", f.name, l.Name(), err)
			}
			return nil
		})
	}
	err := group.Wait()
	if n := int(answer.Load()); n < len(links) {
		return fmt.Sprintf("%d answering again", n), err
	}
	return "answering again", err
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// answering are the links that answer.
func answering(ctx context.Context, links []Link) []Link {
	ok := make([]bool, len(links))
	var all sync.WaitGroup
	for i, l := range links {
		all.Go(func() { ok[i] = works(ctx, l) == nil })
	}
	all.Wait()
	var working []Link
	for i, l := range links {
		if ok[i] {
			working = append(working, l)
		}
	}
	return working
}

// works sees that a link answers.
func works(ctx context.Context, l Link) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	_, err := l.Probe(ctx)
	return err
}

func timedOut(err error) bool {
	var netErr net.Error
	return errors.As(err, &netErr) && netErr.Timeout()
}

// Cut resets all connections of the links and refuses new ones.
func Cut(links []Link) faults.Fault {
	return &fault{
		name: "cut", links: links, words: "refusing",
		put: func(l Link) (func(), error) { return l.Cut(), nil },
		seen: func(ctx context.Context, l Link) error {
			ctx, cancel := context.WithTimeout(ctx, probeTimeout)
			defer cancel()
			if _, err := l.Probe(ctx); err == nil {
				return fmt.Errorf("%s still answers", l.Name())
			} else if timedOut(err) {
				return fmt.Errorf("%s is silent and does not refuse: %w", l.Name(), err)
			}
			return nil
		},
	}
}

// Partition is [Cut], or [Hold] of both streams if it is to be silent, of the
// links between groups of parties. Its name says what shape it has.
func Partition(name string, links []Link, silent bool) faults.Fault {
	f, _ := Cut(links).(*fault)
	if silent {
		f, _ = Hold(links, "both").(*fault)
	}
	f.name = name
	return f
}

// Hold stops the data of one stream of the links, or of both, and keeps it
// until the heal: a partition, as TCP lives through one. On one stream it is a
// one-way cut.
func Hold(links []Link, stream string) faults.Fault {
	words := "silent"
	if stream != "both" {
		words = "silent " + stream
	}
	return &fault{
		name: "hold", links: links, words: words,
		put: func(l Link) (func(), error) { return l.Hold(stream) },
		seen: func(ctx context.Context, l Link) error {
			ctx, cancel := context.WithTimeout(ctx, silence)
			defer cancel()
			switch _, err := l.Probe(ctx); {
			case err == nil:
				return fmt.Errorf("%s still answers", l.Name())
			case !timedOut(err):
				return fmt.Errorf("%s is not silent, it refuses: %w", l.Name(), err)
			}
			return nil
		},
	}
}

// Latency delays the data of a stream of the links, give or take the jitter.
// Both count in whole milliseconds; the jitter is below the latency.
func Latency(links []Link, stream string, latency, jitter time.Duration) faults.Fault {
	least := latency - jitter
	return &fault{
		name: "latency", links: links,
		words: fmt.Sprintf("slower by %v ± %v %s", latency, jitter, stream),
		put:   func(l Link) (func(), error) { return l.Delay(stream, latency, jitter) },
		seen: func(ctx context.Context, l Link) error {
			ctx, cancel := context.WithTimeout(ctx, probeTimeout+2*(latency+jitter))
			defer cancel()
			took, err := l.Probe(ctx)
			if err != nil {
				return err
			}
			if took < least {
				return fmt.Errorf("%s answered after %v", l.Name(), took)
			}
			return nil
		},
	}
}

// Reset resets every open connection of the links, once. It has no duration.
func Reset(links []Link) faults.Fault { return reset(links) }

type reset []Link

// Name returns "reset".
func (reset) Name() string { return "reset" }

// Inject fails if no connection was open: then nothing was reset.
func (r reset) Inject(context.Context) (faults.Injection, error) {
	var hit []string
	total := 0
	for _, l := range r {
		if n := l.Reset(); n > 0 {
			hit = append(hit, l.Name())
			total += n
		}
	}
	if total == 0 {
		return faults.Injection{}, errors.New("reset took no effect: no connection was open")
	}
	return faults.Injection{Effect: count(total, "connection") + " reset on " + strings.Join(hit, ", ")}, nil
}
