package harness

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/workload"
)

// A session is what a lock without a lease keeps its holds by, until it is lost.
type session struct{}

func (session) Extend(context.Context, lock.Lease, time.Duration) (time.Time, error) {
	return time.Time{}, lock.ErrNotHeld
}
func (session) Release(context.Context, lock.Lease) error { return lock.ErrNotHeld }

// That a hold without a lease is lost stands in the history when it happens, also while
// the script is about another client.
func TestClient_recordsAtOnceThatItLost(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		lease time.Duration
		want  int
	}{
		{"without a lease", 0, 1},
		{"with a lease, which says when the hold ends", time.Hour, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			recorder := history.NewRecorder(&out)
			var granted *lock.Hold
			locker := lock.LockerFunc(func(_ context.Context, name string, o lock.Options) (*lock.Hold, error) {
				l := lock.Lease{Name: name, Owner: o.Owner, Length: tt.lease}
				if tt.lease > 0 {
					l.Expires = time.Now().Add(tt.lease)
				}
				granted = lock.NewHold(l, session{})
				return granted, nil
			})
			c := &Client{
				Client: workload.Client{Name: "a", Locker: locker, Recorder: recorder, Processes: &workload.Processes{}, Careless: true},
				ended:  make(chan struct{}),
			}
			outcome, err := c.Do(t.Context(), workload.Act{Do: workload.DoAsk, Ask: workload.Request{Locks: []string{"orders"}, Lease: tt.lease}}, nil)
			require.NoError(t, err)
			require.Equal(t, history.OK, outcome)
			require.ErrorIs(t, granted.Extend(t.Context(), time.Second), lock.ErrNotHeld) // as its library tells
			if tt.want == 0 {
				close(c.ended)
			}
			c.watching.Wait()
			require.NoError(t, recorder.Close())
			require.Equal(t, tt.want, bytes.Count(out.Bytes(), []byte(`"op":"lost"`)), out.String())
			require.NoError(t, c.AwaitLost(t.Context()))
		})
	}
}
