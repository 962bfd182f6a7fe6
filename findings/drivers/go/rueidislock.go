//go:build ignore

// rueidislock, with a validity of 2 s that it extends by itself until the release. It tells by the context of a grant that the grant is over.
package main

import (
	"context"
	"errors"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

func main() {
	serve("rueidislock", fields{"lost": true, "watchdog": true}, func(servers []string, timeout time.Duration) func(context.Context, string, time.Duration) (grant, error) {
		l, err := rueidislock.NewLocker(rueidislock.LockerOption{
			ClientOption: rueidis.ClientOption{InitAddress: servers, DisableRetry: true, ConnWriteTimeout: timeout},
			KeyMajority:  1, KeyValidity: 2 * time.Second,
		})
		if err != nil {
			panic(err)
		}
		return func(ctx context.Context, name string, _ time.Duration) (grant, error) {
			src, drop := context.WithCancel(context.Background()) // the hold lives as long as it
			held, cancel, err := l.TryWithContext(src, name)
			if errors.Is(err, rueidislock.ErrNotLocked) {
				err = errNo
			}
			if err != nil {
				drop()
				return grant{}, err
			}
			return grant{release: func(context.Context) error { cancel(); drop(); return nil }, lost: held.Done()}, nil
		}
	})
}
