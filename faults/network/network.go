// Package network makes the faults of links: cut, hold, latency, reset.
package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
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
	words string // what the links do now: "refuse"
}

// Name returns the fault's name.
func (f *fault) Name() string { return f.name }

// Inject puts the fault on all links and sees that it is on each.
func (f *fault) Inject(ctx context.Context) (faults.Injection, error) {
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
	if err := each(ctx, f.links, f.seen); err != nil {
		mend()
		return faults.Injection{}, fmt.Errorf("%s took no effect: %w", f.name, err)
	}
	heal := faults.Once(func(ctx context.Context) (string, error) {
		mend()
		if err := each(ctx, f.links, works); err != nil {
			return "", fmt.Errorf("heal %s: %w", f.name, err)
		}
		return count(f.links) + " answer again", nil
	})
	return faults.Injection{Effect: count(f.links) + " " + f.words, Heal: heal}, nil
}

func count(links []Link) string {
	if len(links) == 1 {
		return "1 link"
	}
	return fmt.Sprintf("%d links", len(links))
}

func each(ctx context.Context, links []Link, do func(context.Context, Link) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, l := range links {
		group.Go(func() error { return do(ctx, l) })
	}
	return group.Wait()
}

// works sees that a link answers. The server behind it may be down for
// reasons of its own: then the link is as good as it can be.
func works(ctx context.Context, l Link) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	_, err := l.Probe(ctx)
	if timedOut(err) {
		return fmt.Errorf("%s is still silent: %w", l.Name(), err)
	}
	return nil
}

func timedOut(err error) bool {
	var netErr net.Error
	return errors.As(err, &netErr) && netErr.Timeout()
}

// Cut resets all connections of the links and refuses new ones.
func Cut(links []Link) faults.Fault {
	return &fault{
		name: "cut", links: links, words: "refuse",
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

// Hold stops the data of one stream of the links, or of both, and keeps it
// until the heal: a partition, as TCP lives through one. On one stream it is a
// one-way cut.
func Hold(links []Link, stream string) faults.Fault {
	words := "are silent"
	if stream != "both" {
		words = "are silent " + stream
	}
	return &fault{
		name: "hold", links: links, words: words,
		put: func(l Link) (func(), error) { return l.Hold(stream) },
		seen: func(ctx context.Context, l Link) error {
			ctx, cancel := context.WithTimeout(ctx, silence)
			defer cancel()
			if _, err := l.Probe(ctx); err == nil {
				return fmt.Errorf("%s still answers", l.Name())
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
		words: fmt.Sprintf("are slower by %v ± %v %s", latency, jitter, stream),
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
	return faults.Injection{Effect: fmt.Sprintf("%d connections reset on %s", total, strings.Join(hit, ", "))}, nil
}
