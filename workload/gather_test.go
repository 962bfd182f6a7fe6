package workload_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/memory"
	"github.com/lockchaos/lockchaos/workload"
)

// A slow service is granted the first of several locks and renews it, before it is
// granted or refused the others.
type slow struct {
	lock.Locker

	renewed func(owner string)
	err     error
}

func (s slow) Ask(ctx context.Context, r workload.Request, o lock.Options) (*lock.Hold, error) {
	s.renewed(o.Owner)
	if s.err != nil {
		return nil, s.err
	}
	return s.Acquire(ctx, r.Locks[0], o)
}

// What renews a part of a request before all of it is granted is no extend of a
// hold that anybody has; what renews it after that is.
func TestRenewalsOfPartsBeforeTheGrantAreNotRecorded(t *testing.T) {
	for name, refused := range map[string]error{"granted": nil, "refused": lock.ErrNotAcquired, "unknown": context.DeadlineExceeded} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			r := history.NewRecorder(&b)
			p := &workload.Processes{}
			o := workload.NewRenewals(r, p)
			renew := func(owner string) {
				l := lock.Lease{Name: "one", Owner: owner, Request: "r", Length: time.Second, Expires: time.Now().Add(time.Second)}
				o.Observe(lock.Event{Kind: lock.Renewing, Lease: l})
				o.Observe(lock.Event{Kind: lock.Renewed, Lease: l})
			}
			c := workload.Client{Name: "a", Locker: slow{memory.New(), renew, refused}, Recorder: r, Processes: p}
			outcome := c.Ask(t.Context(), workload.Request{Locks: []string{"one", "two"}, Lease: time.Minute})
			require.Equal(t, refused == nil, outcome == history.OK)
			if refused == nil {
				renew(c.Owner())
			}
			require.NoError(t, r.Close())
			h, err := history.ReadAll(&b)
			require.NoError(t, err)
			extends := 0
			for _, op := range h.Operations() {
				if op.Invoke.Op == history.Extend {
					extends++
				}
			}
			require.Equal(t, refused == nil, extends == 1, "%v", h.Events)
		})
	}
}
