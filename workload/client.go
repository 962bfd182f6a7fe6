package workload

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/undertest"
)

// A Request says what a client asks for.
type Request struct {
	// Locks are the names of what it asks for: one, or several that are granted
	// together or not at all.
	Locks []string
	// Mode is how; empty is exclusive.
	Mode history.Mode
	// Permits is how many, in mode permit; 0 is 1.
	Permits int
	// Lease is for how long; 0 leaves it to the lock's watchdog.
	Lease time.Duration
	// Wait is for how long the client waits; 0 is one try.
	Wait time.Duration
	// Again asks under the owner of the latest attempt, and keeps what the client
	// holds: a re-entry, a writer that goes on as a reader, more permits, or
	// another lock beside those that it has.
	Again bool
}

// A Service is a [lock.Locker] that grants more than one lock in one way: for
// reading and for writing, several permits, or several locks together. What it
// does not know it refuses with an error.
type Service interface {
	Ask(ctx context.Context, r Request, o lock.Options) (*lock.Hold, error)
}

// A ServiceFunc is a [Service], and a [lock.Locker] that is asked for one lock in its usual way.
type ServiceFunc func(ctx context.Context, r Request, o lock.Options) (*lock.Hold, error)

// Ask calls f.
func (f ServiceFunc) Ask(ctx context.Context, r Request, o lock.Options) (*lock.Hold, error) {
	return f(ctx, r, o)
}

// Acquire asks for one lock, in its usual way.
func (f ServiceFunc) Acquire(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
	return f(ctx, Request{Locks: []string{name}}, o)
}

// Ask asks a locker, which needs to be a [Service] for anything but one lock with
// one holder. It is an error if that returns neither a hold nor an error.
func Ask(ctx context.Context, l lock.Locker, r Request, o lock.Options) (h *lock.Hold, err error) {
	s, several := l.(Service)
	switch {
	case several:
		h, err = s.Ask(ctx, r, o)
	case len(r.Locks) != 1 || r.Mode != "" && r.Mode != history.Exclusive:
		return nil, errors.New("the lock under test grants one lock at a time, to one holder")
	default:
		h, err = l.Acquire(ctx, r.Locks[0], o)
	}
	if h == nil && err == nil {
		err = errors.New("the lock under test returned neither a hold nor an error") // so that nothing is known of a grant
	}
	return h, err
}

// Processes hands out the numbers of logical processes. Its zero value begins
// at 0; it is safe for concurrent use.
type Processes struct {
	next      atomic.Int64
	acquiring sync.Map // the [parts] of owners who ask for several locks at once, and may have some and not yet all
}

// New returns a number that was never handed out before.
func (p *Processes) New() int { return int(p.next.Add(1) - 1) }

// A Client does one thing at a time with locks and their resources, and records
// each operation: the invocation before its request is sent, the outcome after
// its reply was read. After an unknown outcome it goes on as a new process. A
// request for several locks is an operation on each, by as many processes.
//
// Every attempt to acquire claims an owner of its own, "<name>#<attempt>", so
// that a late release of one attempt can't be taken for that of another.
type Client struct {
	Name string
	// Locker grants the locks. It is asked by [Service] where it is one.
	Locker    lock.Locker
	Recorder  *history.Recorder
	Processes *Processes
	// Careless clients use the resource also after they had to stop believing
	// that they hold.
	Careless bool
	// NodeName is how the history calls the server at an address; nil: by the
	// address.
	NodeName func(address string) string
	// Granted is told of each request that was granted; nil: nothing is.
	Granted func(Request)
	// Refused is told of each request that was refused, once that is recorded; nil: nothing is.
	Refused func(ctx context.Context, lock, owner string)

	mu   sync.Mutex // of dead, processes and asked, and held while a resource is written
	dead bool       // the process of its lock has ended

	processes []int // for the first lock of a request, the second and so on
	attempts  int
	asked     []history.Event         // what all events of the latest attempt share, a lock each
	holds     []*held                 // the newest last
	given     map[claim]time.Duration // the first end of the grants that were given back since the last one was recorded
	released  *held                   // the latest that was given back, whatever the answer
	read      int64
}

// A claim is what an owner says that it holds: a lock in a mode, by one grant or
// by several.
type claim struct {
	lock string
	mode history.Mode
}

// held is a grant, of several locks where they were asked for together.
type held struct {
	*undertest.Hold
	parts    []history.Event // what the events of it share, a lock each
	toldLost bool            // the owner was told that this grant, or another of the same lock, is over
	unsure   bool            // the outcome of a release is unknown
}

// shares reports whether another grant is one of the same lock in the same mode.
func (h *held) shares(other *held) bool {
	return slices.ContainsFunc(h.parts, func(e history.Event) bool {
		return slices.ContainsFunc(other.parts, func(o history.Event) bool { return o.Lock == e.Lock && o.Mode == e.Mode })
	})
}

// Holding reports whether the client was granted a lock and has not released
// it. It may have lost it.
func (c *Client) Holding() bool { return len(c.holds) > 0 }

// Holds are the grants that the client has not released, the newest last, each by the first lock of its request.
func (c *Client) Holds() []string {
	return names.Of(c.holds, func(h *held) string { return h.parts[0].Lock })
}

// newest is the latest grant that was not released; nil for none.
func (c *Client) newest() *held {
	if len(c.holds) == 0 {
		return nil
	}
	return c.holds[len(c.holds)-1]
}

// Lost is closed when the client may no longer believe that it has what it was
// granted last; nil without a hold.
func (c *Client) Lost() <-chan struct{} {
	h := c.newest()
	if h == nil {
		return nil
	}
	return h.Lost()
}

// LostUnleased is [Client.Lost] of a hold whose end the client does not know from a lease,
// and of which it was not told yet that it is lost. Nil otherwise.
func (c *Client) LostUnleased() <-chan struct{} {
	h := c.newest()
	if h == nil || h.toldLost || !h.Lease().Expires.IsZero() {
		return nil
	}
	return h.Lost()
}

// event is one of the client's, on the i-th lock of a request. Only accesses show the token of a grant.
func (c *Client) event(i int, base history.Event, op history.Op, t history.Type) history.Event {
	if op != history.Access {
		base.Token = 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.processes) <= i {
		c.processes = append(c.processes, c.Processes.New())
	}
	base.Process, base.Op, base.Type = c.processes[i], op, t
	return base
}

// begin records the invocations of an operation on the locks of a request.
func (c *Client) begin(parts []history.Event, op history.Op, lease time.Duration) []history.Event {
	begun := make([]history.Event, len(parts))
	for i, part := range parts {
		begun[i] = c.event(i, part, op, history.Invoke)
		begun[i].Lease = lease
		c.Recorder.Record(begun[i])
	}
	return begun
}

// done records how an operation on the i-th lock of a request ended.
func (c *Client) done(i int, e history.Event, err error, refusals ...error) history.Event {
	e.Type = Outcome(err, refusals...)
	if err != nil {
		e.Error = err.Error()
	}
	if errors.Is(err, undertest.ErrConfirmedAgain) {
		e.What = history.ConfirmedAgain
	}
	e = c.Recorder.Record(e)
	if e.Type == history.Info {
		c.renew(i)
	}
	return e
}

// renew has the client go on as another process, on the i-th lock of a request.
func (c *Client) renew(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.processes[i] = c.Processes.New()
}

// Outcome is the type of event that an error stands for: only a definite
// refusal is a fail, and every other error is unknown.
func Outcome(err error, refusals ...error) history.Type {
	switch {
	case err == nil:
		return history.OK
	case slices.ContainsFunc(refusals, func(refusal error) bool { return errors.Is(err, refusal) }):
		return history.Fail
	default:
		return history.Info
	}
}

// An Act is one thing that a client does, as scripts say it.
type Act struct {
	// Do is one of [DoAsk] and the like.
	Do string
	// Ask is what is asked for, Lease that of an extension, and Name that of a resource.
	Ask   Request
	Lease time.Duration
	Name  string
}

// What a client can be told to do: what its methods of these names do.
const (
	DoAsk          = "ask"
	DoExtend       = "extend"
	DoRelease      = "release"
	DoReleaseFirst = "release-first"
	DoReleaseAgain = "release-again"
	DoRead         = "read"
	DoWrite        = "write"
)

// Do does what it is told, with the resource that the act names, and returns the outcome, or the error of a read.
func (c *Client) Do(ctx context.Context, a Act, r Resource) (outcome history.Type, err error) {
	switch a.Do {
	case DoAsk:
		outcome = c.Ask(ctx, a.Ask)
	case DoExtend:
		outcome = c.Extend(ctx, a.Lease)
	case DoRelease:
		outcome = c.Release(ctx)
	case DoReleaseFirst:
		outcome = c.ReleaseFirst(ctx)
	case DoReleaseAgain:
		outcome = c.ReleaseAgain(ctx)
	case DoRead:
		err = c.Read(ctx, a.Name, r)
	case DoWrite:
		outcome = c.Write(ctx, a.Name, r)
	default:
		err = fmt.Errorf("a client can't be told to %q", a.Do)
	}
	return outcome, err
}

// Acquire asks once for a lock, and waits for it for so long. It returns the
// outcome. A client that is granted one forgets the holds that it had.
func (c *Client) Acquire(ctx context.Context, name string, lease, wait time.Duration) history.Type {
	return c.Ask(ctx, Request{Locks: []string{name}, Lease: lease, Wait: wait})
}

// Ask asks once for what the request says, and returns the outcome. A client
// that is granted it forgets the holds that it had, unless it asked [Request.Again].
func (c *Client) Ask(ctx context.Context, r Request) history.Type {
	if c.died() {
		return history.Info
	}
	again := r.Again && len(c.asked) > 0
	if !again {
		c.attempts++
		c.ask(nil)
		c.given = nil
	}
	owner := fmt.Sprintf("%s#%d", c.Name, c.attempts)
	asked := make([]history.Event, len(r.Locks))
	for i, name := range r.Locks {
		asked[i] = history.Event{Lock: name, Owner: owner, Mode: r.Mode, Permits: r.Permits}
	}
	begun := c.begin(asked, history.Acquire, r.Lease)
	c.ask(asked)
	some := &parts{ends: map[string]time.Duration{}}
	if len(asked) > 1 { // once all that is recorded
		c.Processes.acquiring.Store(owner, some)
		defer c.Processes.acquiring.Delete(owner)
	}
	hold, err := Ask(ctx, c.Locker, r, lock.Options{Owner: owner, Lease: r.Lease, Wait: r.Wait})
	if err == nil {
		some.mu.Lock() // what is renewed now is recorded after the grants
		defer some.mu.Unlock()
		some.granted = true
		if !again {
			c.holds = nil
		}
		c.holds = append(c.holds, &held{Hold: undertest.Of(hold), parts: slices.Clone(asked)})
		if c.Granted != nil {
			c.Granted(r)
		}
	}
	outcome := history.OK
	for i := range begun {
		e := begun[i]
		if err == nil {
			c.granted(&e, i, hold.Lease())
			if e.Expires > 0 { // the hold ends with the first of its parts, and each of them by itself
				e.Expires = max(e.Expires, some.ends[e.Lock])
			}
		}
		outcome = c.done(i, e, err, lock.ErrNotAcquired, lock.ErrNotReplicated, lock.ErrNotSet, lock.ErrTooMany).Type
		if outcome == history.Fail && !again && c.Refused != nil {
			c.Refused(ctx, e.Lock, owner)
		}
	}
	return outcome
}

// ask sets what the events of the latest attempt share.
func (c *Client) ask(asked []history.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = asked
}

// granted fills in what the i-th event of a grant says of it.
func (c *Client) granted(e *history.Event, i int, l lock.Lease) {
	e.Token, e.Node = l.Token, l.Node
	if l.Queued > 0 { // else the lock does not say
		place := l.Queued
		e.Queued = &place
	}
	if c.NodeName != nil && l.Node != "" {
		e.Node = c.NodeName(l.Node)
	}
	if e.Mode != history.Permit { // there it is the number of permits
		e.Holds = l.Holds
	}
	e.Expires = c.claim(e.Lock, e.Mode)
	c.newest().parts[i].Token, c.asked[i].Token = l.Token, l.Token
}

// claim is what the record says of when the client must stop to believe that it
// holds a lock in a mode: at the first end of its grants, since what is left after
// an inner release may be an outer grant that ends sooner. 0 for no end.
func (c *Client) claim(name string, mode history.Mode) time.Duration {
	delete(c.given, claim{name, mode})
	return c.until(name, mode)
}

// until is when the client must stop to believe that it holds a lock in a mode: at
// the end that it claimed last, also when the grant that had it was given back,
// and the others last longer. 0 for no end.
func (c *Client) until(name string, mode history.Mode) time.Duration {
	first := c.given[claim{name, mode}]
	for _, h := range c.holds {
		if !slices.ContainsFunc(h.parts, func(e history.Event) bool { return e.Lock == name && e.Mode == mode }) {
			continue
		}
		first = sooner(first, Expiry(c.Recorder, h.Lease()))
	}
	return first
}

// sooner is the first of two ends; 0 is none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// Expiry is the end of a lease on the history's time axis; 0 for none.
func Expiry(r *history.Recorder, l lock.Lease) time.Duration {
	if l.Expires.IsZero() {
		return 0
	}
	return max(l.Expires.Sub(r.Start()), 1)
}

// Extend makes the newest hold end d from now, and returns the outcome.
func (c *Client) Extend(ctx context.Context, d time.Duration) history.Type {
	return c.extend(ctx, c.newest(), d)
}

// ExtendReleased extends what was released last, which must be refused once that
// was confirmed or refused, and returns the outcome. There must have been a
// release, and no request since.
func (c *Client) ExtendReleased(ctx context.Context, d time.Duration) history.Type {
	return c.extend(ctx, c.released, d)
}

func (c *Client) extend(ctx context.Context, h *held, d time.Duration) history.Type {
	if c.died() {
		return history.Info
	}
	begun := c.begin(h.parts, history.Extend, d)
	err := h.Extend(ctx, d)
	outcome := history.OK
	for i, e := range begun {
		if err == nil {
			e.Expires = c.claim(e.Lock, e.Mode)
		}
		outcome = c.done(i, e, err, c.refusals(h)...).Type
	}
	return outcome
}

// refusals are the errors that say that the owner does not hold what a grant is
// of. There are none where the owner has another grant of the same lock that was
// not released, which may live longer: the history knows owners, and not grants.
func (c *Client) refusals(h *held) []error {
	if len(h.parts) > 1 {
		return nil // of one of them, and nothing tells which
	}
	if slices.ContainsFunc(c.holds, func(other *held) bool { return other != h && other.shares(h) }) {
		return nil
	}
	return []error{lock.ErrNotHeld}
}

// overFor notes that the owner was told that a grant is over. It stops to believe
// in the others of the same lock as well: what was recorded last is the first end
// of all of them.
func (c *Client) overFor(h *held) {
	for _, other := range c.holds {
		other.toldLost = other.toldLost || other.shares(h)
	}
	h.toldLost = true
}

// slack is how much of its lease a careful client leaves unused, at most a
// tenth of it: nothing else covers a pause between its last look at the clock
// and what it does then.
const slack = 10 * time.Millisecond

// late reports whether it is too late to use a resource under a lock, at an
// instant of the history.
func (c *Client) late(name string, at time.Duration) bool {
	if c.Careless || len(c.holds) == 0 {
		return false
	}
	h, mode := c.newest(), history.Mode("")
	for _, other := range c.holds {
		if i := slices.IndexFunc(other.parts, func(e history.Event) bool { return e.Lock == name }); i >= 0 {
			h, mode = other, other.parts[i].Mode
		}
	}
	expires := c.until(name, mode)
	return h.toldLost || expires > 0 && at > expires-min(slack, h.Lease().Length/10)
}

// errLate is what a careful client says to itself.
var errLate = errors.New(history.Abandoned)

// under is what the events of an access share. A resource is used under the
// lock that has its name, where the client holds it, and else under the one
// that it was granted last.
func (c *Client) under(resource string) history.Event {
	var base history.Event
	if len(c.asked) > 0 {
		base = c.asked[0]
	}
	for _, h := range c.holds {
		at := max(slices.IndexFunc(h.parts, func(e history.Event) bool { return e.Lock == resource }), 0)
		if base.Lock != resource || h.parts[at].Lock == resource {
			base = h.parts[at]
		}
	}
	base.Permits = 0
	base.Resource = resource
	return base
}

// Read begins an access to the resource: it reads the value. A careful client
// whose lease is over does not, and the access is recorded as failed.
func (c *Client) Read(ctx context.Context, name string, r Resource) error {
	if c.died() {
		return fmt.Errorf("read %s: %w", name, errDied)
	}
	e := c.event(0, c.under(name), history.Access, history.Invoke)
	e.Time = c.Recorder.Record(e).Time
	if c.late(e.Lock, e.Time) {
		c.done(0, e, errLate, errLate)
		return fmt.Errorf("read %s: %w", name, errLate)
	}
	if c.died() {
		c.done(0, e, errDied, errDied)
		return fmt.Errorf("read %s: %w", name, errDied)
	}
	var err error
	if f, ok := r.(Fenced); ok { // it looks at the tokens of those who read, too
		err = f.Present(ctx, e.Token)
	}
	if err == nil {
		c.read, err = r.Read(ctx)
	}
	if err != nil {
		c.done(0, e, err, ErrRefused)
		return fmt.Errorf("read %s: %w", name, err)
	}
	return nil
}

// Write ends the access that the last Read began: it writes the value that was
// read plus one, and returns the outcome. A careful client whose lease is over
// writes nothing, which is a fail.
func (c *Client) Write(ctx context.Context, name string, r Resource) history.Type {
	e := c.event(0, c.under(name), history.Access, history.OK)
	if c.late(e.Lock, time.Since(c.Recorder.Start())) {
		c.Abandon(name)
		return history.Fail
	}
	c.mu.Lock()
	if c.dead {
		c.mu.Unlock()
		return c.done(0, e, errDied, errDied).Type
	}
	err := r.Write(ctx, Change{Value: c.read + 1, Owner: e.Owner, Token: e.Token})
	c.mu.Unlock()
	e.Value = fmt.Sprintf("%d>%d", c.read, c.read+1)
	return c.done(0, e, err, ErrRefused).Type
}

// A Mortal is a lock in a process of its own, with which its clients end.
type Mortal interface {
	// Gone is closed once that process has ended; nil for a lock in the process of the run.
	Gone() <-chan struct{}
	// Lived is the last instant at which that process had certainly not ended; zero if there is none.
	Lived() time.Time
}

// errDied is why nothing is done for a client whose process is gone.
var errDied = errors.New("the process of the client has ended")

func (c *Client) died() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dead
}

// Die records that the process of the client has ended, which lived at an instant: it has crashed, and no
// resource is used for it any more. The zero instant says that it may have been gone all the time, which the
// history says from its first nanosecond on. Any other method may be under way.
func (c *Client) Die(lived time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dead = true
	for i, process := range c.processes {
		crash := history.Event{Process: process, Op: history.Crash, Type: history.Info, From: max(lived.Sub(c.Recorder.Start()), 1)}
		if i < len(c.asked) {
			crash.Lock, crash.Owner = c.asked[i].Lock, c.asked[i].Owner
		}
		c.Recorder.Record(crash)
	}
}

// Seen ends the access that the last Read began without changing anything, as
// those do who share a lock.
func (c *Client) Seen(name string) history.Type {
	e := c.event(0, c.under(name), history.Access, history.OK)
	e.Value = fmt.Sprint(c.read)
	return c.Recorder.Record(e).Type
}

// Abandon ends the access that the last Read began without writing anything.
func (c *Client) Abandon(name string) {
	e := c.event(0, c.under(name), history.Access, history.Fail)
	e.Error = errLate.Error()
	c.Recorder.Record(e)
}

// Owner is the identity that the latest attempt to acquire claimed.
func (c *Client) Owner() string {
	if len(c.asked) == 0 {
		return ""
	}
	return c.asked[0].Owner
}

// NoticeLost records, once a hold, that the client was told that it lost what it
// was granted last.
func (c *Client) NoticeLost() { c.noticeLost(c.newest()) }

func (c *Client) noticeLost(h *held) {
	if h == nil || h.toldLost || c.died() {
		return
	}
	c.overFor(h)
	for i, part := range h.parts {
		c.Recorder.Record(c.event(i, part, history.Lost, history.OK))
	}
}

// noticed records of every hold that is lost that the client was told, and
// reports whether there is one, or was one of a lock that it still has grants of.
func (c *Client) noticed() bool {
	told := false
	for _, h := range c.holds {
		select {
		case <-h.Lost():
			c.noticeLost(h)
		default:
		}
		told = told || h.toldLost
	}
	return told
}

// Release gives back what was granted last and returns the outcome. A refusal
// means that the hold had ended before.
func (c *Client) Release(ctx context.Context) history.Type {
	return c.releaseAt(ctx, len(c.holds)-1)
}

// ReleaseFirst gives back the oldest hold, as a writer does that goes on as a
// reader.
func (c *Client) ReleaseFirst(ctx context.Context) history.Type { return c.releaseAt(ctx, 0) }

// errRepeated is of a release that was confirmed after another one whose outcome is
// unknown. A service may confirm both: nothing says that it was still held.
var errRepeated = errors.New("released, by this request or by one before")

// ReleaseAgain releases once more what was released last, as those do who did not
// learn what became of it or lost count, and returns the outcome. After a release
// whose outcome is unknown, a confirmation is unknown too: it may be of that one.
// There must have been a release, and no request since.
func (c *Client) ReleaseAgain(ctx context.Context) history.Type { return c.giveBack(ctx, c.released) }

func (c *Client) releaseAt(ctx context.Context, at int) history.Type {
	c.released = c.holds[at]
	c.holds = slices.Delete(c.holds, at, at+1)
	if c.given == nil {
		c.given = map[claim]time.Duration{}
	}
	for _, part := range c.released.parts {
		of := claim{part.Lock, part.Mode}
		c.given[of] = sooner(c.given[of], Expiry(c.Recorder, c.released.Lease()))
	}
	return c.giveBack(ctx, c.released)
}

// errLapsed is of a hold without a lease that was over when its release arrived.
var errLapsed = errors.New("not held: it may have ended while its release was on its way")

// unextended is for how long a hold without a lease lives on for certain once its release was sent, with which its
// watchdog stops: two thirds of a lease, of which a watchdog keeps none of less than a second.
const unextended = 600 * time.Millisecond

func (c *Client) giveBack(ctx context.Context, h *held) history.Type {
	if c.died() {
		return history.Info
	}
	begun := c.begin(h.parts, history.Release, 0)
	sent := time.Now()
	err := h.Release(ctx)
	over := errors.Is(err, lock.ErrNotHeld)
	switch {
	case err == nil && h.unsure:
		err = errRepeated
	case over && h.Lease().Expires.IsZero() && time.Since(sent) > unextended:
		err = errLapsed
	}
	outcome := history.OK
	for i, e := range begun {
		outcome = c.done(i, e, err, c.refusals(h)...).Type
	}
	if over {
		c.overFor(h)
	}
	h.unsure = h.unsure || outcome == history.Info
	return outcome
}

// Crash ends the client in the middle of what it does: what it holds is left
// behind, to end with its lease. It continues under another number. Only holds with a
// lease can be left, for a watchdog would go on to renew them.
func (c *Client) Crash() {
	parts := 1
	for _, h := range c.holds {
		parts = max(parts, len(h.parts))
	}
	for i := range parts {
		base := history.Event{}
		if i < len(c.asked) {
			base = history.Event{Lock: c.asked[i].Lock, Owner: c.asked[i].Owner}
		}
		c.Recorder.Record(c.event(i, base, history.Crash, history.Info))
		c.renew(i)
	}
	c.holds = nil
}
