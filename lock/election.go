package lock

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
)

// An Election chooses one leader among the candidates of a name. It is made of a
// [FencedMutex], and has its promises: two candidates never lead at the same time as long
// as both heed [Leadership.Context], and each leader's token is greater than that of the
// leader before.
type Election struct{ mutex Mutex } // a fenced one

// Election returns the election of that name, without asking the server. It has nothing
// to do with a [Mutex] of that name.
func (c *Client) Election(name string) *Election {
	return &Election{Mutex{c.objectIn("election", name, kinds.fenced)}}
}

// Name returns the election's name.
func (e *Election) Name() string { return e.mutex.name }

// Campaign waits until the candidate leads, or ctx ends. A server that is away is asked
// again, as [Options.Wait] says. Any other error ends the campaign.
//
// The candidate is what [Election.Leader] returns, and must not be empty. Each call is a
// campaign of its own, also where two have the same candidate. The values of ctx are those
// of [Leadership.Context]; the end of ctx doesn't end a leadership.
//
// The leadership is renewed by the watchdog until it is resigned or lost: see
// [Config.Watchdog], which is also how long the others wait for a leader that died.
func (e *Election) Campaign(ctx context.Context, candidate string) (*Leadership, error) {
	if candidate == "" {
		return nil, fmt.Errorf("campaign in election %q: empty candidate: give it a name", e.Name())
	}
	// An owner of its own, so that the campaign enters no leadership of the same candidate again.
	h, err := e.mutex.acquireOr(ctx, Options{Owner: candidate + campaignMark + rand.Text(), Wait: Forever})
	if err != nil {
		return nil, fmt.Errorf("campaign in election %q: %w", e.Name(), err)
	}
	l := &Leadership{hold: h}
	l.ctx, l.cancel = h.Context(context.WithoutCancel(ctx))
	return l, nil
}

// campaignMark is between a candidate and what tells its campaigns apart.
const campaignMark = "#"

// Leader returns the candidate that leads as the server knows it; "" if no candidate does.
// It may have lost or resigned the leadership by the time that the answer arrives, and a
// server that was the master before a failover may answer with what it knew then.
func (e *Election) Leader(ctx context.Context) (string, error) {
	s, err := e.mutex.State(ctx)
	return s.Owner[:max(strings.LastIndex(s.Owner, campaignMark), 0)], wrap(err, "leader of election %q", e.Name())
}

// A Leadership is an election that was won. It lasts until it is resigned or lost.
type Leadership struct {
	hold   *Hold
	ctx    context.Context //nolint:containedctx // its end is that of the leadership
	cancel context.CancelFunc
}

// Context is for the work of the leader. It ends, with [ErrLost] as its
// [context.Cause], once the candidate may no longer believe that it leads, and as soon as
// [Leadership.Resign] is called.
func (l *Leadership) Context() context.Context { return l.ctx }

// Token is the fencing token, which a resource can check: see package fence.
func (l *Leadership) Token() int64 { return l.hold.Lease().Token }

// Resign gives the leadership to a candidate that campaigns. The errors are those of
// [Hold.Release]: [ErrNotHeld] says that it was over before.
func (l *Leadership) Resign(ctx context.Context) error {
	defer l.cancel()
	return wrap(l.hold.Release(ctx), "resign")
}
