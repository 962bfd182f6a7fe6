package harness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockchaos/lockchaos/driver"
	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/topologies"
)

const (
	// checkLease is a lease that is let run out. A driver that cuts it to whole seconds
	// frees the lock 0.9 s early, which is seen on a busy machine, too. checkLong is one
	// that is not let run out.
	checkLease, checkLong = 2900 * time.Millisecond, 5 * time.Minute
	// checkLimit bounds every wait for something that must happen.
	checkLimit = time.Minute
	// checkTimeout is for how long a driver should wait for a server.
	checkTimeout = 3 * time.Second
	// checkTries is how often a check is made that comes to nothing, each time with twice
	// the time for leases and servers: a driver may start a program for each request, on a
	// machine that has others to do.
	checkTries = 3
	// checkClients ask at once in the check that one of them is granted the lock.
	checkClients = 16
)

// errSlow says that a lease was over before the driver had answered.
var errSlow = errors.New("the answer was too slow for the lease")

// An unsureError is an observation that a slow driver explains as well as a wrong one.
type unsureError struct{ error }

// A DriverCheck is one sentence about what a driver must do.
type DriverCheck struct {
	Name string
	// Needs says what a driver promises that is checked; nil: every driver is.
	Needs func(driver.Promises) bool
	// change is what a user has to change where the check fails; empty where what went wrong says so itself.
	change string
	run    func(context.Context, *driverCheck) error
	// redis says that it looks at the keys and the commands of Redis servers, and can't be made on another store.
	redis bool
	// links says that no test of a lock in Go looks at this by itself; most such checks break
	// links, or look at what passes them. See [CheckLock].
	links bool
}

// A driverCheck is what one check works with: two drivers of one program, each
// with a zone of its own, on a server whose links can be cut.
type driverCheck struct {
	a, b  checkedLock
	name  string        // of a lock that no other check uses
	lease time.Duration // of a lock that is let run out
	// For how long a driver is to wait for a server.
	timeout time.Duration
	d       topologies.Deployment
}

// A checkedLock is a driver, or a lock in Go.
type checkedLock interface {
	lock.Locker
	// ReleaseAgain asks for a release whatever is known of the hold.
	ReleaseAgain(ctx context.Context, h *lock.Hold) error
	Hello() driver.Hello
	// Err says how the protocol was broken.
	Err() error
}

// A checkedStart starts what is checked for the clients of a zone.
type checkedStart func(d topologies.Deployment, zone string, timeout time.Duration, log io.Writer) (l checkedLock, end func(), err error)

// DriverChecks lists the checks of a driver, in order.
func DriverChecks() []DriverCheck {
	return []DriverCheck{
		{Name: "a free lock is granted, and given back", run: checkGrant},
		{
			Name: "a grant asks the servers", Needs: func(p driver.Promises) bool { return !p.HandsOver && !p.Reentrant }, run: checkAsks, links: true,
			change: "ask the servers for each grant; a process that hands a lock over within itself promises hands_over",
		},
		{
			Name: "a grant needs a majority of the servers", Needs: func(p driver.Promises) bool { return p.Quorum }, run: checkMajority, links: true,
			change: "grant only what more than half of the servers have confirmed",
		},
		{
			Name: "an owner is granted again what it holds, and gives it back as often", Needs: func(p driver.Promises) bool { return p.Reentrant }, run: checkReentry,
			change: "count the grants of an owner, and free the lock with the last release; or do not promise reentrant",
		},
		{
			Name: "a lock that is held is refused to another process", run: checkRefusal,
			change: "write the key only where it is not there (SET NX), with one key for a name in all processes",
		},
		{
			Name: "of many clients that ask at once, one is granted the lock", run: checkMany,
			change: "look and write in one step on the server (SET NX, or a script), and ask the master",
		},
		{
			Name: "a lease that runs out frees the lock, and not before", run: checkExpiry,
			change: "give the server the lease that was asked for, in milliseconds (PX, not EX of whole seconds)",
		},
		{Name: "a grant is believed for about as long as its lease", run: checkValidity},
		{Name: "a grant over slow links is believed for no longer than the servers keep it", run: checkSlowGrant, links: true},
		{Name: "a grant whose first reply is lost is believed for no longer than the servers keep it", run: checkRetriedGrant, links: true},
		{
			Name: "a hold without a lease is kept", Needs: func(p driver.Promises) bool { return p.Watchdog }, run: checkWatchdog, links: true,
			change: "extend the key until the release, at least three times a lease; or do not promise watchdog",
		},
		{
			Name: "an extended hold outlives its first lease", Needs: func(p driver.Promises) bool { return p.Extend }, run: checkExtend,
			change: "prolong the key on the server by the lease of the extension; or do not promise extend",
		},
		{Name: "an extended hold ends with the lease of its extension", Needs: func(p driver.Promises) bool { return p.Extend }, run: checkExtendEnds, links: true},
		{
			Name: "a lock that was released is left alone", run: checkLeftAlone, links: true,
			change: "end the watchdog before the key is deleted",
		},
		{
			Name: "a second release leaves the next holder alone", run: checkReleaseTwice,
			change: "compare the owner and delete in one step on the server, with a token that each grant has for itself",
		},
		{
			Name: "a late release leaves the next holder alone", run: checkLateRelease,
			change: "compare the owner and delete in one step on the server, with a token that each grant has for itself",
		},
		{Name: "a release whose requests are slow leaves the next holder alone", run: checkSlowRelease, links: true, redis: true},
		{Name: "a grant that is cut off half way is over with its lease", run: checkHalfGrant, links: true, redis: true},
		{
			Name: "waiters are granted the lock in the order of their requests", Needs: func(p driver.Promises) bool { return p.Fair }, run: checkFair, links: true,
			change: "grant in the order of the queue; or do not promise fair",
		},
		{
			Name: "a late extension is refused, and leaves the next holder alone", Needs: func(p driver.Promises) bool { return p.Extend }, run: checkLateExtend,
			change: "compare the owner and prolong in one step on the server, and answer fail where the key is gone",
		},
		{Name: "an extension whose requests are slow is believed only while the lock is held", Needs: func(p driver.Promises) bool { return p.Extend }, run: checkSlowExtend, links: true, redis: true},
		{
			Name: "tokens grow from grant to grant", Needs: func(p driver.Promises) bool { return p.Token }, run: checkTokens,
			change: "take the token from one counter on the servers, in the step that grants (INCR in the script); or do not promise token",
		},
		{
			Name: "nothing is granted while the links are cut", run: checkCut, links: true,
			change: "answer ok only once the servers have confirmed the grant",
		},
		{Name: "a request whose reply is lost is unknown", run: checkLostReply, links: true},
		{Name: "a request that is answered with refused leaves nothing behind", run: checkTrueRefusal, links: true, redis: true},
		{Name: "a late reply is not taken for the answer to a later request", run: checkLateReply, links: true},
		{Name: "a release whose reply is lost is unknown", run: checkLostRelease, links: true},
		{Name: "a lock stays held where the servers forget scripts and close connections", run: checkForgetful, links: true, redis: true},
		{Name: "an unknown operation is answered with unsupported", run: checkUnsupported},
		{Name: "the driver exits at the end of its input", run: checkEnd},
	}
}

// CheckTopology is the topology on which a driver is checked unless another is asked
// for: one server, several independent ones for a lock that is on a majority, or the first of another store.
func CheckTopology(l LockSpec) string {
	switch {
	case !l.onRedis():
		return topologies.NamesOf(l.Store)[0]
	case l.UsesIndependent():
		return topologies.Independent
	default:
		return topologies.Single
	}
}

// Suits reports whether the check can be made on the servers of a topology.
func (c DriverCheck) Suits(topology string) bool {
	return !c.redis || topologies.StoreOf(topology) == topologies.StoreRedis
}

// CheckDriver runs checks of a driver, of [DriverChecks], on a topology that backend starts,
// and tells what came of each: nil, or what was wrong; skipped is true for what the driver
// does not promise. The error is of what kept it from checking, such as a driver that does
// not start.
func CheckDriver(ctx context.Context, backend topologies.Backend, command, topology string, checks []DriverCheck, log io.Writer, tell func(c DriverCheck, skipped bool, wrong error)) error {
	if _, err := Program(command); err != nil { //nolint:contextcheck // it bounds itself
		return err
	}
	t, err := topologies.New(topology, topologies.Options{})
	if err != nil {
		return err
	}
	start := func(d topologies.Deployment, zone string, timeout time.Duration, log io.Writer) (checkedLock, func(), error) { //nolint:contextcheck // the driver outlives the start
		return startForCheck(d, command, zone, timeout, log)
	}
	var told order
	check := func(d topologies.Deployment, i int) error {
		var logged sharedLog
		skipped, wrong := repeatDriverCheck(ctx, d, start, checks[i], checkLease, fmt.Sprintf("check-%d", i+1), &logged)
		told.at(i, func() {
			_, _ = log.Write(logged.taken())
			tell(checks[i], skipped, wrong)
		})
		return wrong
	}
	first := 0 // of those that are made side by side
	if len(checks) > 1 && checks[0].Name == DriverChecks()[0].Name {
		var wrong error
		err := Each(ctx, backend, t, 1, 1, func(d topologies.Deployment, i int) { wrong = check(d, i) })
		if err != nil {
			return err
		}
		if wrong != nil {
			return fmt.Errorf("the other %d checks were not made: %w", len(checks)-1, ErrNoGrant)
		}
		first = 1
	}
	return Each(ctx, backend, t, driverLanes, len(checks)-first, func(d topologies.Deployment, i int) { _ = check(d, first+i) })
}

// A sharedLog keeps what the two drivers of a check log.
type sharedLog struct {
	mu   sync.Mutex
	text []byte
}

func (l *sharedLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, b...)
	return len(b), nil
}

func (l *sharedLog) taken() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text
}

// ErrNoGrant is of a driver that does not grant a free lock, and take it back, where nothing is in the way: no other
// check of it says anything.
var ErrNoGrant = errors.New("without a grant that is given back they show nothing")

// repeatDriverCheck makes a check until it comes to something. An outcome that the driver
// does not know, an answer behind the end of its lease, and a server that does not answer in
// time, tell nothing but that the driver, or the machine, was slow. What is wrong is told at once.
func repeatDriverCheck(ctx context.Context, d topologies.Deployment, start checkedStart, c DriverCheck, lease time.Duration, name string, log io.Writer) (skipped bool, wrong error) {
	for try := range checkTries {
		begin := time.Now()
		skipped, wrong = runDriverCheck(ctx, d, start, c, lease<<try, fmt.Sprintf("%s.%d", name, try+1), checkTimeout<<try, log)
		_, unsure := errors.AsType[unsureError](wrong)
		open := unsure || errors.Is(wrong, driver.ErrUnknown) || errors.Is(wrong, errOpen) || errors.Is(wrong, errSlow) || errors.Is(wrong, os.ErrDeadlineExceeded)
		if wrong != nil && !open && ctx.Err() == nil && c.change != "" && !errors.Is(wrong, driver.ErrBroken) && !errors.Is(wrong, context.DeadlineExceeded) {
			wrong = fmt.Errorf("%w\nto change: %s", wrong, c.change)
		}
		if !open || time.Since(begin) > checkLimit || ctx.Err() != nil {
			return skipped, wrong
		}
	}
	return false, fmt.Errorf("in each of %d tries, the last with a lease of %v and servers awaited for %v: %w", checkTries, lease<<(checkTries-1), checkTimeout<<(checkTries-1), wrong)
}

// runDriverCheck makes a check once, with that lease and wait for servers.
func runDriverCheck(ctx context.Context, d topologies.Deployment, start checkedStart, c DriverCheck, lease time.Duration, name string, timeout time.Duration, log io.Writer) (skipped bool, wrong error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 3*checkLimit, errors.New("the check took too long"))
	defer cancel()
	k := &driverCheck{d: d, name: name, lease: lease, timeout: timeout}
	zones := d.Topology().Of(topologies.Zone)
	for i, at := range []*checkedLock{&k.a, &k.b} {
		one, end, err := start(d, zones[i%len(zones)], timeout, log)
		if err != nil {
			return false, err
		}
		defer end()
		*at = one
	}
	if c.Needs != nil && !c.Needs(k.a.Hello().Promises) {
		return true, nil
	}
	if err := c.run(ctx, k); err != nil {
		return false, err
	}
	return false, errors.Join(k.a.Err(), k.b.Err())
}

func startForCheck(d topologies.Deployment, command, zone string, timeout time.Duration, log io.Writer) (checkedLock, func(), error) {
	at := PlaceIn(d, zone)
	end, refused := func() {}, error(nil)
	one, err := driver.Start(context.Background(), driver.Config{
		Command: shell(command), Name: command, Zone: zone, Topology: at.Topology, Master: at.Master, Servers: at.Servers, Timeout: timeout, Log: log,
		Started: func(group int) { end, refused = at.Adopt(group) },
	})
	if err != nil {
		return nil, nil, err
	}
	if refused != nil {
		return nil, nil, errors.Join(refused, one.Close())
	}
	return one, func() {
		_ = one.Close() // it is killed if it does not end
		end()
	}, nil
}

// owner is that of a client's request: the first one, unless it says which.
func owner(client string) string {
	if strings.Contains(client, "#") {
		return client
	}
	return client + "#1"
}

func ask(ctx context.Context, d checkedLock, name, client string, lease time.Duration) (*lock.Hold, error) {
	return d.Acquire(ctx, name, lock.Options{Owner: owner(client), Lease: lease})
}

// refused says what was wrong with an answer that must be a refusal.
func refused(err error, whose string) error {
	switch {
	case err == nil:
		return fmt.Errorf("%s was granted the lock as well", whose)
	case !errors.Is(err, lock.ErrNotAcquired):
		return fmt.Errorf("the answer to %s must be fail, and is: %w", whose, err)
	}
	return nil
}

func checkGrant(ctx context.Context, k *driverCheck) error {
	for range 3 {
		limited, cancel := context.WithTimeoutCause(ctx, max(answerLimit, 2*k.timeout), errSilent)
		h, err := ask(limited, k.a, k.name, "zone-a.1", checkLong)
		cause := context.Cause(limited)
		cancel()
		if err != nil && errors.Is(cause, errSilent) {
			return k.silent(err)
		}
		if err != nil {
			return err
		}
		if err := h.Release(ctx); err != nil {
			return err
		}
	}
	return nil
}

// checkAsks has a client of the same process ask for a lock that is held, and again after
// its release.
func checkAsks(ctx context.Context, k *driverCheck) error {
	h, err := ask(ctx, k.a, k.name, "zone-a.1", checkLong)
	if err != nil {
		return err
	}
	_, err = ask(ctx, k.a, k.name, "zone-a.2", checkLong)
	if wrong := refused(err, "another client of the process"); wrong != nil {
		return wrong
	}
	if err := h.Release(ctx); err != nil {
		return err
	}
	before, ok := requests(k.d)
	if _, err = ask(ctx, k.a, k.name, "zone-a.2", checkLong); err != nil {
		return err
	}
	if after, _ := requests(k.d); ok && more(after, before) == 0 {
		return fmt.Errorf("no request reached the servers over the links: %s answers from memory, or reaches the servers past the proxies. "+
			"If the library hands a lock over within its process, %s", k.who(), k.word(`promise "hands_over"`, "set GrantsLocally"))
	}
	return nil
}

func checkRefusal(ctx context.Context, k *driverCheck) error {
	h, err := ask(ctx, k.a, k.name, "zone-a.1", checkLong)
	if err != nil {
		return err
	}
	for _, lease := range []time.Duration{checkLong, k.lease} { // one that ends before that of the holder is no better
		_, err = ask(ctx, k.b, k.name, "zone-b.1", lease)
		if wrong := refused(err, "the client of the other process"); wrong != nil {
			return wrong
		}
	}
	if err := h.Release(ctx); err != nil {
		return err
	}
	_, err = ask(ctx, k.b, k.name, "zone-b.1", checkLong)
	return err
}

func checkReentry(ctx context.Context, k *driverCheck) error {
	var holds []*lock.Hold
	for range 2 {
		h, err := ask(ctx, k.a, k.name, "zone-a.1", checkLong)
		if err != nil {
			return err
		}
		holds = append(holds, h)
	}
	if err := holds[1].Release(ctx); err != nil {
		return err
	}
	_, err := ask(ctx, k.b, k.name, "zone-b.1", checkLong)
	if wrong := refused(err, "the client of the other process"); wrong != nil {
		return wrong
	}
	if err := holds[0].Release(ctx); err != nil {
		return err
	}
	_, err = ask(ctx, k.b, k.name, "zone-b.1", checkLong)
	return err
}

// checkMajority has a majority of the servers be out of reach, and then a minority.
func checkMajority(ctx context.Context, k *driverCheck) error {
	if err := k.warm(ctx); err != nil {
		return err
	}
	servers := k.d.Topology().Of(topologies.Redis)
	if k.d.Topology().Name != topologies.Independent {
		return nil // one of them has the lock
	}
	minority := (len(servers) - 1) / 2
	mend := k.cut(servers[minority:]...)
	_, err := ask(ctx, k.a, k.name, "zone-a.1", checkLong)
	mend()
	if err == nil {
		return fmt.Errorf("the lock was granted with %d of %d servers", minority, len(servers))
	}
	mend = k.cut(servers[len(servers)-minority:]...)
	defer mend()
	if err := k.await(ctx, fmt.Sprintf("the lock is not granted with %d of %d servers", len(servers)-minority, len(servers))); err != nil {
		return err
	}
	return nil
}

// cut cuts the links of clients to these servers; empty: to all. What it returns mends them.
func (k *driverCheck) cut(servers ...string) (mend func()) {
	var mends []func()
	for _, l := range k.d.Topology().Links {
		if l.Kind == topologies.Client && (len(servers) == 0 || slices.Contains(servers, l.To)) {
			mends = append(mends, k.d.Proxy(l.Name()).Cut())
		}
	}
	return func() {
		for _, mend := range mends {
			mend()
		}
	}
}

// await has the driver grant a lock and take it back, as soon as it can.
func (k *driverCheck) await(ctx context.Context, why string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, checkLimit, errors.New(why))
	defer cancel()
	return await.Until(ctx, func() error { return k.warm(ctx) })
}

// checkMany has fewer ask at once where none was granted the lock: their votes may be split, and some
// locks refuse all that meet each other.
func checkMany(ctx context.Context, k *driverCheck) error {
	begin := time.Now()
	for n := checkClients; ; n = max(n/2, 1) {
		winners, err := k.race(ctx, n)
		if winners != 0 || err != nil {
			return err
		}
		if time.Since(begin) > checkLimit {
			return fmt.Errorf("none of %d clients was granted the lock, nor one that asked alone, in %v: give back what a request left that was refused, such as votes", checkClients, checkLimit)
		}
		if err := pause(ctx, k.lease/100); err != nil {
			return err
		}
	}
}

// race has n clients ask at once, and tells how many were granted the lock.
func (k *driverCheck) race(ctx context.Context, n int) (winners int, err error) {
	var mu sync.Mutex
	var wrong []error
	var all sync.WaitGroup
	for i := range n {
		d, client := k.a, fmt.Sprintf("zone-a.%d", i)
		if i%2 == 1 {
			d, client = k.b, fmt.Sprintf("zone-b.%d", i)
		}
		all.Go(func() {
			_, err := ask(ctx, d, k.name, client, checkLong)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				winners++
			case !errors.Is(err, lock.ErrNotAcquired):
				wrong = append(wrong, err)
			}
		})
	}
	all.Wait()
	if winners > 1 {
		return winners, errors.Join(append([]error{fmt.Errorf("%d of %d clients were granted the lock", winners, n)}, wrong...)...)
	}
	return winners, errors.Join(wrong...)
}

// ErrNotFree is of a lock that another client was not granted, long after the end of a lease.
var ErrNotFree = errors.New("the lock is not free yet")

// next awaits that the next client is granted the lock.
func (k *driverCheck) next(ctx context.Context, d checkedLock, name, client string) (h *lock.Hold, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, k.patience(), ErrNotFree)
	defer cancel()
	err = await.Until(ctx, func() error {
		h, err = ask(ctx, d, name, client, checkLong)
		return err
	})
	return h, err
}

func checkExpiry(ctx context.Context, k *driverCheck) error {
	sent := time.Now()
	if _, err := ask(ctx, k.a, k.name, "zone-a.1", k.lease); err != nil {
		return err
	}
	if _, err := k.next(ctx, k.b, k.name, "zone-b.1"); err != nil {
		return err
	}
	if took := time.Since(sent); took < k.lease {
		return fmt.Errorf("the lock was free %v after a request for a lease of %v", took.Round(time.Millisecond), k.lease)
	}
	return nil
}

// checkValidity finds a time in another unit, or one that is counted from elsewhere.
func checkValidity(ctx context.Context, k *driverCheck) error {
	before := time.Now()
	h, err := ask(ctx, k.a, k.name, "zone-a.1", checkLong)
	if err != nil {
		return err
	}
	after, expires := time.Now(), h.Lease().Expires
	if expires.Before(before.Add(checkLong/2)) || expires.After(after.Add(checkLong+time.Second)) { // some round to seconds
		return fmt.Errorf("a grant with a lease of %v may be believed for %v: give \"valid_ms\" in milliseconds from the request", checkLong, expires.Sub(before).Round(time.Millisecond))
	}
	return nil
}

// checkSlowGrant finds a lease that is counted from the reply, or whose end does not heed how
// long it took to ask all servers.
func checkSlowGrant(ctx context.Context, k *driverCheck) error {
	if err := k.warm(ctx); err != nil {
		return err
	}
	for try := range 3 { // the next client may ask too late to see what a grant of a short lease was wrong by
		if err := k.slowGrant(ctx, fmt.Sprintf("%s-%d", k.name, try+1)); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (k *driverCheck) slowGrant(ctx context.Context, prefix string) error {
	for i, part := range []time.Duration{10, 30, 90} { // some wait for a server only for a small part of the lease
		name := fmt.Sprintf("%s-%d", prefix, i+1)
		h, err := k.askSlowly(ctx, name, k.lease/part)
		if err != nil {
			continue // what is not granted is not believed
		}
		_, err = k.next(ctx, k.b, name, "zone-b.1")
		if left := time.Until(h.Lease().Expires); err == nil && left > 0 {
			return fmt.Errorf("a client of another process was granted the lock %v before the end of the grant: count the lease from before the first request", left.Round(time.Millisecond))
		}
		return err
	}
	return nil
}

// askSlowly asks for a lock while the replies take that long.
func (k *driverCheck) askSlowly(ctx context.Context, name string, each time.Duration) (*lock.Hold, error) {
	mend, err := k.slow(topologies.Downstream, each)
	defer mend()
	if err != nil {
		return nil, err
	}
	return ask(ctx, k.a, name, "zone-a.1", k.lease)
}

// checkRetriedGrant closes the connections while the reply to a grant is under way. A driver that
// asks again finds its own key, whose lease began with the first request.
func checkRetriedGrant(ctx context.Context, k *driverCheck) error {
	if err := k.warm(ctx); err != nil {
		return err
	}
	mend, err := k.holdReplies()
	defer mend()
	if err != nil {
		return err
	}
	var h *lock.Hold
	var request sync.WaitGroup
	request.Go(func() { h, err = ask(ctx, k.a, k.name, "zone-a.1", k.lease) })
	if wait := pause(ctx, k.lease/3); wait != nil { // so that the server has granted it, a while ago
		return wait
	}
	for _, l := range k.linksOfA() {
		l.Reset()
	}
	mend()
	request.Wait()
	if err != nil {
		return nil // it does not ask again, or does not know: see checkLostReply
	}
	_, err = k.next(ctx, k.b, k.name, "zone-b.1")
	if left := time.Until(h.Lease().Expires); err == nil && left > 0 {
		return fmt.Errorf("a client of another process was granted the lock %v before the end of the grant, which had been asked for twice since the first reply was lost: "+
			"count the lease from before the first request", left.Round(time.Millisecond))
	}
	return err
}

// checkWatchdog has a hold last that has no lease, for longer than its keys would last
// without a watchdog.
func checkWatchdog(ctx context.Context, k *driverCheck) error {
	before, err := k.lives(ctx)
	if err != nil {
		return err
	}
	h, err := ask(ctx, k.a, k.name, "zone-a.1", 0)
	if err != nil {
		return err
	}
	after, err := k.lives(ctx)
	if err != nil {
		return err
	}
	wait := k.lease
	for key, left := range after {
		if _, old := before[key]; !old {
			wait = max(wait, min(left+time.Second, checkLimit))
		}
	}
	if err := pause(ctx, wait); err != nil {
		return err
	}
	_, err = ask(ctx, k.b, k.name, "zone-b.1", checkLong)
	return errors.Join(refused(err, "the client of the other process"), h.Release(ctx))
}

// lives are the keys on all servers, with the time that each has left; negative: no end.
func (k *driverCheck) lives(ctx context.Context) (map[string]time.Duration, error) {
	left := map[string]time.Duration{}
	for _, server := range k.d.Topology().Of(topologies.Redis) {
		rdb := k.d.Server(server).Observer()
		for keys := rdb.Scan(ctx, 0, "*", 0).Iterator(); keys.Next(ctx); {
			life, err := rdb.PTTL(ctx, keys.Val()).Result()
			if err != nil {
				return nil, err
			}
			left[server+" "+keys.Val()] = life
		}
	}
	return left, ctx.Err()
}

// checkForgetful finds a connection that is not the same when it is opened again, and a script
// that the server does not know any more and whose failure is taken for success. A restart of
// the server does both.
func checkForgetful(ctx context.Context, k *driverCheck) error {
	for range 2 { // the second time after a release, which has its script loaded as well
		h, err := ask(ctx, k.a, k.name, "zone-a.1", checkLong)
		if err != nil {
			return err
		}
		if err := k.forget(ctx); err != nil {
			return err
		}
		second, err := k.answer(ctx, "zone-a.2")
		if err == nil {
			_ = second.Release(ctx)
			return errors.New("another client was granted the lock after the connections had been closed: set up each connection as the first one was (database, user)")
		}
		if !errors.Is(err, lock.ErrNotAcquired) {
			return k.unrecovered(err)
		}
		if lost(h) {
			return nil // it gave the hold up: what comes now is no release of it
		}
		// The first release may meet a connection that is closed, and its outcome is then open.
		released := h.Release(ctx)
		if errors.Is(released, lock.ErrNotHeld) {
			return errors.New("the release was answered with fail, although the lock was held")
		}
		next, err := k.answer(ctx, "zone-a.2")
		switch {
		case errors.Is(err, lock.ErrNotAcquired) && released == nil:
			return errors.New("the release was answered with ok, and the lock was still held: when the server answers NOSCRIPT, nothing was done; send it the script")
		case errors.Is(err, lock.ErrNotAcquired):
			return nil // as it may be after a release whose outcome is open
		case err != nil:
			return k.unrecovered(err)
		}
		if err := next.Release(ctx); err != nil {
			return nil //nolint:nilerr // it met another connection that was closed: its outcome is open
		}
	}
	return nil
}

// unrecovered says that what is checked gave no certain answer after the connections had been closed.
func (k *driverCheck) unrecovered(err error) error {
	return fmt.Errorf("%s gave no certain answer for %v after the servers had closed its connections and forgotten its scripts: "+
		"open a new connection, and send the script again when the server answers NOSCRIPT: %v", k.who(), k.patience(), err) // not wrapped: ErrUnknown would have the check made again, and again be told
}

// forget has all servers forget their scripts and close the connections of all clients.
func (k *driverCheck) forget(ctx context.Context) error {
	for _, server := range k.d.Topology().Of(topologies.Redis) {
		rdb := k.d.Server(server).Observer()
		err := errors.Join(rdb.ScriptFlush(ctx).Err(), rdb.ClientKillByFilter(ctx, "TYPE", "normal", "SKIPME", "yes").Err())
		if err != nil {
			return err
		}
	}
	return nil
}

// patience is for how long a lock that must be free is asked for, and a certain answer awaited:
// about a minute for a driver.
func (k *driverCheck) patience() time.Duration { return 20 * k.lease }

// answer asks for the lock until the answer is known, for a while.
func (k *driverCheck) answer(ctx context.Context, client string) (h *lock.Hold, err error) {
	ctx, cancel := context.WithTimeout(ctx, k.patience())
	defer cancel()
	_ = await.Until(ctx, func() error {
		if h, err = ask(ctx, k.a, k.name, client, checkLong); errors.Is(err, lock.ErrNotAcquired) {
			return nil
		}
		return err
	})
	return h, err
}

// lost reports whether a client was told that it lost a hold.
func lost(h *lock.Hold) bool {
	select {
	case <-h.Lost():
		return true
	default:
		return false
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func checkExtend(ctx context.Context, k *driverCheck) error {
	asked := time.Now()
	h, err := ask(ctx, k.a, k.name, "zone-a.1", k.lease)
	if err != nil {
		return err
	}
	first := time.Now().Add(k.lease)
	if err := h.Extend(ctx, checkLong); err != nil {
		if time.Since(asked) > k.lease {
			return errors.Join(errSlow, err)
		}
		return err
	}
	if err := pause(ctx, time.Until(first)); err != nil {
		return err
	}
	_, err = ask(ctx, k.b, k.name, "zone-b.1", checkLong)
	if wrong := refused(err, "the client of the other process"); wrong != nil {
		return wrong
	}
	if lost(h) {
		return unsureError{fmt.Errorf("%s said that a hold is lost that was extended for %v: an extension sets the end of the hold anew", k.who(), checkLong)}
	}
	return nil
}

// checkExtendEnds finds an extension that the server was told in another unit.
func checkExtendEnds(ctx context.Context, k *driverCheck) error {
	h, err := ask(ctx, k.a, k.name, "zone-a.1", k.lease)
	if err != nil {
		return err
	}
	asked := time.Now()
	if err := h.Extend(ctx, k.lease); err != nil {
		if k.spent(h) {
			return errors.Join(errSlow, err)
		}
		return err
	}
	limit := 4 * k.lease // some extend from the end of the lease before
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if _, err := k.next(limited, k.b, k.name, "zone-b.1"); err != nil && ctx.Err() == nil {
		return unsureError{fmt.Errorf("the client of the other process was refused for %v after an extension for %v: "+
			"give the server the lease in its own unit (PEXPIRE: milliseconds, EXPIRE: seconds)", limit, k.lease)}
	}
	if took := time.Since(asked); took < k.lease && !k.spent(h) && ctx.Err() == nil {
		return fmt.Errorf("the lock was free %v after a request for an extension for %v", took.Round(time.Millisecond), k.lease)
	}
	return ctx.Err()
}

// checkLeftAlone finds what goes on after a release, such as a watchdog that nothing stops.
func checkLeftAlone(ctx context.Context, k *driverCheck) error {
	h, err := ask(ctx, k.a, k.name, "zone-a.1", k.lease)
	if err != nil {
		return err
	}
	if err := h.Release(ctx); err != nil {
		if k.spent(h) {
			return errors.Join(errSlow, err)
		}
		return err
	}
	next, err := ask(ctx, k.b, k.name, "zone-b.1", checkLong)
	if err != nil {
		return err
	}
	before, err := k.lives(ctx)
	if err == nil {
		err = pause(ctx, k.lease) // a watchdog acts several times in a lease
	}
	if err != nil {
		return err
	}
	after, err := k.lives(ctx)
	if err != nil {
		return err
	}
	for key, left := range before {
		if now, there := after[key]; there && left > checkLong/2 && now > 0 && now < checkLong/2 {
			return fmt.Errorf("the key %s of the next holder had %v left, and %v after a pause of %v: something goes on after the release", key, left, now, k.lease)
		}
	}
	_, err = ask(ctx, k.a, k.name, "zone-a.2", checkLong)
	if wrong := refused(err, "a third client"); wrong != nil {
		return wrong
	}
	if err := next.Release(ctx); err != nil {
		return fmt.Errorf("the release of the next holder, whose lease was %v, failed after a pause of %v: something goes on after the first release: %w", checkLong, k.lease, err)
	}
	return nil
}

// spent reports whether the lease of a hold is over.
func (k *driverCheck) spent(h *lock.Hold) bool {
	expires := h.Lease().Expires
	return !expires.IsZero() && time.Now().After(expires)
}

func checkReleaseTwice(ctx context.Context, k *driverCheck) error {
	h, err := ask(ctx, k.a, k.name, "zone-a.1", checkLong)
	if err != nil {
		return err
	}
	if err := h.Release(ctx); err != nil {
		return err
	}
	next, err := ask(ctx, k.b, k.name, "zone-b.1", checkLong)
	if err != nil {
		return err
	}
	if err := k.a.ReleaseAgain(ctx, h); err == nil && k.a.Hello().Promises.ReleaseTells {
		return errors.New("the second release was answered with ok")
	}
	_, err = ask(ctx, k.b, k.name, "zone-b.2", checkLong)
	if err == nil {
		return errors.New("the second release freed the lock, which a client of another process held")
	}
	return errors.Join(refused(err, "a third client"), next.Release(ctx))
}

func checkLateRelease(ctx context.Context, k *driverCheck) error {
	return k.outlived(ctx, func(late, _ *lock.Hold, name, next string) error {
		// A driver that has told that the hold is lost is asked all the same.
		err := k.a.ReleaseAgain(ctx, late)
		if err == nil && k.a.Hello().Promises.ReleaseTells {
			return fmt.Errorf("the late release was answered with ok, while %s held the lock", next)
		}
		_, err = ask(ctx, k.a, name, "zone-a.3", checkLong)
		if err == nil {
			return fmt.Errorf("the late release freed the lock, which %s held", next)
		}
		return refused(err, "a third client")
	})
}

// end is for how long a lock that was asked for with a lease is held if it is not released: until
// the last of its keys ends, which may outlive the lease. before are the keys from before the request.
func (k *driverCheck) end(ctx context.Context, sent time.Time, before map[string]time.Duration) (time.Duration, error) {
	end, passed := k.lease, time.Since(sent)
	after, err := k.lives(ctx)
	for key, left := range after {
		if left > before[key] {
			end = max(end, passed+left)
		}
	}
	return end, err
}

// slow delays each request of the first driver, or each reply to it. What it returns mends the links, also with
// an error.
func (k *driverCheck) slow(way topologies.Stream, by time.Duration) (mend func(), err error) {
	var mends []func()
	mend = func() {
		for _, mend := range mends {
			mend()
		}
	}
	for _, l := range k.linksOfA() {
		one, err := l.Delay(way, by, 0)
		if err != nil {
			return mend, err
		}
		mends = append(mends, one)
	}
	return mend, nil
}

// linksOfA are those of the first driver.
func (k *driverCheck) linksOfA() (links []topologies.Proxy) {
	zone := k.d.Topology().Of(topologies.Zone)[0]
	for _, l := range k.d.Topology().Links {
		if l.Kind == topologies.Client && l.From == zone {
			links = append(links, k.d.Proxy(l.Name()))
		}
	}
	return links
}

// checkHalfGrant has the first request of a grant reach its server, and cuts the links before
// a second one does. Whatever the first left there must end with the lease.
func checkHalfGrant(ctx context.Context, k *driverCheck) error {
	if err := k.warm(ctx); err != nil {
		return err
	}
	before, err := k.lives(ctx)
	if err != nil {
		return err
	}
	mend, err := k.slow(topologies.Upstream, k.lease*3/5)
	var grant sync.WaitGroup
	defer grant.Wait()
	defer mend() // and then the request ends
	if err != nil {
		return err
	}
	grant.Go(func() { _, _ = ask(ctx, k.a, k.name, "zone-a.1", k.lease) }) // its outcome is open
	if err := k.left(ctx, before); err != nil {
		return err
	}
	for _, l := range k.linksOfA() {
		defer l.Cut()()
	}
	limit := 4 * k.lease
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if _, err := k.next(limited, k.b, k.name, "zone-b.1"); err != nil && ctx.Err() == nil {
		return unsureError{fmt.Errorf("the client of the other process was refused for %v, for a lease of %v: "+
			"acquire the lock and set its lease in one step on the server", limit, k.lease)}
	}
	return ctx.Err()
}

// left awaits that a request leaves a key on a server, for two leases: some begin with what leaves none.
func (k *driverCheck) left(ctx context.Context, before map[string]time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, 2*k.lease)
	defer cancel()
	_ = await.Until(limited, func() error {
		now, err := k.lives(limited)
		for key := range now {
			if _, old := before[key]; !old {
				return nil
			}
		}
		return cmp.Or(err, errors.New("there is no new key"))
	})
	return ctx.Err()
}

// checkFair has clients of both processes wait, one after the other, and releases the lock.
func checkFair(ctx context.Context, k *driverCheck) error {
	promises, room := k.a.Hello().Promises, max(k.a.Hello().Parallel, 1)
	if !promises.Wait {
		return errors.New(`it promises "fair" without "wait": a request that does not wait has no place in an order`)
	}
	hold, err := ask(ctx, k.a, k.name, "zone-a.1", checkLong)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var order []int
	var wrong []error
	var waiters sync.WaitGroup
	for i := range fairWaiters {
		d, client := k.b, fmt.Sprintf("zone-b.%d", i+2)
		if i%2 == 1 && room > fairWaiters { // the holder needs room for its release
			d, client = k.a, fmt.Sprintf("zone-a.%d", i+2)
		}
		if i >= room {
			break
		}
		waiters.Go(func() {
			h, err := d.Acquire(ctx, k.name, lock.Options{Owner: owner(client), Lease: checkLong, Wait: checkLimit})
			if err == nil {
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				err = h.Release(ctx)
			}
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				wrong = append(wrong, fmt.Errorf("waiter %d: %w", i+1, err))
			}
		})
		if err := pause(ctx, k.lease/3); err != nil { // so that it is in the queue
			return err
		}
	}
	err = hold.Release(ctx)
	waiters.Wait()
	if err = errors.Join(append(wrong, err)...); err != nil {
		return err
	}
	if !slices.IsSorted(order) {
		for i := range order {
			order[i]++
		}
		return unsureError{fmt.Errorf("waiters that asked %v apart were granted the lock in the order %v", (k.lease / 3).Round(time.Millisecond), order)}
	}
	return nil
}

// fairWaiters is how many clients wait in the check of their order.
const fairWaiters = 4

func checkLateExtend(ctx context.Context, k *driverCheck) error {
	return k.outlived(ctx, func(late, hold *lock.Hold, _, next string) error {
		if err := late.Extend(ctx, checkLong); err == nil {
			return fmt.Errorf("the late extension was answered with ok, while %s held the lock", next)
		}
		if err := hold.Release(ctx); err != nil {
			return fmt.Errorf("after a late extension, the release of %s, which held the lock, failed: %w", next, err)
		}
		return nil
	})
}

// outlived has the lease of a client run out, once with the next holder in another
// process and once in the same one, whose clients may take each other for the holder, and once
// with a later request of the client itself, which a re-entrant lock may take for the same. It tells
// what to do then the late hold, that of the next holder, the name of the lock, and who that is.
func (k *driverCheck) outlived(ctx context.Context, then func(late, hold *lock.Hold, name, next string) error) error {
	cases := []struct {
		name, who, client string
		d                 checkedLock
		late              *lock.Hold
	}{
		{name: k.name + "-other", who: "a client of another process", client: "zone-b.1", d: k.b},
		{name: k.name + "-same", who: "another client of the same process", client: "zone-a.2", d: k.a},
		{name: k.name + "-again", who: "a later request of the same client", client: "zone-a.1#2", d: k.a},
	}
	if k.a.Hello().Promises.Reentrant {
		cases = cases[:2]
	}
	for i, c := range cases {
		late, err := ask(ctx, k.a, c.name, "zone-a.1", k.lease)
		if err != nil {
			return err
		}
		cases[i].late = late
	}
	for _, c := range cases {
		hold, err := k.next(ctx, c.d, c.name, c.client)
		if err != nil {
			return err
		}
		if err := then(c.late, hold, c.name, c.who); err != nil {
			return err
		}
	}
	return nil
}

// checkTokens has clients of both processes ask by turns: one that counts by itself is found.
func checkTokens(ctx context.Context, k *driverCheck) error {
	before := int64(0)
	for i := range 4 {
		d, client := k.a, "zone-a.1"
		if i%2 == 1 {
			d, client = k.b, "zone-b.1"
		}
		h, err := ask(ctx, d, k.name, client, checkLong)
		if err != nil {
			return err
		}
		token := h.Lease().Token
		if token <= before {
			return fmt.Errorf("the token %d follows %d", token, before)
		}
		before = token
		if err := h.Release(ctx); err != nil {
			return err
		}
	}
	return nil
}

// granted says what was wrong with a grant that no server can have confirmed.
func (k *driverCheck) granted(err error, why string) error {
	if err == nil {
		return fmt.Errorf("the answer is ok, although %s: it answers from memory, or reaches the server past the proxies", why)
	}
	return nil
}

// word is one for a driver, and another for a lock in Go.
func (k *driverCheck) word(program, inGo string) string {
	if _, is := k.a.(*driver.Driver); is {
		return program
	}
	return inGo
}

func (k *driverCheck) who() string { return k.word("the driver", "the lock") }

// warm has the driver connect, so that a check meets a connection that is open.
func (k *driverCheck) warm(ctx context.Context) error {
	h, err := ask(ctx, k.a, k.name+"-warm", "zone-a.1", checkLong)
	if err != nil {
		return err
	}
	return h.Release(ctx)
}

func checkCut(ctx context.Context, k *driverCheck) error {
	if err := k.warm(ctx); err != nil {
		return err
	}
	mend := k.cut()
	_, err := ask(ctx, k.a, k.name, "zone-a.1", checkLong)
	mend()
	if wrong := k.granted(err, "every link of "+k.who()+" was cut"); wrong != nil {
		return wrong // fail is right where the library knows that nothing was sent
	}
	return k.await(ctx, k.who()+" did not recover from a cut")
}

func checkLostReply(ctx context.Context, k *driverCheck) error {
	if err := k.warm(ctx); err != nil {
		return err
	}
	err := k.deaf(ctx, func(ctx context.Context) error {
		_, err := ask(ctx, k.a, k.name, "zone-a.1", checkLong)
		return err
	})
	if errors.Is(err, lock.ErrNotAcquired) {
		return fmt.Errorf("the answer is %s, although no reply reached %s: it must be %s, since the request may have been done", k.word("fail", "ErrNotAcquired"), k.who(), k.word("info", "another error"))
	}
	return k.granted(err, "no reply reached "+k.who())
}

// checkLateReply has a request be given up, and its reply come while a later one is under way on
// the same connection, if that is used again. The later request asks for a lock that is held.
func checkLateReply(ctx context.Context, k *driverCheck) error {
	if _, err := ask(ctx, k.b, k.name+"-held", "zone-b.1", checkLong); err != nil {
		return err
	}
	if err := k.warm(ctx); err != nil {
		return err
	}
	mend, err := k.holdReplies()
	defer mend()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	_, _ = ask(ctx, k.a, k.name, "zone-a.1", checkLong) // whatever it says: see [checkLostReply]
	var later error
	var request sync.WaitGroup
	request.Go(func() { _, later = ask(ctx, k.a, k.name+"-held", "zone-a.1#2", checkLong) })
	err = pause(ctx, k.lease/5) // so that it is on its way
	mend()
	request.Wait()
	if err == nil && later == nil {
		return errors.New("a lock was granted that a client of another process held, after the reply to a request that had been given up: " +
			"close a connection on which a reply is outstanding")
	}
	return err
}

// holdReplies holds back all replies to the first driver. What it returns lets them go, also with
// an error, and may be called again.
func (k *driverCheck) holdReplies() (mend func(), err error) {
	var mends []func()
	mend = sync.OnceFunc(func() {
		for _, mend := range mends {
			mend()
		}
	})
	for _, l := range k.linksOfA() {
		one, err := l.Hold(topologies.Downstream)
		if err != nil {
			return mend, err
		}
		mends = append(mends, one)
	}
	return mend, nil
}

// deaf makes a request of the first driver whose reply is held back.
func (k *driverCheck) deaf(ctx context.Context, request func(context.Context) error) error {
	mend, err := k.holdReplies()
	defer mend()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	return request(ctx)
}

// checkLostRelease has no reply to a release arrive. It does not lose only the first one: the
// clients of many libraries send a release again, that of go-redis for a cluster whatever its
// options say, and what is told of a lock that was released harms nothing.
func checkLostRelease(ctx context.Context, k *driverCheck) error {
	h, err := ask(ctx, k.a, k.name, "zone-a.1", checkLong)
	if err != nil {
		return err
	}
	err = k.deaf(ctx, func(ctx context.Context) error { return k.a.ReleaseAgain(ctx, h) })
	switch {
	case errors.Is(err, lock.ErrNotHeld):
		return fmt.Errorf("the answer is %s, although no reply reached %s: it must be %s, since the release may have been done", k.word("fail", "ErrNotHeld"), k.who(), k.word("info", "another error"))
	case err == nil && k.a.Hello().Promises.ReleaseTells:
		return fmt.Errorf("the answer is ok, although no reply reached %s, which promises to tell whether the lock was held", k.who())
	}
	return nil
}

func checkUnsupported(ctx context.Context, k *driverCheck) error {
	result, err := driverOf(k.a).Do(ctx, "no-such-operation")
	if err == nil && result != "unsupported" {
		err = fmt.Errorf("the answer is %q", result)
	}
	return err
}

func checkEnd(ctx context.Context, k *driverCheck) error {
	d := driverOf(k.a)
	if _, err := d.Do(ctx, "ping"); err != nil {
		return err
	}
	if err := d.Close(); err != nil { //nolint:contextcheck // an end has a bound of its own
		return err
	}
	if d.Killed() {
		return errors.New("it went on, and was killed")
	}
	return nil
}

// driverOf is the driver that is checked. Checks of the protocol are made of drivers alone.
func driverOf(l checkedLock) *driver.Driver { return l.(*driver.Driver) } //nolint:forcetypeassert // see links
