package lock

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"slices"
	"sync"
	"time"
)

// The waiters of one client for one lock stand in a line, of which the server
// knows one ticket at most. Who releases the lock passes it on to the first in the
// line, in memory: the grant on the server stays as it is, and its next holder
// extends and releases it. So a lock that many goroutines of a process want costs a
// request now and then.
//
// That is as safe as one holder that keeps the lock for as long:
//   - a lock is passed on [Config.Batch] times in a row at most, and for batchTime.
//     Then it is released to the first ticket, whoever's that is, unless the server
//     has said meanwhile that nobody else has one: that extends the grant and begins
//     another batch. So clients don't starve each other, and it is noticed if a
//     server has lost the grant;
//   - it is not passed on where its lease may be short, where its owner moved its
//     end or tried to release it already, nor to one who wants another lease, nor
//     once the client is closed. Who gets it asks anew if the lease ended meanwhile;
//   - the owner that the server knows is the one who was granted the lock there.
//     Therefore only those stand in a line who name no owner, and the owner in their
//     [Lease] is an alias, which means something to their client alone. Where
//     anybody asked by that alias, the lock is not passed on.
//
// The server is asked when half of a batch is used up, while the lock is passed on
// still. Where others wait, the line draws its ticket by that request.

// batchTime is for how long a lock is passed on in memory, in one batch.
const batchTime = 5 * time.Millisecond

//go:embed scripts/keep.lua
var keepLua string

// lines are those of a client.
type lines struct {
	spots sync.Pool // those in which nobody stands; what each was served was received

	mu      sync.Mutex
	of      map[lineKey]*line
	aliases map[string]*alias // by the owner in a lease
}

// lineKey tells lines apart.
type lineKey struct {
	lock    string
	lease   time.Duration
	watched bool
}

// alias is whom the server knows by another name.
type alias struct {
	lock, owner string
	asked       bool // somebody asked for the lock as this owner
	holds       int
}

// line is who waits for one lock.
type line struct {
	waiting []*spot // in the order of arrival
	ticket  *grant  // the request that a ticket is for, drawn or not
	stop    context.CancelFunc
	on      *relay        // what is passed on in it, as long as it needs no ticket; nil if it may have drawn one
	poke    chan struct{} // holds one: that was changed
}

// relay is a grant of the server's that is passed on.
type relay struct {
	claim

	copied  bool
	since   time.Time     // the batch began
	from    int           // how often it had been passed on then
	expires time.Time     // the newest end that the line knows of; zero: that of the hold
	asked   chan struct{} // closed once it is known whether others wait; nil: nobody asks
	at      int           // how often it had been passed on when that was asked
	lost    bool          // as the server said
	over    bool          // it is being released
}

// spot is where one call stands in a line.
type spot struct {
	service

	served chan struct{} // holds one, after service was set
}

// service is what a spot in a line comes to.
type service struct {
	grant  *grant
	relay  *relay
	turn   int // how often the relay was passed on
	answer answer
	err    error
}

func newLines() *lines {
	return &lines{
		spots: sync.Pool{New: func() any { return &spot{served: make(chan struct{}, 1)} }},
		of:    map[lineKey]*line{}, aliases: map[string]*alias{},
	}
}

// linesUp reports whether a grant may be passed on in memory.
func (g *grant) linesUp() bool {
	c := &g.client.config
	return g.anonymous && g.kind.tickets && !g.kind.fenced && c.ReplicaAcks == 0 && c.Batch > 0
}

func (g *grant) lineKey() lineKey { return lineKey{g.keys.lock, g.lease, g.watched} }

// owner is whom the server knows by that name, as the holder of a lock.
func (s *lines) owner(lock, name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.aliases[name]; a != nil && a.lock == lock {
		return a.owner
	}
	return name
}

// as makes g ask as its owner, by an alias if it has one.
func (s *lines) as(g *grant, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g.named, g.owner = name, name
	if a := s.aliases[name]; a != nil && a.lock == g.keys.lock {
		a.asked = true
		g.owner, g.alias = a.owner, a
	}
}

// know counts a hold of an owner with an alias, until forget is called.
func (s *lines) know(g *grant) {
	if g.named == g.owner {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if g.alias == nil {
		g.self = alias{lock: g.keys.lock, owner: g.owner}
		g.alias = &g.self
	}
	g.alias.holds++
	s.aliases[g.named] = g.alias
}

func (s *lines) forget(g *grant) {
	if g.named == g.owner {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	g.over = true
	s.drop(g)
}

// drop forgets a hold, once. s.mu is held.
func (s *lines) drop(g *grant) {
	if g.alias == nil {
		return
	}
	if g.alias.holds--; g.alias.holds == 0 {
		delete(s.aliases, g.named)
	}
	g.alias = nil
}

// join puts a call in the line for its lock; nil if there is none.
func (s *lines) join(key lineKey) *spot {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.of[key]; l != nil {
		return s.add(l)
	}
	return nil
}

func (s *lines) add(l *line) *spot {
	p, _ := s.spots.Get().(*spot)
	l.waiting = append(l.waiting, p)
	return p
}

// first takes the first out of the line.
func (l *line) first() *spot {
	if len(l.waiting) == 0 {
		return nil
	}
	p := l.waiting[0]
	l.waiting[0] = nil
	l.waiting = l.waiting[1:]
	return p
}

func (l *line) tell() {
	select {
	case l.poke <- struct{}{}:
	default:
	}
}

// serve ends the wait of the call that stands there.
func (p *spot) serve(sv service) {
	p.service = sv
	p.served <- struct{}{}
}

// open begins a line with a request that was refused, and keeps what it may have
// drawn; nil if there is a line already, or the client is closed.
func (s *lines) open(g *grant, a answer) *spot {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := g.lineKey()
	if s.of[key] != nil {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	ticket := *g
	l := &line{ticket: &ticket, stop: cancel, poke: make(chan struct{}, 1)}
	serve := func() {
		defer cancel()
		s.serve(ctx, key, l, &ticket, a)
	}
	if !g.client.spawn(serve) {
		cancel()
		return nil
	}
	s.of[key] = l
	return s.add(l)
}

// serve waits with the tickets of a line, one after the other, for as long as
// anybody stands in it, and gives what they are granted to the first.
func (s *lines) serve(ctx context.Context, key lineKey, l *line, g *grant, a answer) {
	var err error
	for {
		if err == nil && !a.granted {
			a, err = g.wait(ctx, a, time.Now(), Forever)
		}
		late := errors.Is(err, ErrNotAcquired) && ctx.Err() == nil // and given back: nobody's fault
		if err != nil && !late {
			for _, p := range s.close(key, l) {
				p.serve(service{err: err})
			}
			return
		}
		p, r, next := s.advance(key, l, g, late)
		switch {
		case late:
		case p != nil:
			p.serve(service{relay: r, answer: a})
		default:
			_ = g.withdraw(ctx)
		}
		if next == nil {
			return
		}
		if g = next; r == nil {
			a, err = g.begin(ctx, time.Now(), Forever)
		} else if a, err = s.ride(ctx, key, l, r, g); err == errNobody { //nolint:errorlint // it is ours
			return
		}
	}
}

// advance takes the first out of a line whose ticket was granted, and has the
// others wait for what it is passed on to. If its ticket came to nothing, nobody is
// taken out, and they need another one. Where nobody stood in the line, it ends.
func (s *lines) advance(key lineKey, l *line, g *grant, nothing bool) (p *spot, r *relay, next *grant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(l.waiting) == 0 {
		s.remove(key, l)
		return nil, nil, nil
	}
	if !nothing {
		p = l.first()
		r = &relay{claim: g.claim, copied: g.copied, since: time.Now()}
	}
	next = &grant{
		object: g.object, claim: claim{request: rand.Text()},
		lease: g.lease, watched: g.watched, waits: true, anonymous: true,
	}
	next.introduce()
	l.on, l.ticket = r, next
	return p, r, next
}

// errNobody says that nobody stands in a line.
var errNobody = errors.New("nobody waits")

// ride has a line go without a ticket for as long as the lock is passed on in it,
// and asks the server whether that may go on. When it may not, or when nothing is
// passed on for a while, the line draws the ticket that g is for, which may be
// granted at once.
func (s *lines) ride(ctx context.Context, key lineKey, l *line, r *relay, g *grant) (answer, error) {
	timer := time.NewTimer(batchTime)
	defer timer.Stop()
	for {
		select {
		case <-l.poke:
		case <-timer.C:
		case <-ctx.Done():
			s.alight(key, l, r)
			g.forsake(ctx)
			return answer{}, errNobody
		case <-g.client.closing:
			s.alight(key, l, r)
			return answer{}, ErrClosed
		}
		asked, rest := s.riding(r)
		switch {
		case asked:
			begin := time.Now()
			g.keeps = r.request
			a, err := g.begin(ctx, begin, Forever)
			if err == nil {
				g.keeps = ""
			}
			held := a.granted || a.ttl >= 0
			s.answered(r, begin, a, held, err)
			switch {
			case err == nil && a.granted:
				timer.Reset(batchTime)
				continue
			case err != nil:
				return a, err
			case held: // others wait
				s.alight(key, l, r)
				return a, nil
			case g.waiter != nil:
				g.client.wakeups.leave(g.waiter, false)
			}
		case rest > 0:
			timer.Reset(rest)
			continue
		}
		if !s.alight(key, l, r) {
			g.forsake(ctx)
			return answer{}, errNobody
		}
		return g.begin(ctx, time.Now(), Forever)
	}
}

// forsake takes back a ticket that a copy of a request may have drawn, or may yet.
func (g *grant) forsake(ctx context.Context) {
	if g.copied {
		_ = g.withdraw(ctx)
	}
}

// asking is the call by which g asks for its grant, or to keep another one.
func (g *grant) asking() call {
	if g.keeps == "" {
		return g.kind.acquire(g)
	}
	return on(g.client.kinds.keep, g.places, g.keeps, milliseconds(g.lease), g.ticket())
}

// riding reports whether the server is to be asked if a lock may be passed on any
// longer, and if not, how long that goes without saying.
func (s *lines) riding(r *relay) (asked bool, rest time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.over {
		return false, 0
	}
	return r.asked != nil, batchTime - time.Since(r.since)
}

// answered notes what the server said when it was asked at begin.
func (s *lines) answered(r *relay, begin time.Time, a answer, held bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && a.granted {
		r.since, r.from, r.expires = begin, r.at, a.expires
	} else {
		r.lost = err == nil && !held
	}
	r.settle()
}

// settle tells those who await an answer that there will be none, or is one.
func (r *relay) settle() {
	if r.asked != nil {
		close(r.asked)
		r.asked = nil
	}
}

// alight ends a ride. If nobody stands in the line it ends too, and the result is
// false.
func (s *lines) alight(key lineKey, l *line, r *relay) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.settle()
	l.on = nil
	if len(l.waiting) == 0 {
		s.remove(key, l)
		return false
	}
	return true
}

// close ends a line, and returns who stood in it.
func (s *lines) close(key lineKey, l *line) (left []*spot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	left, l.waiting = l.waiting, nil
	s.remove(key, l)
	return left
}

func (s *lines) remove(key lineKey, l *line) {
	if s.of[key] == l {
		delete(s.of, key)
	}
	l.stop()
}

// giveUp takes a call out of its line; false if it was served already.
func (s *lines) giveUp(key lineKey, p *spot) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.of[key]
	if l == nil {
		return false
	}
	i := slices.Index(l.waiting, p)
	if i < 0 {
		return false
	}
	l.waiting = slices.Delete(l.waiting, i, i+1)
	if len(l.waiting) == 0 && l.on == nil {
		s.remove(key, l)
	}
	return true
}

// pass gives a grant that its holder releases to the first in the line, if that may
// be, and reports whether it did.
func (s *lines) pass(ctx context.Context, g *grant, expires time.Time) bool {
	if !g.linesUp() || g.ending || g.moved {
		return false
	}
	for waited := false; ; waited = true {
		select {
		case <-g.client.closing:
			return false
		default:
		}
		p, sv, asked := s.passNow(g, expires, waited)
		if p != nil {
			p.serve(sv)
			return true
		}
		if asked == nil {
			return false
		}
		timer := time.NewTimer(batchTime)
		select {
		case <-asked:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// passNow takes the first out of the line, for what it is to be served. If that
// depends on an answer that is under way, it returns what is closed when that is
// there, unless that was awaited already.
func (s *lines) passNow(g *grant, expires time.Time, waited bool) (p *spot, sv service, asked <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.of[g.lineKey()]
	if l == nil || len(l.waiting) == 0 || g.over || g.alias != nil && g.alias.asked { // it may have re-entered
		return nil, sv, nil
	}
	r, now := g.relayed(), time.Now() // no sooner: the process may have stood still
	batch := g.client.config.Batch
	turns, age := g.turn-r.from, now.Sub(r.since)
	if r.expires.After(expires) {
		expires = r.expires
	}
	left := expires.Sub(now)
	if turns >= batch || age > batchTime || left < min(g.lease, handedLease)/2 || r.lost {
		if waited {
			return nil, sv, nil
		}
		return nil, sv, r.asked
	}
	if l.on == r && r.asked == nil && (2*turns >= batch || 2*age > batchTime) {
		r.asked, r.at = make(chan struct{}), g.turn
		l.tell()
	}
	s.drop(g)
	return l.first(), service{relay: r, turn: g.turn + 1, answer: answer{
		granted: true, handed: g.lease > handedLease && left < max(g.lease/2, handedLease), holds: 1, expires: expires,
	}}, nil
}

// relayed is what is passed on of a grant.
func (g *grant) relayed() *relay {
	if g.relay == nil {
		g.relay = &relay{claim: g.claim, copied: g.copied, since: g.since}
	}
	return g.relay
}

// take makes g the grant that was passed on to it.
func (g *grant) take(sv service) {
	g.relay, g.turn, g.own = sv.relay, sv.turn, g.request
	g.claim, g.copied = sv.relay.claim, sv.relay.copied
}

// leave is called before a grant is released on the server. A line in which nobody
// stands ends then, and its ticket goes with the release.
func (s *lines) leave(g *grant) (ticket string) {
	if !g.linesUp() {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := g.lineKey()
	l := s.of[key]
	if l == nil {
		return ""
	}
	r := g.relay
	ours := r != nil && l.on == r
	if ours {
		r.over = true
	}
	if len(l.waiting) > 0 {
		if ours {
			l.tell()
		}
		return ""
	}
	if l.on == nil || l.on.asked != nil {
		ticket = l.ticket.text()
	}
	s.remove(key, l)
	return ticket
}

// errLate says that the lease of what a call was served ended before it looked.
var errLate = errors.New("passed on too late")

// stand waits in a line. It returns what the call was served.
func (g *grant) stand(ctx context.Context, p *spot, begin time.Time, limit time.Duration) (service, error) {
	lines := g.client.lines
	var over <-chan time.Time
	if limit != Forever {
		timer := time.NewTimer(limit - time.Since(begin))
		defer timer.Stop()
		over = timer.C
	}
	var gaveUp error
	select {
	case <-p.served:
	case <-over:
		gaveUp = ErrNotAcquired
	case <-ctx.Done():
		gaveUp = ctx.Err()
	case <-g.client.closing:
		gaveUp = ErrClosed
	}
	if gaveUp != nil {
		if lines.giveUp(g.lineKey(), p) {
			lines.spots.Put(p)
			return service{}, gaveUp
		}
		<-p.served
	}
	sv := p.service
	p.service = service{}
	lines.spots.Put(p)
	switch {
	case sv.err != nil:
		return sv, sv.err
	case gaveUp != nil && gaveUp != ErrNotAcquired: //nolint:errorlint // it is ours, from above
		g.giveBack(ctx, sv)
		return service{}, gaveUp
	case !time.Now().Before(sv.answer.expires):
		g.giveBack(ctx, sv)
		return service{}, errLate
	}
	g.take(sv)
	sv.grant = g
	return sv, nil
}

// giveBack passes on what a call was served that has given up.
func (g *grant) giveBack(ctx context.Context, sv service) {
	lines, late := g.client.lines, *g
	late.take(sv)
	drop := func() {
		if !lines.pass(ctx, &late, sv.answer.expires) {
			lines.leave(&late)
			_ = late.withdraw(ctx)
		}
	}
	if !g.client.spawn(drop) {
		drop()
	}
}
