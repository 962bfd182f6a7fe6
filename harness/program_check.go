package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/driver"
	"github.com/lockchaos/lockchaos/topologies"
)

const (
	// checkLease is a lease that is let run out, and checkLong one that is not.
	checkLease, checkLong = 2 * time.Second, 5 * time.Minute
	// checkLimit bounds every wait for something that must happen.
	checkLimit = time.Minute
	// checkTimeout is for how long a driver should wait for a server.
	checkTimeout = 3 * time.Second
	// checkClients ask at once in the check that one of them is granted the lock.
	checkClients = 16
)

// A DriverCheck is one sentence about what a driver must do.
type DriverCheck struct {
	Name string
	// Needs says what a driver promises that is checked; nil: every driver is.
	Needs func(driver.Promises) bool
	run   func(context.Context, *driverCheck) error
}

// A driverCheck is what one check works with: two drivers of one program, each
// with a zone of its own, on a server whose links can be cut.
type driverCheck struct {
	a, b *driver.Driver
	name string // of a lock that no other check uses
	d    topologies.Deployment
}

// DriverChecks lists the checks of a driver, in order.
func DriverChecks() []DriverCheck {
	return []DriverCheck{
		{Name: "a free lock is granted, and given back", run: checkGrant},
		{Name: "a lock that is held is refused to another process", run: checkRefusal},
		{Name: "of many clients that ask at once, one is granted the lock", run: checkMany},
		{Name: "a lease that runs out frees the lock, and not before", run: checkExpiry},
		{Name: "an extended hold outlives its first lease", Needs: func(p driver.Promises) bool { return p.Extend }, run: checkExtend},
		{Name: "a second release is not confirmed", Needs: func(p driver.Promises) bool { return p.ReleaseTells }, run: checkReleaseTwice},
		{Name: "a late release leaves the next holder alone", run: checkLateRelease},
		{Name: "tokens grow from grant to grant", Needs: func(p driver.Promises) bool { return p.Token }, run: checkTokens},
		{Name: "nothing is granted while the links are cut", run: checkCut},
		{Name: "a request whose reply is lost is unknown", run: checkLostReply},
		{Name: "an unknown operation is answered with unsupported", run: checkUnsupported},
		{Name: "the driver exits at the end of its input", run: checkEnd},
	}
}

// CheckDriver runs the checks of a driver on a server that backend starts, and
// tells what came of each: nil, or what was wrong; skipped is true for what the
// driver does not promise. The error is of what kept it from checking, such as a
// driver that does not start.
func CheckDriver(ctx context.Context, backend topologies.Backend, command string, log io.Writer, tell func(c DriverCheck, skipped bool, wrong error)) error {
	t, err := topologies.New(topologies.Single, topologies.Options{})
	if err != nil {
		return err
	}
	if _, err := Program(command); err != nil { //nolint:contextcheck // it bounds itself
		return err
	}
	d, err := backend.Start(ctx, t)
	if err != nil {
		return err
	}
	for i, c := range DriverChecks() {
		skipped, wrong := runDriverCheck(ctx, d, command, c, fmt.Sprintf("check-%d", i+1), log)
		tell(c, skipped, wrong)
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(ctx.Err(), d.Close())
}

func runDriverCheck(ctx context.Context, d topologies.Deployment, command string, c DriverCheck, name string, log io.Writer) (skipped bool, wrong error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 3*checkLimit, errors.New("the check took too long"))
	defer cancel()
	k := &driverCheck{d: d, name: name}
	zones := d.Topology().Of(topologies.Zone)
	for i, at := range []**driver.Driver{&k.a, &k.b} {
		one, end, err := startForCheck(d, command, zones[i%len(zones)], log) //nolint:contextcheck // the driver outlives the start
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

func startForCheck(d topologies.Deployment, command, zone string, log io.Writer) (*driver.Driver, func(), error) {
	at := PlaceIn(d, zone)
	end, refused := func() {}, error(nil)
	one, err := driver.Start(context.Background(), driver.Config{
		Command: shell(command), Zone: zone, Topology: at.Topology, Servers: at.Servers, Timeout: checkTimeout, Log: log,
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

// owner is that of a client's request.
func owner(client string) string { return client + "#1" }

func ask(ctx context.Context, d *driver.Driver, name, client string, lease time.Duration) (*lock.Hold, error) {
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
		h, err := ask(ctx, k.a, k.name, "zone-a.1", checkLong)
		if err != nil {
			return err
		}
		if err := h.Release(ctx); err != nil {
			return err
		}
	}
	return nil
}

func checkRefusal(ctx context.Context, k *driverCheck) error {
	h, err := ask(ctx, k.a, k.name, "zone-a.1", checkLong)
	if err != nil {
		return err
	}
	_, err = ask(ctx, k.b, k.name, "zone-b.1", checkLong)
	if wrong := refused(err, "the client of the other process"); wrong != nil {
		return wrong
	}
	if err := h.Release(ctx); err != nil {
		return err
	}
	_, err = ask(ctx, k.b, k.name, "zone-b.1", checkLong)
	return err
}

func checkMany(ctx context.Context, k *driverCheck) error {
	var mu sync.Mutex
	var winners int
	var wrong []error
	var all sync.WaitGroup
	for i := range checkClients {
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
	if winners != 1 {
		return errors.Join(append([]error{fmt.Errorf("%d of %d clients were granted the lock", winners, checkClients)}, wrong...)...)
	}
	return errors.Join(wrong...)
}

// next awaits that the other client is granted the lock.
func (k *driverCheck) next(ctx context.Context, lease time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, checkLimit, errors.New("the lock is not free yet"))
	defer cancel()
	return await.Until(ctx, func() error {
		_, err := ask(ctx, k.b, k.name, "zone-b.1", lease)
		return err
	})
}

func checkExpiry(ctx context.Context, k *driverCheck) error {
	sent := time.Now()
	if _, err := ask(ctx, k.a, k.name, "zone-a.1", checkLease); err != nil {
		return err
	}
	if err := k.next(ctx, checkLong); err != nil {
		return err
	}
	if took := time.Since(sent); took < checkLease {
		return fmt.Errorf("the lock was free %v after a request for a lease of %v", took.Round(time.Millisecond), checkLease)
	}
	return nil
}

func checkExtend(ctx context.Context, k *driverCheck) error {
	h, err := ask(ctx, k.a, k.name, "zone-a.1", checkLease)
	if err != nil {
		return err
	}
	first := time.Now().Add(checkLease)
	if err := h.Extend(ctx, checkLong); err != nil {
		return err
	}
	select {
	case <-time.After(time.Until(first)):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	_, err = ask(ctx, k.b, k.name, "zone-b.1", checkLong)
	return refused(err, "the client of the other process")
}

func checkReleaseTwice(ctx context.Context, k *driverCheck) error {
	h, err := ask(ctx, k.a, k.name, "zone-a.1", checkLong)
	if err != nil {
		return err
	}
	if err := h.Release(ctx); err != nil {
		return err
	}
	if err := k.a.ReleaseAgain(ctx, h); err == nil {
		return errors.New("the second release was answered with ok")
	}
	return nil
}

func checkLateRelease(ctx context.Context, k *driverCheck) error {
	late, err := ask(ctx, k.a, k.name, "zone-a.1", checkLease)
	if err != nil {
		return err
	}
	if err := k.next(ctx, checkLong); err != nil {
		return err
	}
	err = late.Release(ctx)
	if err == nil && k.a.Hello().Promises.ReleaseTells {
		return errors.New("the late release was answered with ok")
	}
	_, err = ask(ctx, k.a, k.name, "zone-a.2", checkLong)
	if errors.Is(err, lock.ErrNotAcquired) {
		return nil
	}
	if err == nil {
		return errors.New("the late release freed the lock that another client holds")
	}
	return err
}

func checkTokens(ctx context.Context, k *driverCheck) error {
	before := int64(0)
	for range 3 {
		h, err := ask(ctx, k.a, k.name, "zone-a.1", checkLong)
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
func granted(err error, why string) error {
	if err == nil {
		return fmt.Errorf("the answer is ok, although %s: the driver answers from memory, or reaches the server past the proxies", why)
	}
	return nil
}

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
	var mends []func()
	for _, l := range k.d.Topology().Links {
		if l.Kind == topologies.Client {
			mends = append(mends, k.d.Proxy(l.Name()).Cut())
		}
	}
	_, err := ask(ctx, k.a, k.name, "zone-a.1", checkLong)
	for _, mend := range mends {
		mend()
	}
	if wrong := granted(err, "every link of the driver was cut"); wrong != nil {
		return wrong // fail is right where the library knows that nothing was sent
	}
	// The driver recovers from it.
	ctx, cancel := context.WithTimeoutCause(ctx, checkLimit, errors.New("the driver did not recover from a cut"))
	defer cancel()
	return await.Until(ctx, func() error { return k.warm(ctx) })
}

func checkLostReply(ctx context.Context, k *driverCheck) error {
	if err := k.warm(ctx); err != nil {
		return err
	}
	var mends []func()
	for _, l := range k.d.Topology().Links {
		if l.Kind != topologies.Client {
			continue
		}
		mend, err := k.d.Proxy(l.Name()).Hold(topologies.Downstream)
		if err != nil {
			return err
		}
		mends = append(mends, mend)
	}
	limited, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	_, err := ask(limited, k.a, k.name, "zone-a.1", checkLong)
	for _, mend := range mends {
		mend()
	}
	if errors.Is(err, lock.ErrNotAcquired) {
		return errors.New("the answer is fail, although no reply reached the driver: it must be info, since the request may have been done")
	}
	return granted(err, "no reply reached the driver")
}

func checkUnsupported(ctx context.Context, k *driverCheck) error {
	result, err := k.a.Do(ctx, "no-such-operation")
	if err == nil && result != "unsupported" {
		err = fmt.Errorf("the answer is %q", result)
	}
	return err
}

func checkEnd(ctx context.Context, k *driverCheck) error {
	if _, err := k.a.Do(ctx, "ping"); err != nil {
		return err
	}
	if err := k.a.Close(); err != nil {
		return err
	}
	if k.a.Killed() {
		return errors.New("it went on, and was killed")
	}
	return nil
}
