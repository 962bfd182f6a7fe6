package locktests

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockchaos/lockchaos/lock"
)

// A belief is a grant in which its holder believes, from the moment at which it was
// granted until it asks for the release.
type belief struct {
	hold    *lock.Hold // nil for permits that were taken for good
	owner   string
	permits int
	writes  bool
}

// ends is when the holder stops to believe by itself.
func (b *belief) ends() time.Time {
	if b.hold == nil {
		return time.Now().Add(time.Hour)
	}
	return b.hold.Lease().Expires
}

func (b *belief) isLost() bool {
	if b.hold == nil {
		return false
	}
	select {
	case <-b.hold.Lost():
		return true
	default:
		return false
	}
}

// holds reports whether the holder believes now.
func (b *belief) holds() bool { return time.Now().Before(b.ends()) && !b.isLost() }

// beliefs are those in one lock. All holders are in this process, which has one clock.
type beliefs struct {
	// conflict says which of those that believe at one instant must not.
	conflict func(all []*belief) string

	mu    sync.Mutex
	of    map[*belief]struct{}
	token int64 // the greatest that was granted
}

func newBeliefs(conflict func(all []*belief) string) *beliefs {
	return &beliefs{conflict: conflict, of: map[*belief]struct{}{}}
}

// begin notes that a holder begins to believe, and reports what is wrong then.
// before is the greatest token from before it asked.
func (l *beliefs) begin(b *belief, before int64) string {
	l.mu.Lock()
	l.of[b] = struct{}{}
	wrong := ""
	if b.hold != nil && b.hold.Lease().Token != 0 {
		token := b.hold.Lease().Token
		if token < before {
			wrong = fmt.Sprintf("%s was granted token %d, and %d had been granted before it asked", b.owner, token, before)
		}
		l.token = max(l.token, token)
	}
	l.mu.Unlock()
	if wrong != "" {
		return wrong
	}
	return l.look()
}

// newest is the greatest token so far.
func (l *beliefs) newest() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.token
}

// end notes that a holder is about to release.
func (l *beliefs) end(b *belief) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.of, b)
}

// look compares all that believe at one instant. The end of a lease is read before
// and after that instant, and must be later both times; a hold that is not lost
// afterwards was not lost then.
func (l *beliefs) look() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	ends := map[*belief]time.Time{}
	for b := range l.of {
		ends[b] = b.ends()
	}
	now := time.Now()
	var all []*belief
	for b, end := range ends {
		if now.Before(end) && now.Before(b.ends()) && !b.isLost() {
			all = append(all, b)
		}
	}
	if wrong := l.conflict(all); wrong != "" {
		var who []string
		for _, b := range all {
			text := fmt.Sprintf("%s (%d permits, writes: %t)", b.owner, b.permits, b.writes)
			if b.hold != nil {
				lease := b.hold.Lease()
				text += fmt.Sprintf(" request %s for %v, until %v from now", lease.Request, lease.Length, lease.Expires.Sub(now))
			}
			who = append(who, text)
		}
		slices.Sort(who)
		return wrong + ":\n\t" + strings.Join(who, "\n\t")
	}
	return ""
}

// oneOwner is the rule of exclusive locks, of which an owner may hold several grants.
func oneOwner(all []*belief) string {
	for _, b := range all {
		if b.owner != all[0].owner {
			return "several owners hold an exclusive lock"
		}
	}
	return ""
}

// oneWriter is the rule of read-write locks.
func oneWriter(all []*belief) string {
	for _, writer := range all {
		for _, b := range all {
			if writer.writes && b.owner != writer.owner {
				return "an owner holds a lock beside its writer"
			}
		}
	}
	return ""
}

// atMost is the rule of a semaphore.
func atMost(permits int) func(all []*belief) string {
	return func(all []*belief) string {
		taken := 0
		for _, b := range all {
			taken += b.permits
		}
		if taken > permits {
			return fmt.Sprintf("%d of %d permits are taken", taken, permits)
		}
		return ""
	}
}

// A handle is on what a lock granted.
type handle struct {
	hold    *lock.Hold // nil for permits that were taken for good
	release func(ctx context.Context) error
}
