package harness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/clientclock"
	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/promises"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/workload"
)

// A LockSpec is a lock that can be put under test: what it promises, what it can
// do, and how it is opened. The configuration of a run carries it. A Name is
// needed, and Open or InProcess; all other fields may be left at zero, which
// promises a mutex with a lease and nothing else.
type LockSpec struct {
	// Name is what flags, scenarios and records call the lock.
	Name string
	// About says in a sentence what it is.
	About string

	// Promises are what the lock promises. A lock on another store than Redis connects from [LockOptions.At], and is
	// given no connections to Redis. All locks that are not Foreign are taken to have a watchdog, unless they are Endless.
	promises.Promises

	// Endless says that a grant has no lease: it lasts until it is released.
	Endless bool
	// Lease is that of a grant for which none was asked, where it is not [LockOptions.Watchdog],
	// as of a library with a default of its own. Zero: it is.
	Lease time.Duration
	// Wraps is the version of the library that a driver wraps, by its name.
	Wraps map[string]string
	// Together says that one request can be for several locks: the locker is a
	// [workload.Service].
	Together bool

	// Independent says that a lock that promises a Quorum lives on no other topology.
	Independent bool
	// Single says that it can live on one server only, without replicas.
	Single bool
	// Subscribes says that a waiter is told of a release by a message of the
	// server.
	Subscribes bool
	// Commands are the Redis commands that it sends again and again: faults wait
	// for one of them. Empty: EVALSHA. See [OwnCommands].
	Commands []string
	// Key is a key in the slot of the lock of that name; all keys of a lock share
	// one slot of a cluster. Nil: the name itself, as the hash tag of its keys.
	Key func(name string) string
	// HolderOn names the owner that holds the lock of that name, as a server says;
	// empty for none. Nil: scripts that require a hold learn the keys of the lock in a warm-up, and
	// a key that is there means that the lock is held.
	HolderOn func(ctx context.Context, server *redis.Client, name string) (string, error)
	// LooksLeft says that a request that was refused is to have left nothing of its owner, which HolderOn shows.
	LooksLeft bool

	// Foreign says that the lock is of another library: a run learns in a warm-up
	// which keys and commands it uses, and aims faults at those. See [Learn].
	Foreign bool
	// Sends are the commands that a driver names, by the words of [Footprint.Aim]: faults wait for those where the warm-up
	// did not show them.
	Sends map[string]string
	// Connects says that the lock connects to the servers by itself, from
	// [LockOptions.At]: its clients can't be processes of their own.
	Connects bool
	// Caches says that servers must tell the lock of keys that changed (client-side
	// caching, CLIENT TRACKING).
	Caches bool

	// TakesClock says that it reads the time from [LockOptions.Clock], so that the clock of a client's machine
	// can be wrong in a simulation.
	TakesClock bool

	// Open makes the lock for the clients of one zone.
	Open Opener
	// InProcess makes a lock in the harness's own memory, which asks no server, for
	// all clients of one run. Where it is set, Open is not called.
	InProcess func() lock.Locker
}

// An Opener makes a lock for the clients of one zone, on connections as
// [topologies.Clients] makes them: one to a deployment with a master or slots to
// follow, and one to each of several independent servers. The function that it
// returns closes the lock; the connections are closed by the caller.
type Opener func(servers []redis.UniversalClient, o LockOptions) (lock.Locker, func(), error)

// LockOptions configure a lock under test. Zero fields mean the lock's own
// defaults.
type LockOptions struct {
	// ReplicaAcks is how many replicas must acknowledge a grant.
	ReplicaAcks int `json:"replica_acks,omitempty"`
	// Watchdog is the lease that a lock's watchdog keeps alive.
	Watchdog time.Duration `json:"watchdog,omitempty"`
	// Permits is how many permits a semaphore has. A run sets it.
	Permits int `json:"-"`
	// At is where the clients of a run are, for a lock that connects by itself. A
	// run sets it; nil: the lock is opened by something else.
	At *Place `json:"-"`
	// Clock is that of the client's machine, for a lock that [LockSpec.TakesClock]. A simulation sets it; nil: a
	// right one.
	Clock *clientclock.Clock `json:"-"`
	// Observer is told of renewals. A run sets it; nil: they are not told.
	Observer lock.Observer `json:"-"`
	// Unclosed is told why the lock could not be closed in order. A run sets it; nil:
	// the error is dropped.
	Unclosed func(error) `json:"-"`
}

// Validate joins what is wrong with the spec itself.
func (l LockSpec) Validate() error {
	var errs []error
	if l.Name == "" {
		errs = append(errs, errors.New("a lock under test needs a name"))
	}
	if kinds := []string{"", history.KindMutex, history.KindRW, history.KindSemaphore}; !slices.Contains(kinds, l.Kind) {
		errs = append(errs, names.Unknown("kind of lock", l.Kind, kinds[1:]))
	}
	if l.Open == nil && l.InProcess == nil {
		errs = append(errs, fmt.Errorf("lock %s can't be opened: set Open", l.Name))
	}
	return errors.Join(errs...)
}

// Begin returns what opens the lock in one run.
func (l LockSpec) Begin() Opener {
	if l.InProcess == nil {
		return l.Open
	}
	shared := l.InProcess()
	return func([]redis.UniversalClient, LockOptions) (lock.Locker, func(), error) { return shared, func() {}, nil }
}

// Connect opens the lock, by what [LockSpec.Begin] returned, on connections of its own. The function
// that it returns closes both.
func (l LockSpec) Connect(open Opener, options *redis.UniversalOptions, o LockOptions) (lock.Locker, func(), error) {
	var servers []redis.UniversalClient
	if l.onRedis() {
		servers = topologies.Clients(options)
	}
	disconnect := func() {
		for _, rdb := range servers {
			_ = rdb.Close()
		}
	}
	locker, closeLock, err := open(servers, o)
	if err != nil {
		disconnect()
		return nil, nil, fmt.Errorf("open lock %s: %w", l.Name, err)
	}
	return locker, func() {
		if closeLock != nil {
			closeLock()
		}
		disconnect()
	}, nil
}

// On joins why the lock can't live on such servers with such options; nil if it
// can.
func (l LockSpec) On(topology string, servers topologies.Options, o LockOptions) error {
	var errs []error
	t, _ := topologies.New(topology, servers) // what is wrong with them is told of the servers
	if store := cmp.Or(l.Store, topologies.StoreRedis); l.InProcess == nil && l.Name != "" && store != topologies.StoreOf(topology) {
		return fmt.Errorf("lock %s is on %s, and topology %s has %s servers: use topology %s", l.Name, store, topology,
			topologies.StoreOf(topology), strings.Join(topologies.NamesOf(store), ", "))
	}
	if l.Independent && !topologies.ShapeOf(topology).Apart() {
		errs = append(errs, fmt.Errorf("lock %s needs servers that know nothing of each other: use topology %s", l.Name, topologies.Independent))
	}
	if topologies.ShapeOf(topology).Apart() && l.Name != "" && !l.Quorum && l.InProcess == nil {
		instead := "lock redlock or redsync"
		switch {
		case l.Connects:
			instead = `promise "quorum" if it is on a majority of them`
		case l.Foreign:
			instead += " (of your own: set Quorum)"
		}
		errs = append(errs, fmt.Errorf("lock %s would be on one of the servers of topology %s, which know nothing of each other: use topology %s, or %s",
			l.Name, topologies.Independent, topologies.Single, instead))
	}
	if l.Single && topology != topologies.Single {
		errs = append(errs, fmt.Errorf("lock %s is put under test on one server only: use topology %s", l.Name, topologies.Single))
	}
	switch {
	case o.ReplicaAcks > 0 && l.Name != "" && !l.ReplicaAcks:
		errs = append(errs, fmt.Errorf("lock %s asks no replicas for an acknowledgement", l.Name))
	case o.ReplicaAcks > t.Replicas():
		errs = append(errs, fmt.Errorf("%d replica acks can't come: topology %s has %d replicas", o.ReplicaAcks, topology, t.Replicas()))
	}
	return errors.Join(append(errs, lock.Config{Watchdog: o.Watchdog, ReplicaAcks: o.ReplicaAcks}.Validate())...)
}

// Declared is what the history says that the lock promises under a name, with so many permits if it is a semaphore.
func (l LockSpec) Declared(name string, permits int) history.Event {
	e := history.Event{
		Process: history.NoProcess, Op: history.Declare, Type: history.OK,
		Lock: name, Kind: cmp.Or(l.Kind, history.KindMutex), Reentrant: l.Reentrant, Fair: l.Place,
	}
	if l.Kind == history.KindSemaphore {
		e.Capacity = permits
	}
	return e
}

// Unpromised are the names of what the lock does not promise. Of locks that are not [LockSpec.Foreign] it is
// [promises.NoAcks] alone: what the others are judged by is known.
func (l LockSpec) Unpromised() []string {
	return slices.DeleteFunc(l.Missing(), func(name string) bool { return !l.Foreign && name != promises.NoAcks })
}

// LeaseOf is the lease of a grant for which so much was asked; 0: nothing was, and the lock's
// watchdog has that lease. No other client is granted the lock before its end, if the release is lost.
func (l LockSpec) LeaseOf(asked, watchdog time.Duration) time.Duration {
	if l.Connects { // a driver is told of the watchdog that is asked for
		return cmp.Or(asked, watchdog, l.Lease)
	}
	return cmp.Or(asked, l.Lease, watchdog)
}

// onRedis reports whether the lock is on Redis, where it is on servers at all.
func (l LockSpec) onRedis() bool {
	return cmp.Or(l.Store, topologies.StoreRedis) == topologies.StoreRedis
}

// Exclusive reports whether one owner at a time holds the lock, in whatever way it
// is asked for.
func (l LockSpec) Exclusive() bool { return cmp.Or(l.Kind, history.KindMutex) == history.KindMutex }

// KeyOf is a key in the slot of the lock of that name.
func (l LockSpec) KeyOf(name string) string {
	if l.Key == nil {
		return name
	}
	return l.Key(name)
}

// OwnCommands are the commands of a lock of the user's own, by the words of
// [Footprint.Aim].
func OwnCommands() []string { return []string{acquireWord, acquireLastWord, releaseWord} }

// CommandPattern are the commands that it sends again and again, with "|" between
// them.
func (l LockSpec) CommandPattern() string { return cmp.Or(strings.Join(l.Commands, "|"), "EVALSHA") }

// DefaultWorkload is the workload of a run that names none: what the lock is for.
func (l LockSpec) DefaultWorkload() string {
	switch {
	case l.Connects:
		return l.ForeignWorkload()
	case l.Kind == history.KindRW:
		return "readers-writers"
	case l.Kind == history.KindSemaphore:
		return "permits"
	case l.Together:
		return "several-locks"
	case l.Place:
		return "fair-queue"
	case l.HandsOver && !l.Foreign:
		return "bursts"
	default:
		return workload.Contended
	}
}

// ProgramWorkload is the default of a mutex of the user's own, with re-entrant and watchdog
// where it promises that. No test has played it before, and the commonest bugs of such locks
// show only where holders release and extend what is not theirs any more.
const ProgramWorkload = workload.Contended + ",release-twice,late-release"

// ForeignWorkload is the default of a lock of the user's own.
func (l LockSpec) ForeignWorkload() string {
	l.Connects = false
	kinds := l.DefaultWorkload()
	switch {
	case l.Endless:
	case l.Kind == history.KindRW:
		kinds += ",release-twice" // late ones would leave readers no time
	case l.Kind == history.KindSemaphore:
		kinds += ",slow-holder" // whose releases are late as well; several hold it at once
	case kinds == workload.Contended:
		kinds = ProgramWorkload
		if l.Reentrant {
			kinds += ",re-entrant"
		}
		if l.Watchdog {
			kinds += ",watchdog"
		}
	}
	return kinds
}

// Suits says why the lock can't have a kind of workload; nil if it can.
func (l LockSpec) Suits(k workload.Kind) error {
	n := k.Needs
	because := ""
	switch {
	case n.Readers && l.Kind != history.KindRW:
		because = "it does not tell readers from writers: use rwmutex"
	case n.Permits && l.Kind != history.KindSemaphore:
		because = "it has no permits: use semaphore or semaphore-permit"
	case n.Alone && l.Kind == history.KindSemaphore:
		because = "it lets several in at once, as many as it has permits"
	case n.Reentry && !l.Reentrant:
		because = "it is not re-entrant"
	case n.Queue && !l.Place:
		because = "it does not tell the place in its queue: use mutex-fair"
	case n.Watched && (l.Foreign && !l.Watchdog || l.Endless):
		because = "it does not promise that a watchdog extends a hold without a lease"
	case n.Leases && l.Endless:
		because = "its grants have no end, so that what is left behind stays taken"
	default:
		return nil
	}
	return fmt.Errorf("lock %s can't have workload %s: %s", l.Name, k.Name, because)
}

// Locks are locks that can be chosen by name.
type Locks []LockSpec

// Names lists them.
func (ls Locks) Names() []string {
	return names.Of(ls, func(l LockSpec) string { return l.Name })
}

// ByName is InFile of a lock that the user names.
func (ls Locks) ByName(name string) (LockSpec, error) { return ls.InFile(name, true) }

// InFile returns the lock with the name that a file gives. The error for one that is not there
// lists those that are.
//
// A name that begins with [ProgramPrefix] is a driver's command: see [Program]. A file may come from anywhere: its
// command is run, here and in a run, only if this invocation allows it.
func (ls Locks) InFile(name string, allowExec bool) (LockSpec, error) {
	switch command, ok := strings.CutPrefix(name, ProgramPrefix); {
	case ok && allowExec:
		return Program(command, nil)
	case ok:
		return LockSpec{}, fmt.Errorf("its lock is a command, %q: what a file names is run only with --allow-exec", command)
	}
	for _, l := range ls {
		if l.Name == name {
			return l, nil
		}
	}
	known := slices.DeleteFunc(ls.Names(), func(n string) bool { return strings.HasPrefix(n, "broken-") })
	hint := "known: " + strings.Join(known, ", ") + ", and those with a planted bug, broken-…"
	if nearest := names.Nearest(name, ls.Names()); nearest != "" {
		hint = "did you mean " + nearest + "? " + hint
	}
	return LockSpec{}, fmt.Errorf("unknown lock %q (%s; a lock of your own: %sCOMMAND, a driver)", name, hint, ProgramPrefix)
}
