package network

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockchaos/lockchaos/faults"
)

// A flap is a cut that comes and goes.
type flap struct {
	*fault

	down, up time.Duration
}

// Flap cuts the links and mends them again, over and over: they are cut for
// down, and mended for up. Both are above 0.
func Flap(links []Link, down, up time.Duration) faults.Fault {
	f, _ := Cut(links).(*fault)
	f.name = "flap"
	return &flap{f, down, up}
}

// Inject sees the first round: the links refuse, and answer again.
func (f *flap) Inject(ctx context.Context) (faults.Injection, error) {
	working := answering(ctx, f.links)
	first, err := f.fault.Inject(ctx)
	if err != nil {
		return faults.Injection{}, err
	}
	if _, err := first.Heal(ctx); err != nil {
		undo, cancel := faults.Undo(ctx)
		defer cancel()
		_, again := first.Heal(undo)
		return faults.Injection{}, errors.Join(err, again)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		f.takeTurns(stop)
	}()
	end := sync.OnceFunc(func() {
		close(stop)
		<-stopped
	})
	return faults.Injection{
		Effect: fmt.Sprintf("%s for %v, answering for %v, and so on", first.Effect, f.down, f.up),
		Heal: faults.Once(func(ctx context.Context) (string, error) {
			end()
			again, err := f.mended(ctx, working)
			return count(len(working), "link") + " mended, " + again, err
		}),
	}, nil
}

// takeTurns cuts and mends until it is stopped, and leaves the links mended.
func (f *flap) takeTurns(stop <-chan struct{}) {
	for {
		var mends []func()
		for _, l := range f.links {
			mends = append(mends, l.Cut())
		}
		stopped := pause(stop, f.down)
		for _, mend := range mends {
			mend()
		}
		if stopped || pause(stop, f.up) {
			return
		}
	}
}

// pause reports whether it was stopped before its time.
func pause(stop <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return false
	case <-stop:
		return true
	}
}
