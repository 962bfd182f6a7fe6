package checker

import (
	"cmp"
	"context"
	"errors"
	"hash/maphash"
	"io"
	"maps"
	"slices"
	"sort"
	"time"

	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/crew"
)

// Limits are how much a stream keeps, and for how long.
type limits struct {
	// A window has least events at the least, but for the last one, and growth
	// times as many as the last one left; where that left more than many, it takes in
	// so many, or a quarter as many.
	least, growth, many int
	// crowd is how many events may be kept before the locks that no client asks
	// for are put aside.
	crowd int
	// The last hold is kept of so many processes, of the last so many holds;
	// and so many updates of each resource.
	processes, holds, updates int
}

// usualLimits are the limits of [CheckReader].
func usualLimits() limits {
	const least = 1 << 13
	return limits{least: least, growth: 2, many: 8 * least, crowd: least / 2, processes: 256, holds: 2048, updates: 256}
}

// A Source is what a history is read from: a [history.Reader].
type Source interface {
	// ReadSome appends events to a list until it is full; see
	// [history.Reader.ReadSome].
	ReadSome(list []history.Event) ([]history.Event, error)
	// Truncated is the number of the last line if it was cut short, else 0.
	Truncated() int
}

// limit is how many events a window has at the least, of which the last one left
// so many. It takes in fewer where that left many: a process that judges 100,000
// readers at once takes 456 MB then, and 494 MB where it takes in half as many.
func (m *limits) limit(left int) int {
	n := m.growth * left
	if left > m.many {
		n = left + max(m.many, left/4)
	}
	return max(m.least, n)
}

// CheckReader is [Check] with [Explain] for a history that need not fit into memory: it is
// judged in windows as it is read, and forgotten as far as nothing that comes
// later can depend on it. Its errors are those of the reader.
//
// A window has, besides what was read since the last one, the whole account of
// every owner that may still act (see [history.Account]); the holds that began
// before one that is still open has ended; of each lock with an owner that is not
// done the two holds that reached farthest; of each lock those with the greatest token and the last places of the
// queue, and those whose order turns on what later events say of their ends; and
// faults and a little of each resource. The crashes of its
// processes and the declarations of its locks are part of it, however long ago
// they were; so is why the account of an owner could not be told: it never is
// trusted again. What is under way may still be answered in any way, and proves
// nothing until then. To leave out whole accounts keeps a legal history legal, so
// that no owner is blamed for what was forgotten. And no two of the forgotten holds
// can share an instant with a later one, unless an owner returns after an
// operation with an unknown outcome, or after its lease, and its hold turns out to
// have lasted: then it meets the hold that reached farthest.
//
// So the verdict is the same as that of [Check], with these exceptions:
//
//   - An access belongs to no hold that is known, which is Unknown, where its process
//     was granted that lock with another owner since, or was granted nothing since some
//     2,000 holds, or was retired by an unknown outcome. A lost update is told from the last 256 updates of its resource.
//   - An owner of a semaphore that returns after its lease meets some of the holds of
//     the meantime only, which is Unknown too.
//   - A request is no contention for a hold where only what is sent or answered later
//     shows that this lasted, or was granted at all.
//   - Where the account of an owner can't be told any more, Check is Unknown. What the
//     events until then have proven stands here, and so do the uses within a lease, as
//     where Check judges those events alone. A later access that names no owner is no
//     use after a lease then, which is Unknown, whichever process it is of.
//   - A grant that was answered after its own lease is weighed against the holds that are
//     kept only. A token is compared with those of the grants that are kept only, where
//     it was given to another grant while its request was under way.
//   - A lock that is not declared is a mutex until an event tells its mode.
func CheckReader(ctx context.Context, r Source, checkers ...Checker) (Report, error) {
	s := stream{session: newSession(checkers), limits: usualLimits()}
	s.session.explain = true // later, the events are gone
	err := s.judge(ctx, r)
	return s.session.report(), err
}

// A stream judges a history in windows.
type stream struct {
	session *session
	limits

	window         []history.Event
	spare          []history.Event // the window before, which may still be judged beside this one
	last           time.Duration   // of the last event
	from           int64           // the first event that no window had before
	archived       map[owner][]archivedEvent
	idle           map[string]*resting      // locks that no client asked for, where there are many
	aside          map[string]int           // how many holds of idle locks go on, by owner
	soonest        time.Duration            // when the first of them ends by itself
	archivedOwners map[string]int           // how many owners of a lock are in the archive
	doubts         map[owner]string         // why the account of an owner in the archive is unclear
	dubious        map[string]struct{}      // idle locks with an owner whose account is unclear so far
	missing        map[string]time.Duration // when the last of the holds ended that are forgotten, of each semaphore
	asked          asked
	retention      retention

	// Of what is kept for good: in a window are those of its processes and
	// locks only, so that none is judged again with every window.
	crashes  map[int][]crash          // of each process
	declared map[string]history.Event // of each lock that was declared
	before   history.Before           // of locks and owners that are unclear
}

// A crash is when the process of a crash was gone: all that later rules need of it.
type crash struct {
	index int64
	time  time.Duration
}

// An owner is one of a lock.
type owner struct{ lock, name string }

func ownerOf(e *history.Event) owner { return owner{e.Lock, nameOf(e)} }

// An archivedEvent is an event of a client on a lock, as far as it matters to who holds
// the lock, in a fifth of the space: there may be many.
type archivedEvent struct {
	index                int64
	time, lease, expires time.Duration
	token                int64
	queued               *int64
	process              int
	permits              int32 // history.MaxAmount fits
	typ, op, mode        uint8
	holds                bool // of a lock that is put aside: it asked for a hold that goes on
}

// The words of an archivedEvent, by their numbers.
func archivedTypes() [4]history.Type {
	return [...]history.Type{history.Invoke, history.OK, history.Fail, history.Info}
}

func archivedOps() [4]history.Op {
	return [...]history.Op{history.Acquire, history.Release, history.Extend, history.Lost}
}

func archivedModes() [5]history.Mode {
	return [...]history.Mode{"", history.Exclusive, history.Read, history.Write, history.Permit}
}

// number is where a word is in a list.
func number[T comparable](list []T, word T) uint8 { return uint8(max(slices.Index(list, word), 0)) }

func archive(e *history.Event) archivedEvent {
	types, ops, modes := archivedTypes(), archivedOps(), archivedModes()
	return archivedEvent{
		index: e.Index, time: e.Time, lease: e.Lease, expires: e.Expires, token: e.Token,
		process: e.Process, permits: int32(e.Permits), queued: e.Queued, //nolint:gosec // Validate sees to that
		typ: number(types[:], e.Type), op: number(ops[:], e.Op), mode: number(modes[:], e.Mode),
	}
}

// event is the event of an owner again.
func (s *archivedEvent) event(of owner) history.Event {
	return history.Event{
		Index: s.index, Time: s.time, Process: s.process, Type: archivedTypes()[s.typ], Op: archivedOps()[s.op],
		Lock: of.lock, Owner: of.name, Mode: archivedModes()[s.mode], Permits: int(s.permits),
		Lease: s.lease, Expires: s.expires, Token: s.token, Queued: s.queued,
	}
}

// A batch is some events as they were read, and why there are no more.
type batch struct {
	events []history.Event
	err    error
}

// read reads events ahead of the judge, who gives the batches back.
func read(ctx context.Context, r Source, full chan<- batch, empty <-chan []history.Event) {
	defer close(full)
	for {
		var b batch
		select {
		case b.events = <-empty:
		case <-ctx.Done():
			return
		}
		b.events, b.err = r.ReadSome(b.events[:0])
		select {
		case full <- b:
		case <-ctx.Done():
			return
		}
		if b.err != nil {
			return
		}
	}
}

func (s *stream) judge(ctx context.Context, r Source) error {
	reading, stop := context.WithCancel(context.WithoutCancel(ctx))
	// So many that the next window is read while one is judged.
	full, empty := make(chan batch, 5), make(chan []history.Event, 6)
	for range cap(empty) {
		empty <- make([]history.Event, 0, min(2048, s.least))
	}
	var reader crew.Crew
	defer func() {
		stop()
		for range full { // until the reading has ended
		}
		reader.Wait()
	}()
	defer s.session.join()
	reader.Go(func() { read(reading, r, full, empty) })
	s.idle, s.aside, s.soonest = map[string]*resting{}, map[string]int{}, history.Never
	s.dubious = map[string]struct{}{}
	s.crashes, s.declared = map[int][]crash{}, map[string]history.Event{}
	s.before = history.Before{Unclear: map[string]string{}, Owners: map[history.Owner]string{}, Guarantees: map[string]history.Guarantees{}, Joined: map[history.Asker]int64{}}
	s.asked = asked{first: map[uint64]int64{}, seed: maphash.MakeSeed()}
	s.before.Asked = s.asked.before
	s.archived, s.archivedOwners, s.doubts, s.missing = map[owner][]archivedEvent{}, map[string]int{}, map[owner]string{}, map[string]time.Duration{}
	limit := s.least
	s.window = make([]history.Event, 0, limit+room)
	for b := range full {
		for i := range b.events {
			e := &b.events[i]
			// What is said to have happened in one instant is not told apart.
			if len(s.window) >= limit && e.Time > s.last {
				s.forget(s.judgeWindow(ctx, 0, true))
				limit = s.limit(len(s.window))
				s.resize(limit + room)
			}
			s.take(e)
		}
		switch {
		case errors.Is(b.err, io.EOF):
			s.judgeWindow(ctx, r.Truncated(), false)
			return nil
		case b.err != nil:
			return b.err
		}
		empty <- b.events
	}
	return nil
}

// room is for the events that a window has beyond its limit: those of its last
// instant, and what was put aside that comes back.
const room = 1 << 10

// resize moves the window to a place with room for so many events, where the
// one that it has is too small, or takes twice as much. (To append one by one
// takes 2.25 times as much as a window of 100,000 readers has.)
func (s *stream) resize(events int) {
	if cap(s.window) < events || cap(s.window) > 2*events {
		s.window = append(make([]history.Event, 0, events), s.window...)
	}
}

// take adds an event to the window, and what its owner left in the archive, or
// what all owners left if the lock was not asked for for a while.
func (s *stream) take(e *history.Event) {
	if len(s.idle) > 0 && e.Lock != "" {
		s.wake(e.Lock)
	}
	if len(s.archived) > 0 && e.Op.OfHolder() {
		key := ownerOf(e)
		if kept, ok := s.archived[key]; ok {
			for i := range kept {
				s.window = append(s.window, kept[i].event(key))
			}
			delete(s.archived, key)
			delete(s.doubts, key)
			if s.archivedOwners[key.lock]--; s.archivedOwners[key.lock] == 0 {
				delete(s.archivedOwners, key.lock)
			}
		}
	}
	s.window = append(s.window, *e)
	s.last = e.Time
}

// admit takes back the locks, and an owner of each lock from the archive, that will
// not explain themselves any more, so that they are unclear in the end.
func (s *stream) admit() {
	for lock := range s.dubious {
		s.wake(lock)
	}
	first := map[string]string{} // of the owners of each lock, so that the reason is always the same
	for key := range s.doubts {
		if name, more := first[key.lock]; !more || key.name < name {
			first[key.lock] = key.name
		}
	}
	for lock, name := range first {
		key := owner{lock, name}
		kept := s.archived[key]
		for i := range kept {
			s.window = append(s.window, kept[i].event(key))
		}
	}
}

// recall adds to the window what earlier ones knew of its processes and locks.
func (s *stream) recall() {
	if len(s.crashes) == 0 && len(s.declared) == 0 {
		return
	}
	processes, locks := map[int]struct{}{}, map[string]struct{}{}
	name := ""
	for i := range s.window {
		e := &s.window[i]
		if e.Op.OfHolder() && len(s.crashes) > 0 {
			processes[e.Process] = struct{}{}
		}
		if e.Lock != name {
			name = e.Lock
			locks[name] = struct{}{}
		}
	}
	for process := range processes {
		for _, c := range s.crashes[process] {
			s.window = append(s.window, history.Event{Index: c.index, Time: c.time, Process: process, Type: history.Info, Op: history.Crash})
		}
	}
	for lock := range locks {
		if e, ok := s.declared[lock]; ok {
			s.window = append(s.window, e)
		}
	}
}

// suspect takes note of the locks and owners that are unclear for good: what such
// an owner does later is not trusted. One that is at it may still explain itself,
// and all that it did is kept until then.
func (s *stream) suspect(c *retention) {
	maps.Copy(s.before.Unclear, c.holdings.Unclear)
	maps.Copy(s.before.Owners, c.holdings.Doubts())
	for key, o := range c.owners {
		if o.busy && isSemaphore(c.holdings.Guarantees[key.lock].Kind) {
			o.whole, c.whole = true, true // which of its grants its answers are about may turn on what is under way
		}
	}
	for key := range c.holdings.Confused() {
		key := owner{key.Lock, key.Name}
		if c.owners[key] == nil {
			c.owners[key] = &standing{holds: -1}
		}
		c.owners[key].whole, c.whole = true, true
	}
}

// retain puts aside the crashes and declarations of a window, what it tells of
// locks that are not declared, and whose unknown acquires may be part of a hold
// that is forgotten.
func (s *stream) retain(ev *evidence) {
	holdings := ev.holdings()
	for i := range s.window {
		switch e := &s.window[i]; e.Op {
		case history.Crash:
			if e.Index >= ev.from {
				s.crashes[e.Process] = append(s.crashes[e.Process], crash{e.Index, e.Time})
			}
		case history.Declare:
			s.declared[e.Lock] = *e
		default:
		}
	}
	for lock, p := range holdings.Guarantees {
		declared, is := s.declared[lock]
		if p.Kind != history.KindMutex && !is || p.Fenced && declared.Fenced == nil {
			s.before.Guarantees[lock] = history.Guarantees{Kind: p.Kind, Fenced: p.Fenced}
		}
	}
	for i := range holdings.Accounts {
		if a := &holdings.Accounts[i]; a.Joined >= 0 {
			s.before.Joined[history.Asker{Owner: history.Owner{Lock: a.Lock, Name: a.Owner}, Read: a.Read}] = a.Joined
		}
	}
	for i := range holdings.Operations {
		op := &holdings.Operations[i]
		if e := op.Invoke; e.Op == history.Acquire && op.Complete.Index >= 0 && !op.Failed() && holdings.Guarantees[e.Lock].Kind == history.KindRW {
			s.asked.note(history.Owner{Lock: e.Lock, Name: e.Owner}, e.Mode == history.Read, e.Index)
		}
	}
}

// asked is when the owners of read-write locks first asked for them, in each
// mode: what a release without a mode is about turns on it. It has a number for
// each owner rather than its name: two that share one would be unclear.
type asked struct {
	first map[uint64]int64
	seed  maphash.Seed
}

func (a *asked) of(o history.Owner, read bool) uint64 {
	return maphash.Comparable(a.seed, struct {
		history.Owner
		read bool
	}{o, read})
}

func (a *asked) note(o history.Owner, read bool, index int64) {
	key := a.of(o, read)
	if _, known := a.first[key]; !known {
		a.first[key] = index
	}
}

func (a *asked) before(o history.Owner, read bool) (int64, bool) {
	first, ok := a.first[a.of(o, read)]
	return first, ok
}

func (s *stream) judgeWindow(ctx context.Context, truncated int, unfinished bool) *evidence {
	if !unfinished {
		s.admit()
	}
	s.rouse()
	s.recall()
	s.window = inOrder(s.window)
	ev := newEvidence(&history.History{Events: s.window, Truncated: truncated, Unfinished: unfinished, Before: s.before})
	ev.from, ev.missing, ev.aside = s.from, s.missing, s.aside
	s.session.judge(ctx, ev)
	s.from = ev.end()
	return ev
}

// inOrder puts events in order of their indices, each once. They are large, so each
// moves once: along the cycle of places that it is part of.
func inOrder(events []history.Event) []history.Event {
	sorted := true
	for i := 1; i < len(events) && sorted; i++ {
		sorted = events[i-1].Index < events[i].Index
	}
	if sorted {
		return events
	}
	type place struct {
		index int64
		from  int
	}
	order := make([]place, len(events))
	for i := range events {
		order[i] = place{events[i].Index, i}
	}
	slices.SortFunc(order, func(a, b place) int { return cmp.Compare(a.index, b.index) })
	for first := range order {
		if order[first].from < 0 {
			continue
		}
		e, at := events[first], first
		for from := order[at].from; from != first; from = order[at].from {
			events[at], order[at].from = events[from], -1
			at = from
		}
		events[at], order[at].from = e, -1
	}
	n := 1
	for i := 1; i < len(events); i++ {
		if order[i].index != order[i-1].index {
			if n < i {
				events[n] = events[i]
			}
			n++
		}
	}
	clear(events[n:])
	return events[:n]
}

// forget leaves in the window what later events may have to do with, and puts
// in the archive what belongs to owners that may never return.
func (s *stream) forget(ev *evidence) {
	s.retain(ev)
	c := &s.retention
	c.reset(ev, s.limits)
	c.broken = s.session.broken(ev)
	c.standing()
	s.suspect(c)
	c.reaching()
	c.summits()
	c.undecided()
	c.proofs()
	c.processes()
	c.uses()
	c.entangled()
	c.accesses()
	archiving := c.operations()
	s.drop(c)
	var held map[int]time.Duration
	if c.crowded() {
		held = s.heldAtRest(c)
	}
	s.miss(c)
	next, judged := s.spare[:0], s.window
	if len(judged) > roomy { // too much memory for two of them
		s.session.join()
		next = judged[:0]
	}
	for i := range judged {
		e := &judged[i]
		switch {
		case c.keep[i] && c.rests(e):
			ends, holds := held[i]
			s.rest(e, ends, holds)
			if c.holdings.Pending[e.Lock] != "" || c.later[e.Lock] {
				s.dubious[e.Lock] = struct{}{}
			}
		case c.keep[i]:
			next = append(next, *e)
		case archiving[i]:
			key := ownerOf(e)
			if s.archived[key] == nil {
				s.archivedOwners[key.lock]++
			}
			s.archived[key] = append(s.archived[key], archive(e))
			if why := ev.holdings().Doubtful(e.Lock)[key.name]; why != "" {
				s.doubts[key] = why
			}
		}
	}
	if s.window, s.spare = next, judged; len(judged) > roomy {
		clear(judged[len(next):])
		s.spare = nil
	}
	s.retention = retention{} // else those of this window would live as long as the next one
}

// miss takes note of when the last of the holds ended that are forgotten, of each
// semaphore.
func (s *stream) miss(c *retention) {
	for place, holds := range c.ev.held() {
		lock := c.holdings.Locks[place]
		if !isSemaphore(c.holdings.Guarantees[lock].Kind) {
			continue
		}
		for _, h := range holds {
			if at := c.at(h.Acquire.Invoke.Index); h.End > h.Start && at >= 0 && !c.keep[at] {
				s.missing[lock] = max(s.missing[lock], h.End)
			}
		}
	}
}

// A retention decides which events of a window go on to the next.
type retention struct {
	limits
	ev       *evidence
	holdings *holding.Holdings
	keep     []bool  // by event of the window
	old      []int64 // the indices of the events that an earlier window had

	owners map[owner]*standing
	taken  map[*holding.Hold]bool   // holds that are kept
	chosen map[int][]stretchOf      // by account: where they are
	proof  map[int][]stretchOf      // and those that prove an acquire with an unknown outcome
	free   map[string]time.Duration // when the oldest hold that is open began
	busy   []bool                   // by place of the lock: it can't be put aside
	broken map[string]struct{}      // locks with a violation
	later  map[string]bool          // locks with holds that a later window has to compare
	used   map[string]bool          // locks with holds that are kept for their processes
	whole  bool                     // some owner is kept as a whole
}

// A standing is how the accounts of an owner stand that is not settled.
type standing struct {
	open   bool  // it is at it, or holds the lock
	chosen bool  // one of its holds is kept
	busy   bool  // it is at it
	whole  bool  // all that it did is kept
	holds  int64 // the first event of what it may hold; -1 for none
}

func (c *retention) reset(ev *evidence, m limits) {
	*c = retention{
		limits: m, ev: ev, holdings: ev.holdings(), keep: make([]bool, len(ev.history.Events)),
		owners: map[owner]*standing{}, taken: map[*holding.Hold]bool{}, chosen: map[int][]stretchOf{}, free: map[string]time.Duration{},
		old:  make([]int64, 0, max(0, len(ev.history.Events)-int(ev.end()-ev.from))),
		busy: make([]bool, len(ev.holdings().Locks)), later: map[string]bool{}, used: map[string]bool{},
	}
	for i := range ev.history.Events {
		if e := &ev.history.Events[i]; e.Index < ev.from {
			c.old = append(c.old, e.Index)
		}
	}
}

// standing notes who is open and who is settled. Almost all are settled.
func (c *retention) standing() {
	for i := range c.holdings.Accounts {
		a := &c.holdings.Accounts[i]
		if a.Settled {
			continue
		}
		key := owner{a.Lock, a.Owner}
		o := c.owners[key]
		if o == nil {
			o = &standing{holds: -1}
			c.owners[key] = o
		}
		if a.Hold >= 0 && (o.holds < 0 || a.Hold < o.holds) {
			o.holds = a.Hold
		}
		o.busy = o.busy || a.Busy
		if a.Open {
			o.open = true
			c.busy[a.Place] = c.busy[a.Place] || a.Busy || !c.mayRest(a.Lock)
		}
		if since, ok := c.free[a.Lock]; a.Open && a.Since != history.Never && (!ok || a.Since < since) {
			c.free[a.Lock] = a.Since
		}
	}
}

// at is where an event is in the window.
func (c *retention) at(index int64) int {
	events := c.ev.history.Events
	if last := events[len(events)-1].Index; index >= c.ev.from && index <= last {
		return len(events) - 1 - int(last-index) // none of the new ones is missing
	}
	at, found := slices.BinarySearch(c.old, index)
	if !found {
		return -1
	}
	return at
}

func (c *retention) event(index int64) {
	if at := c.at(index); at >= 0 {
		c.keep[at] = true
	}
}

func (c *retention) operation(op *history.Operation) {
	c.event(op.Invoke.Index)
	c.event(op.Complete.Index)
}

// hold chooses a hold, of which all operations are kept. That of an owner that
// is not settled is kept with all that the owner may still do with it.
func (c *retention) hold(h *holding.Hold) {
	if c.taken[h] {
		return
	}
	c.taken[h] = true
	if o := c.owners[owner{h.Lock, h.Owner}]; o != nil {
		o.chosen = true
	}
	c.chosen[h.Account] = append(c.chosen[h.Account], c.extentOf(h))
	c.event(h.EndEvent)
}

// undecided keeps the holds of which it is not known yet whether they overlap.
func (c *retention) undecided() {
	for _, h := range c.ev.undecided {
		c.hold(h)
		c.later[h.Lock] = true
	}
}

// proofs notes the holds by which an acquire with an unknown outcome was proven,
// of owners that are not settled: it may have shortened what they hold later,
// and can't be granted again.
func (c *retention) proofs() {
	for i := range c.holdings.Holds {
		h := &c.holdings.Holds[i]
		if h.Acquire.Unknown() && h.Acquire.Complete.Index >= 0 && !c.holdings.Accounts[h.Account].Settled {
			if c.proof == nil {
				c.proof = map[int][]stretchOf{}
			}
			c.proof[h.Account] = append(c.proof[h.Account], c.extentOf(h))
		}
	}
}

// partOf reports whether an operation is a part of one of the stretches.
func partOf(list []stretchOf, op *history.Operation) bool {
	return slices.ContainsFunc(list, func(s stretchOf) bool { return op.Invoke.Index >= s.from && op.Invoke.Index <= s.until })
}

// proves reports whether a notice is part of a hold by which an acquire was proven.
func (c *retention) proves(e *history.Event) bool {
	for id, list := range c.proof {
		if a := &c.holdings.Accounts[id]; a.Lock == e.Lock && a.Owner == nameOf(e) &&
			slices.ContainsFunc(list, func(s stretchOf) bool { return e.Index >= s.from && e.Index <= s.until }) {
			return true
		}
	}
	return false
}

// extentOf is the stretch from the first event of a hold to its last.
func (c *retention) extentOf(h *holding.Hold) stretchOf {
	until := max(h.Proof.Complete.Index, h.EndEvent)
	if h.Release != nil {
		until = max(until, h.Release.Complete.Index)
	}
	for i := range h.Extensions {
		until = max(until, h.Extensions[i].Complete.Index)
	}
	if h.Ended != holding.EndReleased { // what its owner did while it lasted belongs to it
		events := c.ev.history.Events
		if n := sort.Search(len(events), func(i int) bool { return events[i].Time > h.End }); n > 0 {
			until = max(until, events[n-1].Index)
		}
	}
	return stretchOf{h.First(), until}
}

// A stretchOf a history is between two events, both included.
type stretchOf struct{ from, until int64 }

// A reached is of the holds of a lock the two that reach farthest of each mode, and
// those that a request that is not answered yet may have waited for.
type reached struct {
	far    [2][2]*holding.Hold // of writes, of reads
	waited longest
}

// reaching keeps the holds that may share an instant with one that is open, and
// of each lock those that a late confirmation must meet, and those that may have
// kept a request waiting.
func (c *retention) reaching() {
	locks := make([]reached, len(c.holdings.Locks))
	of := func(h *holding.Hold) *reached { return &locks[c.holdings.PlaceOf(h)] }
	for i := range c.holdings.Holds {
		h := &c.holdings.Holds[i]
		if since, open := c.free[h.Lock]; open && max(h.End, h.Start) > since {
			c.hold(h)
		}
		r := of(h)
		r.waited.add(h)
		far := &r.far[0]
		if h.Mode == history.Read {
			far = &r.far[1]
		}
		switch {
		case far[0] == nil || h.End >= far[0].End:
			far[0], far[1] = h, far[0]
		case far[1] == nil || h.End >= far[1].End:
			far[1] = h
		}
	}
	for i := range c.holdings.Excluded {
		of(&c.holdings.Excluded[i]).waited.add(&c.holdings.Excluded[i])
	}
	for i := range locks {
		r := &locks[i]
		for _, h := range [...]*holding.Hold{r.far[0][0], r.far[0][1], r.far[1][0], r.far[1][1], r.waited[0].hold, r.waited[1].hold} {
			if h != nil {
				c.hold(h)
			}
		}
	}
}

// A summit is of some grants of a lock the one with the greatest token, and those
// that were queued last.
type summit struct {
	token    *holding.Hold
	queued   last          // of those that were answered
	returned *holding.Hold // of those that were given back
}

func (s *summit) answered(h *holding.Hold) {
	if h.Token != 0 && (s.token == nil || h.Token > s.token.Token) {
		s.token = h
	}
	if queued(h) >= 0 {
		s.queued.add(h)
	}
}

func (s *summit) released(h *holding.Hold) {
	if s.returned == nil || queued(h) > queued(s.returned) {
		s.returned = h
	}
}

func (c *retention) summit(s *summit) {
	for _, h := range [...]*holding.Hold{s.token, s.queued[0], s.queued[1], s.returned} {
		if h != nil {
			c.hold(h)
		}
	}
}

// summits keeps the grants with the greatest token, and those that were queued
// last, of each lock: of all, of those that held it for certain, and of those that
// were answered, or given back, before a request was sent that is under way.
func (c *retention) summits() {
	numbered := make([][]*holding.Hold, len(c.holdings.Locks))
	for place, holds := range c.ev.held() {
		numbered[place] = filter(holds, func(h *holding.Hold) bool { return h.Token != 0 || queued(h) >= 0 })
	}
	asks := map[int][]time.Duration{} // in order
	for i := range c.holdings.Operations {
		op := &c.holdings.Operations[i]
		if op.Invoke.Op != history.Acquire || op.Complete.Index >= 0 {
			continue
		}
		if place := int(c.holdings.Place(op)); len(numbered[place]) > 0 {
			asks[place] = append(asks[place], op.Invoke.Time)
		}
	}
	for place, holds := range numbered {
		if len(holds) == 0 {
			continue
		}
		var certain, writes last
		returned := []*holding.Hold(nil)
		for _, h := range holds {
			if queued(h) >= 0 && h.End > h.Start {
				certain.add(h)
				if h.Mode != history.Read {
					writes.add(h)
				}
			}
			if queued(h) >= 0 && h.Ended == holding.EndReleased && h.Release != nil && h.Release.OK() {
				returned = append(returned, h)
			}
		}
		c.summit(&summit{queued: certain})
		c.summit(&summit{queued: writes})
		sortStable(holds, func(a, b *holding.Hold) int {
			return cmp.Compare(a.Acquire.Complete.Time, b.Acquire.Complete.Time)
		})
		sortStable(returned, func(a, b *holding.Hold) int {
			return cmp.Compare(a.Release.Complete.Time, b.Release.Complete.Time)
		})
		for _, h := range holds { // what is under way may be given the same token
			if len(asks[place]) > 0 && h.Token != 0 && h.Acquire.Complete.Time >= asks[place][0] {
				c.hold(h)
			}
		}
		var s summit
		for _, asked := range append(asks[place], history.Never) {
			for len(holds) > 0 && holds[0].Acquire.Complete.Time < asked {
				s.answered(holds[0])
				holds = holds[1:]
			}
			for len(returned) > 0 && returned[0].Release.Complete.Time < asked {
				s.released(returned[0])
				returned = returned[1:]
			}
			c.summit(&s)
		}
	}
}

// processes keeps the last hold on each lock of each process that was about last,
// and was not retired by an unknown outcome, and those that their holders may still
// believe in.
func (c *retention) processes() {
	type user struct {
		process int
		place   int32
	}
	retired, seen := map[int]bool{}, map[user]bool{}
	ops := c.holdings.Operations
	for i := range ops {
		if op := &ops[i]; op.Unknown() && op.Complete.Index >= 0 {
			retired[op.Invoke.Process] = true
		}
	}
	now := c.ev.history.End()
	for i := len(c.holdings.Holds) - 1; i >= 0; i-- {
		h := &c.holdings.Holds[i]
		if n := len(h.Belief); n > 0 && h.Belief[n-1].Until >= now {
			c.hold(h)
			c.used[h.Lock] = true
		}
		if by := (user{h.Process, c.holdings.PlaceOf(h)}); i >= len(c.holdings.Holds)-c.holds && len(seen) < c.limits.processes && !seen[by] && !retired[h.Process] {
			seen[by] = true
			c.hold(h)
			c.used[h.Lock] = true
		}
	}
}

// uses keeps the holds to which the accesses that are under way belong: they are
// judged when they are answered.
func (c *retention) uses() {
	var validities validitySpans
	for i := range c.holdings.Operations {
		op := &c.holdings.Operations[i]
		if e := op.Invoke; e.Op == history.Access && e.Lock != "" && op.Complete.Index < 0 {
			if validities == nil {
				validities = validitiesOf(c.holdings)
			}
			if _, last := validities.of(e); last != nil {
				c.hold(last.hold)
				c.used[e.Lock] = true
			}
		}
	}
}

// entangled keeps the holds that share an operation with one that is kept, or whose
// operations are among those of one: to leave out whole holds keeps a legal history
// legal, but a release without one of the grants that it gave back is none.
func (c *retention) entangled() {
	var joint []*history.Operation
	for i := range c.holdings.Operations {
		if _, more := c.holdings.AccountsOf(&c.holdings.Operations[i]); len(more) > 0 {
			joint = append(joint, &c.holdings.Operations[i])
		}
	}
	for more := true; more; {
		more = false
		for _, op := range joint {
			one, others := c.holdings.AccountsOf(op)
			kept := partOf(c.chosen[one], op) || slices.ContainsFunc(others, func(id int32) bool { return partOf(c.chosen[int(id)], op) })
			if !kept {
				continue
			}
			at := stretchOf{op.Invoke.Index, op.Invoke.Index}
			c.chosen[one] = with(c.chosen[one], at)
			for _, id := range others {
				c.chosen[int(id)] = with(c.chosen[int(id)], at)
			}
		}
		for i := range c.holdings.Holds {
			h := &c.holdings.Holds[i]
			if list := c.chosen[h.Account]; len(list) > 0 && !c.taken[h] {
				extent := c.extentOf(h)
				if slices.ContainsFunc(list, func(s stretchOf) bool { return s.from <= extent.until && extent.from <= s.until }) {
					c.hold(h)
					more = true
				}
			}
		}
	}
}

// with is a list with a stretch that it may have already.
func with(list []stretchOf, s stretchOf) []stretchOf {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

// accesses keeps of each resource the last updates, the access with the greatest
// token, of all and of those that were answered before one was sent that is under
// way, and the first one that may have written anything.
func (c *retention) accesses() {
	type guarded struct {
		updates []*history.Operation
		tokens  []*history.Operation
		asks    []time.Duration // in order
		unknown *history.Operation
	}
	resources := map[string]*guarded{}
	ops := c.holdings.Operations
	for i := range ops {
		op := &ops[i]
		if op.Invoke.Op != history.Access || op.Failed() {
			continue
		}
		name := cmp.Or(op.Invoke.Resource, op.Invoke.Lock)
		g := resources[name]
		if g == nil {
			g = &guarded{}
			resources[name] = g
		}
		switch {
		case op.Complete.Index < 0: // it is kept as long as it is under way
			g.asks = append(g.asks, op.Invoke.Time)
		case op.Unknown():
			if g.unknown == nil {
				g.unknown = op
			}
		default:
			if _, _, ok := update(op.Complete.Value); ok {
				g.updates = append(g.updates, op)
			}
			if token(op) != 0 {
				g.tokens = append(g.tokens, op)
			}
		}
	}
	for _, g := range resources {
		for i, op := range g.updates {
			if i >= len(g.updates)-c.updates || len(g.asks) > 0 && op.Complete.Time >= g.asks[0] {
				c.operation(op)
			}
		}
		if g.unknown != nil {
			c.operation(g.unknown)
		}
		slices.SortStableFunc(g.tokens, func(a, b *history.Operation) int { return cmp.Compare(a.Complete.Time, b.Complete.Time) })
		var newest *history.Operation
		for _, asked := range append(g.asks, history.Never) {
			for len(g.tokens) > 0 && g.tokens[0].Complete.Time < asked {
				if newest == nil || token(g.tokens[0]) > token(newest) {
					newest = g.tokens[0]
				}
				g.tokens = g.tokens[1:]
			}
			if newest != nil {
				c.operation(newest)
			}
		}
	}
}

// operations keeps what is under way, what owners that are open or were chosen
// may still depend on, faults and declarations. It tells which events belong to
// other owners that are not settled.
func (c *retention) operations() (archiving []bool) {
	archiving = make([]bool, len(c.keep))
	for _, op := range c.ev.waiting {
		c.operation(op)
	}
	ops := c.holdings.Operations
	for i := range ops {
		op := &ops[i]
		if op.Complete.Index < 0 {
			c.operation(op)
		}
		if c.whole && op.Invoke.Op.OfHolder() {
			if o := c.owners[ownerOf(op.Invoke)]; o != nil && o.whole {
				c.operation(op)
				continue
			}
		}
		if e := op.Invoke; op.Unknown() && (e.Op == history.Release || e.Op == history.Extend) && isSemaphore(c.holdings.Guarantees[e.Lock].Kind) {
			c.aside(op, archiving) // to be used again after it makes the owner unclear
		}
		one, more := c.holdings.AccountsOf(op)
		if one >= 0 {
			c.standsFor(op, one, archiving)
		}
		for _, id := range more {
			c.standsFor(op, int(id), archiving)
		}
	}
	var told map[owner][]stretchOf // holds that are kept, of which a lost may be a part
	for i := range c.ev.history.Events {
		switch e := &c.ev.history.Events[i]; e.Op {
		case history.Inject, history.Heal:
			c.keep[i] = true
		case history.Lost:
			if told == nil {
				told = c.chosenOf()
			}
			key := ownerOf(e)
			for _, s := range told[key] {
				c.keep[i] = c.keep[i] || e.Index >= s.from && e.Index <= s.until
			}
			if o := c.owners[key]; o != nil && (o.whole || o.holds >= 0 && e.Index >= o.holds || c.proves(e)) {
				c.keep[i] = c.keep[i] || o.open || o.chosen
				archiving[i] = !c.keep[i]
			}
		default:
		}
	}
	return archiving
}

// chosenOf are the holds that are kept, by owner.
func (c *retention) chosenOf() map[owner][]stretchOf {
	of := make(map[owner][]stretchOf, len(c.chosen))
	for id, list := range c.chosen {
		key := owner{c.holdings.Accounts[id].Lock, c.holdings.Accounts[id].Owner}
		of[key] = append(of[key], list...)
	}
	return of
}

// proven reports whether op is an acquire with an unknown outcome of which it is
// known what was granted: nothing that comes later can belong to it.
func (c *retention) proven(op *history.Operation) bool {
	proofs, _ := c.ev.proven()
	return op.Invoke.Op == history.Acquire && proofs[op.Ordinal()] != 0
}

// standsFor keeps or archivedOwners an operation that its account still depends on.
func (c *retention) standsFor(op *history.Operation, account int, archiving []bool) {
	if partOf(c.chosen[account], op) {
		c.operation(op)
	}
	a := &c.holdings.Accounts[account]
	if a.Settled {
		return
	}
	first := op.Invoke.Index
	later := a.Hold >= 0 && first >= a.Hold || first == a.Cut || op.Unknown() && !c.proven(op) || partOf(c.proof[account], op)
	if first < a.From || !later {
		return
	}
	c.aside(op, archiving)
}

// aside keeps an operation if its owner is open or was chosen, else it is archived.
func (c *retention) aside(op *history.Operation, archiving []bool) {
	o := c.owners[ownerOf(op.Invoke)]
	for _, index := range [...]int64{op.Invoke.Index, op.Complete.Index} {
		at := c.at(index)
		switch {
		case at < 0:
		case o != nil && (o.open || o.chosen):
			c.keep[at] = true
		default:
			archiving[at] = true
		}
	}
}
