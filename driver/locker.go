package driver

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/chance"
)

const (
	// The pauses between two tries of a client that waits for a lock whose
	// library does not wait by itself.
	leastPause, mostPause = 5 * time.Millisecond, 50 * time.Millisecond
	// leaseWaited is the part of a lease for which a library waits at a time.
	leaseWaited = 3
	// pingPause is the time between two pings.
	pingPause = 250 * time.Millisecond
	// withdrawLimit bounds the release of a hold that was granted too late.
	withdrawLimit = 5 * time.Second
	// cancelLimit is how long a driver that promises cancel may take to say what came of a request that was given up.
	cancelLimit = 2 * time.Second
)

var _ lock.Locker = (*Driver)(nil)

// Acquire asks the driver for a lock. The client of the request is the owner up
// to its last '#', so that "zone-a.3#12" is a request of the client zone-a.3; a
// client has one request open at a time, and others wait.
//
// A wait is made of short ones, since a lease is counted from the request that was
// granted: a library that waits by itself is told to for a third of the lease, and
// for all of the wait where it serves its waiters in order, or the lease has no end.
//
// Where ctx ends, a driver that promises cancel is told so, and its answer is what is returned, a hold as well.
//
// Errors: [lock.ErrNotAcquired] where the driver refused for certain, and
// [ErrBroken] where it can't be used; after any other error, such as [ErrUnknown], the
// lock may have been granted.
func (d *Driver) Acquire(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
	return d.Ask(ctx, name, Way{}, o)
}

// Ask is [Driver.Acquire] of a lock that is asked for in several ways.
func (d *Driver) Ask(ctx context.Context, name string, w Way, o lock.Options) (*lock.Hold, error) {
	h, err := d.acquire(ctx, name, w.of(d.hello.Promises.Kind), o)
	if err != nil {
		return nil, fmt.Errorf("acquire lock %q: %w", name, err)
	}
	return h, nil
}

func (d *Driver) acquire(ctx context.Context, name string, w Way, o lock.Options) (*lock.Hold, error) {
	if name == "" {
		return nil, errors.New("empty name: give the lock a name")
	}
	if err := errors.Join(o.Validate(), ctx.Err()); err != nil {
		return nil, err
	}
	if o.Owner == "" {
		o.Owner = rand.Text()
	}
	if d.hello.Promises.Wait && (d.hello.Promises.Fair || o.Lease == 0) {
		return d.try(ctx, name, w, o, o.Wait)
	}
	begin := time.Now()
	for {
		wait := time.Duration(0)
		if d.hello.Promises.Wait {
			wait = min(max(o.Wait-time.Since(begin), 0), o.Lease/leaseWaited)
		}
		h, err := d.try(ctx, name, w, o, wait)
		left := o.Wait - time.Since(begin)
		if !errors.Is(err, lock.ErrNotAcquired) || left <= 0 || d.hello.Promises.Cancel && ctx.Err() != nil {
			return h, err
		}
		select {
		case <-time.After(min(leastPause+chance.N(mostPause-leastPause), left)): // random, so that clients that wait together do not go on in step
		case <-ctx.Done():
			return nil, ctx.Err() //nolint:wrapcheck // the last try was refused for certain, but the caller asked to be told why it ended
		}
	}
}

// try asks once, and lets the library wait for as long as that.
func (d *Driver) try(ctx context.Context, name string, w Way, o lock.Options, wait time.Duration) (*lock.Hold, error) {
	client := clientOf(o.Owner)
	lease := millis(o.Lease)
	waitMS := millis(wait)
	q := request{Op: opAcquire, Client: client, Owner: o.Owner, Lock: name, LeaseMS: &lease, WaitMS: &waitMS, Way: w}
	r, err := d.ask(ctx, client, q, func(late response) { d.withdraw(client, late, o.Lease == 0) }) //nolint:contextcheck // it outlives this call
	if err != nil {
		return nil, err
	}
	switch r.Result {
	case resultFail:
		return nil, fmt.Errorf("%w%s", lock.ErrNotAcquired, because(r.Why))
	case resultOK:
	case resultUnsupported:
		return nil, d.breaks(fmt.Errorf("it answered a request for a lock with unsupported%s", because(r.Why)))
	default:
		return nil, unknown(r)
	}
	switch {
	case r.Hold == "":
		return nil, d.breaks(fmt.Errorf("it granted the lock %q without a \"hold\"", name))
	case d.hello.Promises.Token && r.Token == 0:
		return nil, d.breaks(fmt.Errorf("it promises tokens, and granted the lock %q without a \"token\"", name))
	case r.Token < 0:
		return nil, d.breaks(fmt.Errorf("it says \"token\":%d of a grant: give one above 0, or none", r.Token))
	case r.Holds < 0 || r.Holds > maxHolds:
		return nil, d.breaks(fmt.Errorf("it says \"holds\":%d of a grant: give how often the owner holds the lock", r.Holds))
	}
	passed := time.Since(r.sent)
	if p := d.hello.Promises; p.HandsOver || p.Reentrant { // the lease may be an older one
		passed = max(passed, o.Lease)
	}
	if err := believable(r.ValidMS, lease, passed); err != nil {
		return nil, d.breaks(err)
	}
	l := lock.Lease{Name: name, Owner: o.Owner, Request: r.Hold, Token: r.Token, Holds: max(r.Holds, 1), Length: o.Lease}
	switch {
	case r.ValidMS != nil:
		l.Expires = r.sent.Add(time.Duration(min(*r.ValidMS, maxMillis)) * time.Millisecond)
	case o.Lease > 0:
		l.Expires = r.sent.Add(o.Lease)
	}
	k := &keeper{driver: d, id: r.Hold, client: client}
	h := lock.NewHold(l, k)
	if err := d.keep(k, h); err != nil { //nolint:contextcheck // a loss is noted, whatever becomes of the request
		return nil, err
	}
	return h, nil
}

// Libraries round a lease to whole seconds, and may give some more. What is beyond that
// is in another unit, or is a time of day; so is what is far less than was left of the lease. A library that counts a lease
// from the reply adds what has passed.
const leasesBelieved, alsoBelieved = 10, 1000

// believable returns an error if a driver can't mean what it says of the time for which a grant may
// be believed. The time and the lease that was asked for are in milliseconds; passed is the time
// since the request.
func believable(valid *int64, lease int64, passed time.Duration) error {
	if valid == nil || *valid >= max(lease-passed.Milliseconds(), 0)/leasesBelieved && (lease == 0 || *valid <= leasesBelieved*lease+alsoBelieved+passed.Milliseconds()) {
		return nil
	}
	return fmt.Errorf("it says \"valid_ms\":%d of a lease of %d ms: give the milliseconds from the request", *valid, lease)
}

// keep remembers a hold until it is over.
func (d *Driver) keep(k *keeper, h *lock.Hold) error {
	d.mu.Lock()
	if d.used[k.id] {
		d.mu.Unlock()
		return d.breaks(fmt.Errorf("it gave the hold %q to two grants", k.id))
	}
	k.hold = h
	d.holds[k.id], d.used[k.id] = k, true
	lost := d.lost[k.id]
	delete(d.lost, k.id)
	d.mu.Unlock()
	if lost {
		k.markLost()
	}
	return nil
}

// withdraw releases a hold whose answer came after its client had gone. One with
// a lease is left to run out: an operation that is in no history would blur what
// the history says of the lock.
func (d *Driver) withdraw(client string, r response, endless bool) {
	if r.Result != resultOK || !endless {
		return
	}
	ctx, cancel := context.WithTimeout(d.stopped, withdrawLimit)
	defer cancel()
	_, _ = d.ask(ctx, client, request{Op: opRelease, Hold: r.Hold}, nil)
}

// breaks notes that the driver broke the protocol, and returns the error for it.
func (d *Driver) breaks(err error) error {
	d.fail(err)
	return fmt.Errorf("%w: %w", ErrBroken, err)
}

// unknown is the error of an answer that is not definite.
func unknown(r response) error {
	if r.Result == resultUnsupported {
		return fmt.Errorf("the driver does not support this: %w", errors.ErrUnsupported)
	}
	return fmt.Errorf("%w%s", ErrUnknown, because(r.Why))
}

// ask sends a request and awaits its answer. late is told of an answer that came after the caller
// had gone, and optional. An error means that the outcome is unknown, or that nothing was sent.
func (d *Driver) ask(ctx context.Context, client string, q request, late func(response)) (response, error) {
	leave, err := d.enter(ctx, client)
	if err != nil {
		return response{}, err
	}
	id, answer, err := d.post(ctx, q)
	if err != nil {
		leave()
		return response{}, err
	}
	select {
	case r := <-answer:
		leave()
		return r, nil
	case <-d.stopped.Done():
		leave()
		return response{}, d.whyStopped()
	case <-ctx.Done():
	}
	if q.Op == opAcquire && d.hello.Promises.Cancel {
		if r, answered := d.cancel(id, answer); answered {
			leave()
			return r, nil
		}
	}
	go func() { // it ends when the driver does, at the latest
		select {
		case r := <-answer:
			leave()
			if late != nil {
				late(r)
			}
		case <-d.stopped.Done():
			leave()
		}
	}()
	return response{}, ctx.Err()
}

// post sends a request, and returns its number and where its answer comes. An error means that it was not sent.
func (d *Driver) post(ctx context.Context, q request) (id int64, answer <-chan response, err error) {
	d.mu.Lock()
	d.next++
	q.ID = d.next
	answers := make(chan response, 1)
	d.open[q.ID] = opened{answers, q, time.Now(), time.Now().Add(span(q.WaitMS))}
	if q.Op == opAcquire {
		d.asked++
	}
	d.mu.Unlock()
	line, _ := json.Marshal(q)
	select {
	case d.send <- append(line, '\n'):
		return q.ID, answers, nil
	case <-ctx.Done():
		d.mu.Lock()
		defer d.mu.Unlock()
		if q.Op == opAcquire {
			d.asked--
		}
		delete(d.open, q.ID)
		return 0, nil, ctx.Err()
	case <-d.stopped.Done():
		return 0, nil, d.whyStopped()
	}
}

// cancel tells the driver that a request was given up, and returns what came of it.
func (d *Driver) cancel(id int64, answer <-chan response) (r response, answered bool) {
	line, _ := json.Marshal(request{ID: id, Op: opCancel})
	line = append(line, '\n')
	limit := time.After(cancelLimit)
	for send := d.send; ; {
		select {
		case send <- line:
			send = nil
		case r := <-answer:
			return r, true
		case <-limit:
			return response{}, false
		case <-d.stopped.Done():
			return response{}, false
		}
	}
}

func (d *Driver) whyStopped() error {
	if err := d.Err(); err != nil {
		return err
	}
	return fmt.Errorf("%w: it was closed", ErrBroken)
}

// enter waits until the client has no other request open, and until the driver
// has room for one more client.
func (d *Driver) enter(ctx context.Context, client string) (leave func(), err error) {
	d.mu.Lock()
	turn := d.clients[client]
	if turn == nil {
		turn = make(chan struct{}, 1)
		d.clients[client] = turn
	}
	d.mu.Unlock()
	for _, gate := range []chan struct{}{turn, d.slots} {
		select {
		case gate <- struct{}{}:
		case <-ctx.Done():
			err = ctx.Err()
		case <-d.stopped.Done():
			err = d.whyStopped()
		}
		if err != nil {
			if gate != turn {
				<-turn
			}
			return nil, err
		}
	}
	return func() {
		<-d.slots
		<-turn
	}, nil
}

// measureLag pings the driver again and again, and so notices one that no longer answers. The
// lag is that of drivers that serve several clients at the same time: one that serves a single
// client is asked only between its requests, and a request that begins right after the ping may
// delay the answer.
func (d *Driver) measureLag() {
	pings, tick := int64(0), time.NewTicker(pingPause)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-d.stopped.Done():
			return
		}
		if cap(d.slots) == 1 {
			select {
			case d.slots <- struct{}{}:
				<-d.slots
			default:
				continue
			}
		}
		sent := time.Now()
		_, answer, err := d.post(d.stopped, request{Op: opPing})
		if err != nil {
			return
		}
		select {
		case <-answer:
			if cap(d.slots) > 1 {
				pings++
				d.lag.Add((int64(time.Since(sent)) - d.lag.Load()) / pings)
			}
		case <-d.stopped.Done():
		}
	}
}

// A keeper keeps one grant of a driver.
type keeper struct {
	driver *Driver
	id     string
	client string
	hold   *lock.Hold
	gone   atomic.Bool // the library said that the hold is lost
}

// markLost ends the hold, since its library said that it is lost.
func (k *keeper) markLost() {
	k.gone.Store(true)
	// A refused extension is how a hold learns that it is lost. It is not sent, also where the
	// hold is over: it would shorten what another hold of its owner has on the server.
	_ = k.hold.Extend(context.WithValue(k.driver.stopped, lossKey{}, true), time.Millisecond)
}

// lossKey is the key under which the context of an extension says that none is to be sent.
type lossKey struct{}

// over forgets the hold.
func (k *keeper) over() {
	k.driver.mu.Lock()
	defer k.driver.mu.Unlock()
	delete(k.driver.holds, k.id)
}

// Extend implements [lock.Keeper].
func (k *keeper) Extend(ctx context.Context, _ lock.Lease, by time.Duration) (time.Time, error) {
	if k.gone.Load() {
		return time.Time{}, lock.ErrNotHeld
	}
	return k.extend(ctx, by)
}

func (k *keeper) extend(ctx context.Context, by time.Duration) (time.Time, error) {
	lease := millis(by)
	r, err := k.driver.ask(ctx, k.client, request{Op: opExtend, Hold: k.id, LeaseMS: &lease}, nil)
	if err != nil {
		return time.Time{}, err
	}
	switch r.Result {
	case resultFail:
		k.over()
		return time.Time{}, fmt.Errorf("%w%s", lock.ErrNotHeld, because(r.Why))
	case resultOK:
		passed := time.Since(r.sent)
		if err := believable(r.ValidMS, lease, max(passed, by)); err != nil { // it may be as short as the first lease
			return time.Time{}, k.driver.breaks(err)
		}
		if r.ValidMS != nil {
			by = time.Duration(min(*r.ValidMS, maxMillis)) * time.Millisecond
		}
		if r.ValidMS != nil && by <= passed {
			return time.Time{}, fmt.Errorf("%w: the extension was over when its answer came", ErrUnknown)
		}
		return r.sent.Add(by), nil
	case resultUnsupported:
		if k.driver.hello.Promises.Extend {
			return time.Time{}, k.driver.breaks(errors.New("it promises that a hold can be extended, and answered unsupported"))
		}
	}
	return time.Time{}, unknown(r)
}

// ExtendLate implements [undertest.LateKeeper].
func (k *keeper) ExtendLate(ctx context.Context, _ lock.Lease, by time.Duration) error {
	if !k.driver.hello.Promises.Extend || ctx.Value(lossKey{}) != nil {
		return lock.ErrNotHeld
	}
	_, err := k.extend(ctx, by)
	return err
}

// ReleaseLate implements [undertest.LateKeeper].
func (k *keeper) ReleaseLate(ctx context.Context, l lock.Lease) error { return k.Release(ctx, l) }

// Release implements [lock.Keeper].
func (k *keeper) Release(ctx context.Context, l lock.Lease) error {
	r, err := k.driver.ask(ctx, k.client, request{Op: opRelease, Hold: k.id}, nil)
	if err != nil {
		return err
	}
	switch r.Result {
	case resultFail:
		k.over()
		return fmt.Errorf("%w%s", lock.ErrNotHeld, because(r.Why))
	case resultOK:
		k.over()
		over := k.gone.Load() || !l.Expires.IsZero() && !time.Now().Before(l.Expires)
		if over && !k.driver.hello.Promises.ReleaseTells {
			return errors.New("the hold is over, and the library does not tell whether there was something to release")
		}
		return nil
	default:
		return unknown(r)
	}
}

// What a record can have: times of up to 36 years in milliseconds, behind its beginning, and so many holds of one owner.
const (
	maxMillis = int64(lock.Forever / 8 / time.Millisecond)
	maxHolds  = 1<<31 - 1
)

// millis is a time in whole milliseconds, at least 1 unless it is 0.
func millis(d time.Duration) int64 {
	if d > 0 && d < time.Millisecond {
		return 1
	}
	return d.Milliseconds()
}

// clientOf is the client that an owner belongs to.
func clientOf(owner string) string {
	if i := strings.LastIndexByte(owner, '#'); i >= 0 {
		return owner[:i]
	}
	return owner
}
