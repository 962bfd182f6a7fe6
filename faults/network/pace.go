package network

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockchaos/lockchaos/faults"
)

// A Pacer is a link whose pace can be changed.
type Pacer interface {
	Link
	// Throttle lets so many bytes a second of a stream pass.
	Throttle(stream string, rate int) (mend func(), err error)
	// Linger passes the end of a stream on so much later.
	Linger(stream string, d time.Duration) (mend func(), err error)
	// Burst sends so many bytes through the link and back, and times that.
	Burst(ctx context.Context, size int) (time.Duration, error)
	// Farewell ends a connection as its caller would, and times until the other
	// end has closed it as well.
	Farewell(ctx context.Context) (time.Duration, error)
}

// ErrPace says that a link has one pace only.
var ErrPace = errors.New("the pace of these links can't be changed")

// pacer is the link as a Pacer.
func pacer(l Link) (Pacer, error) {
	p, ok := l.(Pacer)
	if !ok {
		return nil, fmt.Errorf("%s: %w", l.Name(), ErrPace)
	}
	return p, nil
}

// burstTime is how long a burst must take on a link whose pace is limited.
const burstTime = 50 * time.Millisecond

// Bandwidth limits a stream of the links, or both, to so many bytes a second. It
// is for links on which clients talk to servers.
func Bandwidth(links []Link, stream string, rate int) faults.Fault {
	size := max(1, int(int64(rate)*int64(burstTime)/int64(time.Second)))
	return &fault{
		name: "bandwidth", links: links, words: fmt.Sprintf("limited to %d bytes a second %s", rate, stream),
		put: func(l Link) (func(), error) {
			p, err := pacer(l)
			if err != nil {
				return nil, err
			}
			return p.Throttle(stream, rate)
		},
		seen: func(ctx context.Context, l Link) error {
			p, err := pacer(l)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(ctx, probeTimeout+10*burstTime)
			defer cancel()
			took, err := p.Burst(ctx, size)
			if err == nil && took < burstTime {
				err = fmt.Errorf("%d bytes passed %s within %v", size, l.Name(), took)
			}
			return err
		},
	}
}

// SlowClose passes the end of each connection of the links on so much later, so
// that one side takes it for open when the other has left.
func SlowClose(links []Link, stream string, d time.Duration) faults.Fault {
	return &fault{
		name: "slow-close", links: links, words: fmt.Sprintf("closing later by %v %s", d, stream),
		put: func(l Link) (func(), error) {
			p, err := pacer(l)
			if err != nil {
				return nil, err
			}
			return p.Linger(stream, d)
		},
		seen: func(ctx context.Context, l Link) error {
			p, err := pacer(l)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(ctx, probeTimeout+3*d)
			defer cancel()
			took, err := p.Farewell(ctx)
			if err == nil && took < d {
				err = fmt.Errorf("a connection of %s was closed after %v", l.Name(), took)
			}
			return err
		},
	}
}
