package harness

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockchaos/lockchaos/internal/traffic"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/topologies"
)

// checkSlowRelease has each request of a release take so much of the lease, or of the life of the
// keys, that the second one comes after its end, or the third one. Of a release that looks at the owner first and deletes
// then, the second request deletes another client's lock; one that does not look at what came of
// its transaction is confirmed although it freed nothing.
func checkSlowRelease(ctx context.Context, k *driverCheck) error {
	if err := k.warm(ctx); err != nil { // so that the server knows the scripts
		return err
	}
	return errors.Join(k.releaseSlowly(ctx, k.name+"-second", 3), k.releaseSlowly(ctx, k.name+"-third", 2))
}

// releaseSlowly has each request take so many fifths.
func (k *driverCheck) releaseSlowly(ctx context.Context, name string, fifths int) error {
	held, err := k.holdSlowly(ctx, name, fifths)
	defer held.mend()
	if err != nil {
		return err
	}
	var released error
	var release sync.WaitGroup
	release.Go(func() { released = k.a.ReleaseAgain(ctx, held.Hold) })
	_, err = k.next(ctx, k.b, name, "zone-b.1")
	freed := time.Since(held.sent)
	release.Wait()
	if err != nil {
		return err
	}
	_, err = ask(ctx, k.b, name, "zone-b.2", checkLong)
	if err == nil {
		return errors.New("the release freed the lock, which a client of another process held by then: compare the owner and delete in one step on the server")
	}
	if wrong := refused(err, "a third client"); wrong != nil {
		return wrong
	}
	if freed >= held.end && held.late() {
		return held.tooLate()
	}
	if p := k.a.Hello().Promises; released == nil && p.ReleaseTells && !p.Quorum && freed >= held.end {
		return unsureError{fmt.Errorf("the release was answered with ok, although the lock was not free before the end of its lease, %v after the request for it: "+
			"look at what came of the transaction, or compare the owner and delete in one step on the server", freed.Round(time.Millisecond))}
	}
	return nil
}

// checkSlowExtend has each request of an extension take so much of the lease that the second one
// comes after its end, or the third one. An extension that looks at the owner first, and does not
// look at what came of the request that prolongs, is then believed although another client has the lock.
func checkSlowExtend(ctx context.Context, k *driverCheck) error {
	return errors.Join(k.extendSlowly(ctx, k.name+"-second", 3), k.extendSlowly(ctx, k.name+"-third", 2))
}

// extendSlowly has each request take so many fifths.
func (k *driverCheck) extendSlowly(ctx context.Context, name string, fifths int) error {
	held, err := k.holdSlowly(ctx, name, fifths)
	defer held.mend()
	if err != nil {
		return err
	}
	asked, longer := time.Now(), 2*k.lease
	var extended error
	var extension sync.WaitGroup
	extension.Go(func() { extended = held.Extend(ctx, longer) })
	_, err = k.next(ctx, k.b, name, "zone-b.1")
	left := time.Until(asked.Add(longer))
	extension.Wait()
	confirmed := extended == nil || errors.Is(extended, lock.ErrLost) // the hold was over by then, and believes no answer
	if err == nil && confirmed && left > 0 {
		return fmt.Errorf("the extension was answered with ok, although a client of another process was granted the lock %v before the end of it: "+
			"compare the owner and prolong in one step on the server, or look at what came of the transaction", left.Round(time.Millisecond))
	}
	if err == nil && extended != nil && held.late() {
		return held.tooLate()
	}
	return err
}

// A slowHold is held over links that delay each request of the first driver by so much that one of
// them arrives after the lock is free, and those before it do not, unless the driver is slow.
type slowHold struct {
	*lock.Hold

	sent time.Time     // when it was asked for
	end  time.Duration // after which the lock is free
	mend func()

	inTime int // how many requests are to arrive before the end
	mu     sync.Mutex
	early  bool // the last of them did, on a link
	missed bool // it did not, on a link
}

// holdSlowly has a client hold a lock over links on which a request takes so many fifths of the time
// for which it is held. The links are to be mended also with an error.
func (k *driverCheck) holdSlowly(ctx context.Context, name string, fifths int) (*slowHold, error) {
	s := &slowHold{inTime: (5 - 1) / fifths, mend: func() {}}
	before, err := k.lives(ctx)
	if err != nil {
		return s, err
	}
	s.sent = time.Now()
	if s.Hold, err = ask(ctx, k.a, name, "zone-a.1", k.lease); err != nil {
		return s, err
	}
	if s.end, err = k.end(ctx, s.sent, before); err != nil {
		return s, err
	}
	if s.end > k.lease*3/2 { // that of a key that is not of the hold, such as a counter; nor does a driver wait for longer
		s.end = k.lease
	}
	mend, err := k.slow(topologies.Upstream, s.end*time.Duration(fifths)/5)
	stops := []func(){mend}
	s.mend = func() {
		for _, stop := range stops {
			stop()
		}
	}
	for _, l := range k.linksOfA() {
		if r, ok := l.(topologies.Interceptor); ok {
			if stop, unread := r.Judge(s.looking()); unread == nil { // else late is never true
				stops = append(stops, stop)
			}
		}
	}
	return s, err
}

// looking notes when the commands of a link arrive. All of them count: a lock that begins with
// others than those that name it is not slow.
func (s *slowHold) looking() func(traffic.Message) traffic.Action {
	arrived := 0
	return func(m traffic.Message) traffic.Action {
		if m.Kind == traffic.Command {
			s.mu.Lock()
			defer s.mu.Unlock()
			if arrived++; arrived == s.inTime {
				inTime := time.Since(s.sent) < s.end
				s.early, s.missed = s.early || inTime, s.missed || !inTime
			}
		}
		return traffic.Action{}
	}
}

// late reports whether the driver sent its requests so late that none arrived as it should have.
func (s *slowHold) late() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.missed && !s.early
}

func (s *slowHold) tooLate() error {
	return fmt.Errorf("request %d reached the server after the end of the lease, %v after the request for the lock: %w", s.inTime, s.end.Round(time.Millisecond), errSlow)
}
