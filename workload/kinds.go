package workload

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/promises"
)

// Contended is the kind of workload that every lock can have.
const Contended = "contended"

// A Kind is something that clients do with locks.
type Kind struct {
	Name  string
	About string
	// Meets are what a run of it must have met to show anything: names of counts
	// in package history.
	Meets []string
	// Needs is what the lock must be able to do.
	Needs Needs

	// locks, lease and wait are the defaults of its own; zero for those of all.
	locks       int
	lease, wait time.Duration
	session     func(ctx context.Context, w *worker)
	// Extends says that some holders extend what they hold, where the lock can.
	Extends bool
	// seldom says that only some holders do what the kind is there for: see [Config.Soon].
	seldom bool
}

// Needs are what a kind of workload asks of a lock. The zero value asks for one
// lock at a time, under an owner of its own.
type Needs struct {
	Reentry bool // an owner is granted it again
	Readers bool // it is asked for to read and to write
	Permits bool // several may be asked for at once
	Queue   bool // grants say their place in a queue
	Leases  bool // grants end by themselves
	Alone   bool // one holder at a time
	Watched bool // a hold without a lease is extended until its release
}

// Kinds lists the kinds of workload, in order of name.
func Kinds() []Kind {
	return []Kind{
		{
			Name: "bursts", About: "each client acquires one lock ten times in a row, and holds it for a twentieth of the usual time",
			Meets: []string{history.MetContention, history.MetHandOvers}, locks: 1, session: bursts,
		},
		{
			Name: Contended, About: "clients contend for a few locks, and change the protected resource by a read and a write",
			Meets: []string{history.MetContention}, Extends: true, session: contended,
		},
		{
			Name: "crash", About: "one holder in five crashes, before or after its work, and does not release",
			Meets: []string{history.MetCrashes, history.MetContention}, Needs: Needs{Leases: true},
			lease: 500 * time.Millisecond, session: crash, seldom: true,
		},
		{
			Name: "fair-queue", About: "all clients wait for one lock, long enough to be served in order",
			Meets: []string{history.MetQueued, history.MetHandOvers}, Needs: Needs{Queue: true, Alone: true},
			locks: 1, wait: 3 * time.Second, Extends: true, session: contended,
		},
		{
			Name: "give-up", About: "half of the waiting clients cancel their request while it is under way",
			Meets: []string{history.MetContention}, Needs: Needs{Leases: true}, // what came of it may be known: see [promises.Promises.Cancel]
			locks: 1, lease: time.Second, wait: 300 * time.Millisecond, session: giveUp,
		},
		{
			Name: "late-release", About: "half of the holders release only after their lease has ended and other clients hold the lock, or never",
			Meets: []string{history.MetExpiries, history.MetNotHeld, history.MetHandOvers, history.MetContention}, Needs: Needs{Leases: true, Alone: true},
			locks: 1, lease: 200 * time.Millisecond, Extends: true, session: lateRelease, seldom: true,
		},
		{
			Name: "many-locks", About: "as contended, over a hundred locks with equal shares of the requests",
			Meets: []string{history.MetContention}, locks: 100, Extends: true, session: contended,
		},
		{
			Name: "many-locks-skewed", About: "as contended, over a hundred locks of which a few get most of the requests (Zipf)",
			Meets: []string{history.MetContention, history.MetHandOvers}, locks: 100, session: skewed,
		},
		{
			Name: "permits", About: "clients acquire one permit or more, and some clients acquire one more while they hold permits",
			Meets: []string{history.MetShared, history.MetContention}, Needs: Needs{Permits: true},
			locks: 1, lease: 2 * time.Second, session: permits,
		},
		{
			Name: "re-entrant", About: "holders acquire their lock once or twice more, and release it as often",
			Meets: []string{history.MetReentries, history.MetContention}, Needs: Needs{Reentry: true, Alone: true},
			lease: 2 * time.Second, session: reentrant,
		},
		{
			Name: "readers-writers", About: "two thirds of the clients read together; some of the writers continue as readers",
			Meets: []string{history.MetShared, history.MetDowngrades, history.MetContention}, Needs: Needs{Readers: true},
			locks: 1, lease: 2 * time.Second, session: readersWriters,
		},
		{
			Name: "release-twice", About: "clients release and extend a lock again that they released before",
			Meets: []string{history.MetNotHeld, history.MetHandOvers, history.MetContention}, Needs: Needs{Leases: true, Alone: true},
			locks: 1, lease: time.Second, session: releaseTwice,
		},
		{
			Name: "several-locks", About: "clients acquire two or three locks at once, and change the resource of each",
			Meets: []string{history.MetSeveral, history.MetContention}, Needs: Needs{Alone: true},
			locks: 6, session: severalLocks,
		},
		{
			Name: "slow-holder", About: "one holder in three works for longer than its lease",
			Meets: []string{history.MetExpiries, history.MetContention}, Needs: Needs{Leases: true},
			lease: 200 * time.Millisecond, session: slowHolder,
		},
		{
			Name: "watchdog", About: "clients leave the lease to the lock, and one holder in three works for several seconds",
			Meets: []string{history.MetUnleased, history.MetHandOvers, history.MetContention}, Needs: Needs{Watched: true, Alone: true},
			locks: 1, session: watched,
		},
	}
}

var kinds = sync.OnceValue(Kinds) //nolint:gochecknoglobals // a simulation asks for a kind some ten times in a case

// Names lists the kinds.
func Names() []string { return names.Of(Kinds(), func(k Kind) string { return k.Name }) }

// KindByName is the kind with that name, which must not be changed; nil for none.
func KindByName(name string) *Kind {
	all := kinds()
	if at := slices.IndexFunc(all, func(k Kind) bool { return k.Name == name }); at >= 0 {
		return &all[at]
	}
	return nil
}

// Parse finds the kinds of a comma list.
func Parse(list string) ([]Kind, error) {
	var found []Kind
	var errs []error
	for name := range strings.SplitSeq(list, ",") {
		if k := KindByName(name); k != nil {
			found = append(found, *k)
		} else {
			errs = append(errs, names.Unknown("workload", name, Names()))
		}
	}
	return found, errors.Join(errs...)
}

// Meets are what a run of the kinds of a comma list has to meet to show anything, each of several, with a lock that does not
// promise some things. Kinds that another version knew ask for nothing.
func Meets(list string, unpromised []string) (all []string) {
	found, _ := Parse(list)
	for _, k := range found {
		for _, m := range k.Meets {
			// A lock that never says that it is not held can't meet a refused release, for instance.
			without := map[string]string{history.MetNotHeld: promises.NoReleaseTells, history.MetDowngrades: promises.NoDowngrades}[m]
			if without == "" || !slices.Contains(unpromised, without) {
				all = append(all, m)
			}
		}
	}
	return all
}

// accesses is how many times the resource is used in one hold.
const accesses = 2

// work uses the resource of a lock that is held.
func (w *worker) work(ctx context.Context, name string, length time.Duration) {
	if w.Mode == history.Permit {
		w.look(ctx, name, length)
		return
	}
	for range accesses {
		if !w.change(ctx, name, length/accesses) {
			return
		}
	}
}

// under does something with what it was granted, and gives back what is left of it.
func (w *worker) under(ctx context.Context, r Request, do func()) {
	if w.ask(ctx, r) {
		do()
		w.releaseAll(ctx)
	}
}

// hold acquires one lock, works under it, and releases it.
func (w *worker) hold(ctx context.Context, name string, length time.Duration) {
	w.under(ctx, w.one(name), func() { w.work(ctx, name, length) })
}

func contended(ctx context.Context, w *worker) {
	name, length := w.lock(), w.length()
	extends := w.Extends && w.Lease > 0 && w.rng.IntN(4) == 0
	w.under(ctx, w.one(name), func() {
		if extends {
			length /= 2
			w.work(ctx, name, length)
			w.extend(ctx)
		}
		w.work(ctx, name, length)
	})
}

func skewed(ctx context.Context, w *worker) { w.hold(ctx, w.names[w.skewed.Uint64()], w.length()) }

// Of bursts: how many holds there are in one, and how much shorter than others
// they are.
const (
	burst  = 10
	moment = 20
)

// bursts have the lock change hands within a few milliseconds, as it must for
// those who wait in one process to pass it on by themselves.
func bursts(ctx context.Context, w *worker) {
	name := w.lock()
	for range burst {
		if ctx.Err() != nil {
			return
		}
		w.hold(ctx, name, w.around(w.Hold/moment))
	}
}

func slowHolder(ctx context.Context, w *worker) {
	name, length := w.lock(), w.around(w.Hold)
	if w.rng.IntN(3) == 0 {
		length = w.Lease + w.around(w.Lease) // from one and a half to two and a half leases
	}
	w.hold(ctx, name, length)
}

// crash ends one holder in five, before or after its work, and without a release.
func crash(ctx context.Context, w *worker) {
	name, length := w.lock(), w.length()
	dies := w.rng.IntN(5) == 0
	w.under(ctx, w.one(name), func() {
		dies = w.isFirst("crash") || dies
		if !dies || w.rng.IntN(2) == 0 {
			w.work(ctx, name, length)
		}
		if dies {
			w.client.Crash()
		}
	})
}

func giveUp(ctx context.Context, w *worker) {
	name, length := w.lock(), w.length()
	patience := w.Wait + requestTimeout
	if w.rng.IntN(2) == 0 {
		patience = w.around(w.Wait / 4)
	}
	ask := func(ctx context.Context) history.Type { return w.client.Ask(ctx, w.one(name)) }
	if within(ctx, patience, ask) == history.OK {
		w.work(ctx, name, length)
		w.releaseAll(ctx)
	}
}

func reentrant(ctx context.Context, w *worker) {
	name, length := w.lock(), w.length()
	depth := 1 + w.rng.IntN(2)
	w.under(ctx, w.one(name), func() {
		for range depth {
			again := w.one(name)
			again.Again = true
			if w.stops() || !w.ask(ctx, again) {
				break
			}
			w.change(ctx, name, length/time.Duration(depth+1))
		}
		// What is left goes on after the others: the outer hold or, of one in three, the innermost.
		release := w.client.Release
		if w.rng.IntN(3) == 0 {
			release = w.client.ReleaseFirst
		}
		for len(w.client.holds) > 1 {
			within(ctx, requestTimeout, release)
		}
		w.change(ctx, name, length/time.Duration(depth+1))
	})
}

// releaseTwice releases what it has released, when others have had time to be
// granted the lock. Half of the clients gave up on the first release: the handle that
// they have does not know then that the grant is over, and the service is asked again.
func releaseTwice(ctx context.Context, w *worker) {
	name, length, pause := w.lock(), w.around(w.Hold), w.around(w.Hold)
	patience := requestTimeout
	if w.rng.IntN(2) == 0 { // at most about as long as an answer takes, so that some are on their way by then
		patience = time.Duration(w.rng.Int64N(int64(time.Millisecond)))
	}
	if !w.ask(ctx, w.one(name)) {
		return
	}
	w.work(ctx, name, length)
	within(ctx, patience, w.client.Release)
	Pause(ctx, pause)
	within(ctx, requestTimeout, w.client.ReleaseAgain)
	if within(ctx, requestTimeout, w.client.ReleaseAgain) != history.Info { // else it may be held
		within(ctx, requestTimeout, func(ctx context.Context) history.Type { return w.client.ExtendReleased(ctx, w.Lease) })
	}
}

// lateRelease has three of eight holders release when their lease is over: as the service
// sees it, and not only by the holder's own clock, which is earlier. They do not use the
// resource after it, so that only the release can do harm, to the client that holds the
// lock by then. A quarter release shortly before: where links are slow, the lease ends
// between two requests of one release; where the lock is to be extended, they extend it before.
// One of eight crashes, so that only its lease ends its hold.
func lateRelease(ctx context.Context, w *worker) {
	name, length, beyond := w.lock(), w.around(w.Hold), w.around(w.Hold)
	before := time.Duration(w.rng.Int64N(int64(min(200*time.Millisecond, w.Lease/2)) + 1)) // twice as long as a release takes
	when := w.rng.IntN(8)
	w.under(ctx, w.one(name), func() {
		if w.isFirst("late-release") || w.lateSoon {
			w.lateSoon, when = false, 2
		}
		granted := time.Now() // or before, by the service's clock
		w.work(ctx, name, length)
		switch {
		case when < 2:
			if w.Extends {
				Pause(ctx, time.Until(granted.Add(w.Lease/2)))
				granted = time.Now()
				w.extend(ctx)
			}
			Pause(ctx, time.Until(granted.Add(w.Lease-before)))
		case when < 5:
			Pause(ctx, time.Until(granted.Add(w.Lease+beyond)))
			w.stops() // which it notes
		case when == 5:
			w.client.Crash()
		}
	})
}

// watchedHold is for how long a client works that relies on the watchdog: longer than a
// lease that a library keeps alive often is.
const watchedHold = 3 * time.Second

// watched has some holders outlast the lease that the lock's watchdog extends.
func watched(ctx context.Context, w *worker) {
	r, length := w.one(w.lock()), w.around(w.Hold)
	r.Lease = 0
	if w.rng.IntN(3) == 0 {
		length = watchedHold + w.around(w.Hold)
		if w.Soon && w.rng.IntN(3) == 0 { // also several times as long as such a lease
			length += watchedHold
		}
	}
	again := r
	again.Again = true
	reenters := w.Reenters && length > watchedHold
	w.under(ctx, r, func() {
		if reenters && (!w.reentered || w.rng.IntN(2) == 0) && !w.stops() && w.ask(ctx, again) { // the release of an inner hold may stop the watchdog of all
			w.reentered = true
			within(ctx, requestTimeout, w.client.Release)
		}
		w.work(ctx, r.Locks[0], length)
	})
}

func readersWriters(ctx context.Context, w *worker) {
	name, length := w.lock(), w.length()
	r := w.one(name)
	r.Mode = history.Read
	if w.rng.IntN(3) > 0 {
		w.under(ctx, r, func() { w.look(ctx, name, length) })
		return
	}
	downgrades := w.rng.IntN(3) == 0 || !w.downgraded // once soon, for the sake of short runs
	downgrades = downgrades && w.Downgrades
	r.Mode = history.Write
	w.under(ctx, r, func() {
		w.change(ctx, name, length)
		r.Mode, r.Again = history.Read, true
		if downgrades && !w.stops() && w.ask(ctx, r) {
			w.downgraded = true
			within(ctx, requestTimeout, w.client.ReleaseFirst)
			w.look(ctx, name, length)
		}
	})
}

func permits(ctx context.Context, w *worker) {
	name, length := w.lock(), w.length()
	r := w.one(name)
	r.Mode, r.Permits = history.Permit, 1
	more := w.Several && w.Permits > 1 && w.rng.IntN(4) == 0
	if w.Several && !more && w.rng.IntN(3) == 0 {
		r.Permits += w.rng.IntN(w.Permits)
	}
	w.under(ctx, r, func() {
		if more && !w.stops() {
			// Two that wait for more while they have some wait for each other.
			r.Wait, r.Again = w.Wait/2, true
			w.ask(ctx, r)
		}
		w.look(ctx, name, length)
	})
}

func severalLocks(ctx context.Context, w *worker) {
	length := w.length()
	var names []string
	for _, i := range w.rng.Perm(len(w.names))[:min(2+w.rng.IntN(2), len(w.names))] {
		names = append(names, w.names[i])
	}
	slices.Sort(names)
	if w.takeAll(ctx, names) {
		for _, name := range names {
			if !w.change(ctx, name, length/time.Duration(len(names))) {
				break
			}
		}
	}
	w.releaseAll(ctx)
}

// takeAll acquires several locks, as the lock under test has it.
func (w *worker) takeAll(ctx context.Context, names []string) bool {
	if w.Together {
		r := w.one("")
		r.Locks = names
		return w.ask(ctx, r)
	}
	for i, name := range names {
		r := w.one(name)
		r.Again = i > 0
		if i > 0 && w.stops() || !w.ask(ctx, r) {
			return false
		}
	}
	return true
}
