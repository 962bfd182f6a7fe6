package harness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/internal/traffic"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/topologies"
)

const (
	// warmUpName is the lock of a warm-up, which no history has.
	warmUpName  = "lockchaos-warm-up"
	warmUpOwner = "zone.0#1"
	// warmUpLease is longer than a warm-up takes.
	warmUpLease = 30 * time.Second
	// warmUpLimit bounds a warm-up.
	warmUpLimit = 20 * time.Second
	// removedLimit is how long after a release a key may still be removed.
	removedLimit = time.Second
	// namePart stands for the name of a lock in the pattern of a key.
	namePart = "{name}"
)

// ErrUnlearnt says that the traffic of a lock does not show what a script has to know of
// it: the lock keeps or sends nothing of that kind.
var ErrUnlearnt = errors.New("this was not learnt of the lock")

// A Footprint is what a lock keeps on the servers and sends to them, as far as a
// warm-up shows it. See [Learn].
type Footprint struct {
	// Keys are those that are there while a lock is held and not after its release,
	// with {name} for the name of the lock; none where they were not learnt.
	Keys []string
	// Commands are those by which the lock does that once the servers know its scripts, as far as they were seen, by
	// the words of [Footprint.Aim].
	Commands map[string]SentCommand
}

// The words by which a fault picks a command of a foreign lock. The last command of an acquire is another one than
// the first where a lock is acquired in steps.
const acquireWord, acquireLastWord, extendWord, renewWord, releaseWord = "acquire", "acquire-last", "extend", "renew", "release"

// words are all of them. A script is called by the first of those that it is for.
var words = []string{acquireWord, extendWord, releaseWord, renewWord, acquireLastWord} //nolint:gochecknoglobals // a constant

// A SentCommand is a command that a lock sends.
type SentCommand struct {
	// Name is that of the command, in upper case: SET, EVALSHA.
	Name string
	// Script is the SHA-1 of the script that it runs; empty if it runs none.
	Script string
}

// KeysOf are the keys of the lock of that name.
func (f Footprint) KeysOf(name string) []string {
	return names.Of(f.Keys, func(k string) string { return strings.ReplaceAll(k, namePart, name) })
}

// Scripts are the names of scripts, by their SHA-1: what they are for.
func (f Footprint) Scripts() map[string]string {
	byDigest := map[string]string{}
	for _, word := range slices.Backward(words) {
		if c := f.Commands[word]; c.Script != "" {
			byDigest[c.Script] = word
		}
	}
	return byDigest
}

// Aim rewrites the words by which a fault picks a command, so that they pick one
// that the lock sends. The first word may be acquire, acquire-last, extend, renew or release; a
// command that the lock does not send is taken for acquire. It reports false where no such command was seen.
func (f Footprint) Aim(picks string) (string, bool) {
	first, rest, _ := strings.Cut(picks, " ")
	if !slices.Contains(words, first) {
		name := strings.ToUpper(first)
		for _, c := range f.Commands {
			if c.Name == name {
				return picks, true
			}
		}
		if !slices.Contains(programCommands, name) {
			return picks, true // it is about something else
		}
		first = acquireWord
	}
	sent, seen := f.Commands[first]
	if !seen {
		return picks, false
	}
	return strings.TrimSpace(cmp.Or(f.Scripts()[sent.Script], sent.Name) + " " + rest), true
}

// Learn acquires and releases a lock of its own, twice, and reads from the traffic
// of the zone's clients which keys and commands the lock uses. The first time the
// servers may learn scripts. It records nothing. A lock that promises no extension is not asked for one; where a watchdog
// renews, a hold without a lease is kept until that was seen.
//
// The error says why nothing was learnt: the lock was not granted, or the links
// do not read what passes them.
func Learn(ctx context.Context, d topologies.Deployment, zone string, l lock.Locker, extends, renews bool) (f Footprint, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, warmUpLimit, errors.New("the warm-up took too long"))
	defer cancel()
	ear, err := listen(d, zone)
	defer ear.close()
	for range 2 {
		if err == nil {
			f, err = warmUp(ctx, d, l, extends, ear)
		}
	}
	if err != nil {
		return f, fmt.Errorf("learn what the lock keeps and sends: %w", err)
	}
	if renews {
		f.learnRenewal(ctx, l, ear)
	}
	return f, nil
}

// renewalLimit is how long a watchdog may leave a hold alone until it is taken for one that sends nothing.
const renewalLimit = 4 * time.Second

// learnRenewal holds a lock without a lease until the watchdog has extended it. Of a lock that can't be held so, nothing is learnt.
func (f *Footprint) learnRenewal(ctx context.Context, l lock.Locker, ear *listener) {
	h, err := l.Acquire(ctx, warmUpName, lock.Options{Owner: warmUpOwner})
	if err != nil {
		return
	}
	ear.take()
	limited, stop := context.WithTimeout(ctx, renewalLimit)
	defer stop()
	_ = await.Until(limited, func() error { // else none was seen
		if !f.sees(renewWord, ear.take(), f.KeysOf(warmUpName)) {
			return errors.New("nothing was sent")
		}
		return nil
	})
	_ = h.Release(ctx) // of a lock that nothing else asks for
}

// warmUp is one acquire, one extend if the lock extends, and one release.
func warmUp(ctx context.Context, d topologies.Deployment, l lock.Locker, extends bool, ear *listener) (f Footprint, err error) {
	ear.take()
	var h *lock.Hold
	err = await.Until(ctx, func() error {
		h, err = l.Acquire(ctx, warmUpName, lock.Options{Owner: warmUpOwner, Lease: warmUpLease})
		return err
	})
	if err == nil && h == nil {
		err = errors.New("the lock under test returned neither a hold nor an error")
	}
	if err != nil {
		return f, fmt.Errorf("acquire: %w", err)
	}
	acquired := ear.take()
	held, err := keysThere(ctx, d)
	if err != nil {
		return f, errors.Join(err, h.Release(ctx))
	}
	f.Commands = map[string]SentCommand{}
	f.sees(acquireWord, acquired, held)
	slices.Reverse(acquired)
	f.sees(acquireLastWord, acquired, held)
	if extends && h.Extend(ctx, warmUpLease) == nil {
		f.sees(extendWord, ear.take(), held)
	}
	if err := h.Release(ctx); err != nil {
		return f, fmt.Errorf("release: %w", err)
	}
	f.sees(releaseWord, ear.take(), held)
	left, err := remaining(ctx, d)
	if err != nil {
		return f, err
	}
	for _, k := range held {
		if !slices.Contains(left, k) {
			f.Keys = append(f.Keys, strings.ReplaceAll(k, warmUpName, namePart))
		}
	}
	if len(f.Keys) == 0 {
		return f, fmt.Errorf("%w: no key with the name of the lock is on a server while it is held, and gone after the release", ErrUnlearnt)
	}
	return f, nil
}

// remaining are the keys that outlast a release: counters, for example. A replica may remove a key late.
func remaining(ctx context.Context, d topologies.Deployment) (left []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, removedLimit)
	defer cancel()
	_ = await.Until(ctx, func() error { // else some do
		left, err = keysThere(context.WithoutCancel(ctx), d)
		if len(left) > 0 {
			return errors.New("some are left")
		}
		return err
	})
	return left, err
}

// readers are commands that change nothing of a lock.
var readers = []string{ //nolint:gochecknoglobals // a constant
	"EXISTS", "GET", "HEXISTS", "HGET", "PTTL", "PUBLISH", "SUBSCRIBE", "SSUBSCRIBE", "TTL", "UNSUBSCRIBE", "SUNSUBSCRIBE", "WATCH", "WAIT",
}

// sees notes for a word the first of the commands that name a key of the lock and may change it, and reports
// whether there is one.
func (f *Footprint) sees(word string, sent [][]string, keys []string) bool {
	for _, parts := range sent {
		name := strings.ToUpper(parts[0])
		if slices.Contains(readers, name) || !slices.ContainsFunc(parts[1:], func(w string) bool { return slices.Contains(keys, w) }) {
			continue
		}
		c := SentCommand{Name: name}
		switch name {
		case "EVALSHA":
			c.Script = strings.ToLower(parts[1])
		case "EVAL":
			c.Script = faults.ScriptDigest(parts[1])
		}
		f.Commands[word] = c
		return true
	}
	return false
}

// learnTimeout bounds a look at a server before any fault, which need not hurry.
const learnTimeout = 5 * time.Second

// keysThere are the keys of the warm-up's lock that some server has.
func keysThere(ctx context.Context, d topologies.Deployment) ([]string, error) {
	var there []string
	for _, name := range d.Topology().Of(topologies.Redis) {
		some, err := thereOn(ctx, d.Server(name).Observer(), learnTimeout, warmUpName)
		if err != nil {
			return nil, err
		}
		there = append(there, some...)
	}
	return slices.Compact(slices.Sorted(slices.Values(there))), nil
}

// keysAtATime is how many keys a server is asked to look at with each request.
const keysAtATime = 1000

// thereOn are the keys that a server has with the name of a lock in them.
func thereOn(ctx context.Context, server *redis.Client, timeout time.Duration, name string) ([]string, error) {
	o := *server.Options()
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = timeout, timeout, timeout
	rdb := redis.NewClient(&o)
	defer rdb.Close()
	conn := rdb.Conn()
	defer conn.Close()
	var there []string
	for _, database := range databases(ctx, conn) {
		if database > 0 { // a cluster has no other than the first one
			if err := conn.Select(ctx, database).Err(); err != nil {
				return nil, fmt.Errorf("look for keys in database %d: %w", database, err)
			}
		}
		keys := conn.Scan(ctx, 0, "*", keysAtATime).Iterator()
		for keys.Next(ctx) {
			if strings.Contains(keys.Val(), name) {
				there = append(there, keys.Val())
			}
		}
		if err := keys.Err(); err != nil {
			return nil, fmt.Errorf("look for keys of lock %s: %w", name, err)
		}
	}
	return there, nil
}

// databases are those of a server that have keys, as far as it says that, and the first one.
func databases(ctx context.Context, conn *redis.Conn) []int {
	all := []int{0}
	info, _ := conn.InfoMap(ctx, "keyspace").Result()
	for name := range info["Keyspace"] {
		if n, err := strconv.Atoi(strings.TrimPrefix(name, "db")); err == nil && n > 0 {
			all = append(all, n)
		}
	}
	return all
}

// A listener keeps the commands that pass some links.
type listener struct {
	stops []func()

	mu   sync.Mutex
	sent [][]string
}

// listen listens to the links of the clients of a zone.
func listen(d topologies.Deployment, zone string) (*listener, error) {
	ear := &listener{}
	for _, link := range d.Topology().Links {
		if link.Kind != topologies.Client || link.From != zone {
			continue
		}
		r, ok := d.Proxy(link.Name()).(topologies.Interceptor)
		if !ok {
			return ear, errors.New("the links of this deployment are not read")
		}
		stop, err := r.Judge(ear.hear)
		if err != nil {
			return ear, err
		}
		ear.stops = append(ear.stops, stop)
	}
	return ear, nil
}

// hear keeps a message, and does nothing to it.
func (e *listener) hear(m traffic.Message) traffic.Action {
	if m.Kind == traffic.Command && len(m.Words) > 1 {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.sent = append(e.sent, slices.Clone(m.Words))
	}
	return traffic.Action{}
}

// take returns what was kept since it was called last.
func (e *listener) take() [][]string {
	e.mu.Lock()
	defer e.mu.Unlock()
	sent := e.sent
	e.sent = nil
	return sent
}

func (e *listener) close() {
	for _, stop := range e.stops {
		stop()
	}
}

// ParamCommand is the parameter that names a command of a lock.
const ParamCommand = "command"

// mostNames is how many names of a lock are tried.
const mostNames = 1000

// NameOnServerOf is a name that begins with the name of a lock, and whose key is on
// the server that has the slot of that name.
func (st *Session) NameOnServerOf(ctx context.Context, name string) (string, error) {
	want, err := servedBy(ctx, st.deployment, name)
	if err != nil {
		return "", err
	}
	for n := range mostNames {
		other := name
		if n > 0 {
			other = fmt.Sprintf("%s-%d", name, n+1)
		}
		server, err := servedBy(ctx, st.deployment, st.footprint.KeysOf(other)[0])
		if err != nil {
			return "", err
		}
		if server == want {
			return other, nil
		}
	}
	return "", fmt.Errorf("%w: no name was found of which the lock keeps its key on %s: all its keys may be in one slot", ErrUnlearnt, want)
}

// Learn learns what the lock keeps on the servers and sends to them, from the traffic
// of a client that it opens in a zone.
func (st *Session) Learn(ctx context.Context, zone string) error {
	l, err := st.locker(zone)
	if err != nil {
		return err
	}
	return st.learn(ctx, zone, l)
}

// learn learns what the lock keeps on the servers and sends to them, from the
// traffic of a zone.
func (st *Session) learn(ctx context.Context, zone string, l lock.Locker) error {
	f, err := Learn(ctx, st.deployment, zone, l, st.lock.Extend, st.lock.Watchdog && st.run.Scenario == "")
	if err != nil {
		return err
	}
	f.Commands = sent(st.lock.Sends, f.Commands)
	st.footprint = f
	for _, name := range st.locks {
		st.keys[name] = f.KeysOf(name)[0]
	}
	st.Log.InfoContext(ctx, "learnt what the lock uses", "keys", f.Keys, "commands", f.Commands)
	return nil
}

// HeldOn reports whether a server says that the owner holds the lock, as far as it
// can be asked: keys that were learnt can't tell whose grant they are of.
func (st *Session) HeldOn(ctx context.Context, server *redis.Client, name, owner string) (bool, error) {
	switch {
	case st.lock.HolderOn != nil:
		holder, err := st.lock.HolderOn(ctx, server, name)
		return err == nil && holder == owner, err
	case st.footprint.Keys != nil:
		there, err := thereOn(ctx, server, server.Options().ReadTimeout, name)
		return slices.ContainsFunc(st.footprint.KeysOf(name), func(k string) bool { return slices.Contains(there, k) }), err
	default:
		return false, errors.New("the keys of the lock are not known")
	}
}

// sent are commands by their words: those of a driver's hello, but where others were seen.
func sent(names map[string]string, seen map[string]SentCommand) map[string]SentCommand {
	all := map[string]SentCommand{}
	for word, name := range names {
		all[word] = SentCommand{Name: name}
	}
	maps.Copy(all, seen)
	return all
}

// usual are the commands that most locks send for a word, for where nothing could be learnt.
var usual = map[string]string{acquireWord: "SET", acquireLastWord: "SET", releaseWord: "EVALSHA"} //nolint:gochecknoglobals // a constant

// aimAtLock are the parameters with which a fault of commands waits for one that the lock sends, as far as
// that was learnt.
func (st *Session) aimAtLock(s faults.Step) (map[string]string, error) {
	picks := s.Params[ParamCommand]
	if _, other := faults.OfResource(s.Target); other || picks == "" || !st.lock.Foreign {
		return s.Params, nil
	}
	f := st.footprint
	for _, instead := range [][2]string{{renewWord, extendWord}, {extendWord, releaseWord}} {
		// In a random run, what was not seen is drawn all the same: another request of a holder stands in.
		if _, seen := f.Commands[picks]; st.run.Scenario == "" && picks == instead[0] && !seen {
			picks = instead[1]
		}
	}
	aimed, seen := f.Aim(picks)
	if !seen {
		return s.Params, fmt.Errorf("%w: the fault waits for %q, and lock %s sends no such command", ErrUnlearnt, picks, st.lock.Name)
	}
	params := maps.Clone(s.Params)
	params[ParamCommand] = aimed
	return params, nil
}
