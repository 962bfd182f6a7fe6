package conformance_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/promises"
)

// A bug is a row of testdata/bugs.yaml, which says what its fields are.
type bug struct {
	Bug, Check, Told, Driver string
	Lease, Says              time.Duration
	Names                    map[string]string
	With, Has, Locks         []string
	Correct, Sends           map[string][]string
}

// bugs are all of them.
func bugs(t *testing.T) (all []bug) {
	t.Helper()
	text, err := os.ReadFile("testdata/bugs.yaml")
	require.NoError(t, err)
	require.NoError(t, yaml.UnmarshalWithOptions(text, &all, yaml.Strict()))
	return all
}

// locks are the correct lock and the one with the bug.
func (b bug) locks() (correct, bad harness.LockSpec) {
	if b.Locks != nil {
		return runtest.Lock(b.Locks[0]), runtest.Lock(b.Locks[1])
	}
	right := append(named(b.With...), sends(b.Correct))
	correct = plantedSpec("correct", right...)
	bad = plantedSpec(b.Bug, slices.Concat(right, named(b.Has...), []plant{sends(b.Sends)})...)
	bad.Sends, bad.Lease = b.Names, b.Says
	for _, l := range []*harness.LockSpec{&correct, &bad} {
		l.Token, l.Watchdog, l.Fair = strings.HasPrefix(b.Check, "tokens"), strings.Contains(b.Check, "without a lease"), strings.HasPrefix(b.Check, "waiters")
		l.Cancel = strings.Contains(b.Check, "cancelled")
	}
	return correct, bad
}

// A planted lock is one key that expires, on one server, as one process of a service opens it. It is
// correct; a bug replaces one of its parts.
type planted struct {
	rdb     redis.UniversalClient
	process string       // a token of this process
	met     *atomic.Bool // whether one of the processes has misbehaved once

	sent  map[string][]string                                                           // for an operation, one after the other until nothing is done
	token func(owner string) string                                                     // what stands in the key
	life  func(lease time.Duration) time.Duration                                       // of the key; 0: it has no end
	asks  func(ctx context.Context, r *request, take func(context.Context) error) error // a request that is refused is lock.ErrNotAcquired
	ends  func(r *request) time.Time                                                    // for the holder
	moves func(end time.Time, first, extended time.Duration) time.Time                  // an extension moves the end for the holder
	count func(ctx context.Context, name string) (int64, error)                         // gives fencing tokens; nil: there are none
	once  map[string]error                                                              // what is wrong with the first request of a kind; nil: it is slow
	on    string                                                                        // with which the name of its lock ends

	byFirst   bool            // an extension is by the first lease, whatever is asked for
	guesses   bool            // a release without an answer is told as one of what was not held
	keeps     bool            // a grant without a lease is one that a watchdog keeps
	always    bool            // a watchdog renews a grant with a lease of its own as well
	over      context.Context //nolint:containedctx // it is the life of the process
	watchdogs sync.WaitGroup
}

// A request is for one lock. The lease is counted from asked on.
type request struct {
	name, token string
	lease, life time.Duration
	asked       time.Time
}

// A plant changes a lock.
type plant func(p *planted)

// plantedSpec is a lock with its plants, and misbehavedOnce one of which some misbehave once, which met tells.
func plantedSpec(name string, plants ...plant) harness.LockSpec {
	return misbehavedOnce(name, &atomic.Bool{}, plants...)
}

func misbehavedOnce(name string, met *atomic.Bool, plants ...plant) harness.LockSpec {
	return harness.LockSpec{
		Name: name, Promises: promises.Full(promises.Promises{}), Foreign: true, Commands: harness.OwnCommands(),
		Open: func(servers []redis.UniversalClient, _ harness.LockOptions) (lock.Locker, func(), error) {
			p := &planted{
				rdb: servers[0], process: rand.Text(), met: met,
				sent:  map[string][]string{"take": {"SET KEY TOKEN NX PX LIFE"}, "extend": {"OWN PEXPIRE"}, "release": {"OWN DEL"}, "look": {"GET KEY"}},
				token: func(string) string { return rand.Text() },
				life:  func(lease time.Duration) time.Duration { return lease },
				asks:  correctly,
				ends:  func(r *request) time.Time { return r.asked.Add(r.lease) },
				moves: func(_ time.Time, _, extended time.Duration) time.Time { return time.Now().Add(extended) },
			}
			for _, change := range plants {
				change(p)
			}
			if p.sent["late"] == nil {
				p.sent["late"] = p.sent["release"]
			}
			over, end := context.WithCancel(context.Background())
			p.over = over
			return p, func() { end(); p.watchdogs.Wait() }, nil
		},
	}
}

// does sends what is sent for an operation, and reports whether all was done.
func (p *planted) does(ctx context.Context, op string, r *request) (done bool, err error) {
	if err, is := p.once[op]; is && strings.HasSuffix(r.name, p.on) && p.met.CompareAndSwap(false, true) {
		if err != nil {
			return false, err
		}
		time.Sleep(slowly)
	}
	for _, step := range p.sent[op] {
		if pause, err := time.ParseDuration(step); err == nil {
			time.Sleep(pause)
			continue
		}
		answer, err := p.rdb.Do(ctx, words(step, r)...).Result()
		switch n, counted := answer.(int64); {
		case redis.HasErrorPrefix(err, "NOSCRIPT"): // taken for done
		case errors.Is(err, redis.Nil), counted && n <= 0, err == nil && step == "GET KEY" && answer != r.token:
			return false, nil
		case err != nil:
			return false, err
		}
	}
	return true, nil
}

// words are the command of a step.
func words(step string, r *request) (all []any) {
	life := strconv.FormatInt(r.life.Milliseconds(), 10)
	if heed, command, _ := strings.Cut(step, " "); heed == "OWN" || heed == "UNHEEDED" {
		step = fmt.Sprintf("redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('%s', KEYS[1]%s) or 0", command, map[bool]string{true: ", ARGV[2]"}[command != "DEL"])
		step = map[string]string{"OWN": "return " + step, "UNHEEDED": "local _ = " + step + " return 1"}[heed]
	}
	if strings.Contains(step, "KEYS") {
		return []any{"EVAL", step, 1, r.name, r.token, life}
	}
	if r.life == 0 {
		step = strings.TrimSuffix(step, " PX LIFE")
	}
	meant := strings.NewReplacer("KEY", r.name, "TOKEN", r.token, "LIFE", life)
	for word := range strings.FieldsSeq(step) {
		all = append(all, meant.Replace(word))
	}
	return all
}

// Acquire asks again as long as the client waits.
func (p *planted) Acquire(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
	l := lock.Lease{Name: name, Owner: o.Owner, Request: p.token(o.Owner), Holds: 1, Length: cmp.Or(o.Lease, time.Second)}
	r := &request{name: name, token: l.Request, lease: l.Length, life: p.life(l.Length)}
	ask := func() error {
		r.asked = time.Now()
		return p.asks(ctx, r, func(ctx context.Context) error { return refusal(p.does(ctx, "take", r)) })
	}
	err := ask()
	for until := time.Now().Add(o.Wait); errors.Is(err, lock.ErrNotAcquired) && time.Now().Before(until) && ctx.Err() == nil; err = ask() {
		time.Sleep(10 * time.Millisecond)
	}
	if err == nil && p.count != nil {
		l.Token, err = p.count(ctx, name)
	}
	if err != nil {
		return nil, err
	}
	if o.Lease > 0 || !p.keeps {
		l.Expires = p.ends(r)
	}
	if p.sent["renew"] != nil && (o.Lease == 0 || p.always) { // a lease that was asked for ends by itself
		p.watchdogs.Go(func() { p.watch(r) })
	}
	return lock.NewHold(l, kept{p}), nil
}

// refusal is of a request of which nothing was done.
func refusal(done bool, err error) error {
	if err == nil && !done {
		return lock.ErrNotAcquired
	}
	return err
}

// watch renews a grant until that is refused.
func (p *planted) watch(r *request) {
	for {
		select {
		case <-time.After(r.lease / 3):
		case <-p.over.Done():
			return
		}
		if done, err := p.does(p.over, "renew", r); err == nil && !done {
			return
		}
	}
}

// kept is how a hold asks its lock.
type kept struct{ *planted }

func (k kept) held(ctx context.Context, op string, l lock.Lease, lease time.Duration) error {
	done, err := k.does(ctx, op, &request{name: l.Name, token: l.Request, life: lease})
	if done || err != nil && !k.guesses {
		return err
	}
	return lock.ErrNotHeld
}

// Extend makes the lease end later.
func (k kept) Extend(ctx context.Context, l lock.Lease, d time.Duration) (time.Time, error) {
	end := k.moves(l.Expires, l.Length, d)
	return end, k.ExtendLate(ctx, l, d)
}

// ExtendLate asks although the hold is over.
func (k kept) ExtendLate(ctx context.Context, l lock.Lease, d time.Duration) error {
	if k.byFirst {
		d = l.Length
	}
	return k.held(ctx, "extend", l, d)
}

// Release deletes the key.
func (k kept) Release(ctx context.Context, l lock.Lease) error { return k.held(ctx, "release", l, 0) }

// ReleaseLate asks although the hold is over.
func (k kept) ReleaseLate(ctx context.Context, l lock.Lease) error { return k.held(ctx, "late", l, 0) }

// slowly is for longer than the first lease of a check that is made with it.
const slowly = 700 * time.Millisecond

// The parts that replace how a lock asks, and for how long its keys live, and what it sends; see [misread].
func asks(asks func(context.Context, *request, func(context.Context) error) error) plant {
	return func(p *planted) { p.asks = asks }
}

func lives(life func(time.Duration) time.Duration) plant { return func(p *planted) { p.life = life } }

func sends(what map[string][]string) plant { return func(p *planted) { maps.Copy(p.sent, what) } }

func correctly(ctx context.Context, _ *request, take func(context.Context) error) error {
	return take(ctx)
}

// misread takes each error for another one.
func misread(as error) plant {
	return asks(func(ctx context.Context, _ *request, take func(context.Context) error) error {
		err := take(ctx)
		if err != nil {
			err = as
		}
		return err
	})
}

// again asks again where the outcome is open, as is said.
func again(ask func(ctx context.Context, p *planted, r *request, take func(context.Context) error) error) plant {
	return func(p *planted) {
		p.asks = func(ctx context.Context, r *request, take func(context.Context) error) error {
			err := take(ctx)
			if err != nil && !errors.Is(err, lock.ErrNotAcquired) {
				err = ask(ctx, p, r, take)
			}
			return err
		}
	}
}

// takesOwn takes the client's own key for a grant.
func takesOwn(ctx context.Context, p *planted, r *request, take func(context.Context) error) error {
	err := take(ctx)
	if errors.Is(err, lock.ErrNotAcquired) {
		err = refusal(p.does(ctx, "look", r))
	}
	return err
}

// named are the parts of these names.
func named(names ...string) (all []plant) {
	parts := map[string]plant{
		"whole seconds":   lives(func(lease time.Duration) time.Duration { return (lease + time.Second - 1).Truncate(time.Second) }),
		"outlives":        lives(func(lease time.Duration) time.Duration { return lease * 7 / 5 }),
		"ends early":      lives(func(lease time.Duration) time.Duration { return lease / 5 }),
		"cuts to seconds": lives(func(lease time.Duration) time.Duration { return lease.Truncate(time.Second) }),
		"brisk": asks(func(ctx context.Context, r *request, take func(context.Context) error) error { // it waits for a server for a small part of a lease only
			ctx, cancel := context.WithTimeout(ctx, r.lease/15)
			defer cancel()
			return take(ctx)
		}),
		"asks twice": again(takesOwn),
		"recounts": again(func(ctx context.Context, p *planted, r *request, take func(context.Context) error) error {
			r.asked = time.Now() // the lease begins with the second request
			return takesOwn(ctx, p, r, take)
		}),
		"retries with another token": again(func(ctx context.Context, _ *planted, r *request, take func(context.Context) error) error {
			r.token = rand.Text()
			return take(ctx)
		}),
		"refuses the unknown":    misread(lock.ErrNotAcquired),
		"calls refusals unknown": misread(errors.New("taken")),
		"waits on": asks(func(ctx context.Context, _ *request, take func(context.Context) error) error {
			err := take(ctx)
			if ctx.Err() != nil {
				go func() {
					for errors.Is(take(context.WithoutCancel(ctx)), lock.ErrNotAcquired) {
						time.Sleep(10 * time.Millisecond)
					}
				}()
				err = lock.ErrNotAcquired
			}
			return err
		}),
		"remembers": func(p *planted) {
			granted := sync.Map{}
			p.asks = func(ctx context.Context, r *request, take func(context.Context) error) error {
				if _, remembered := granted.LoadAndDelete(r.name); remembered {
					return nil
				}
				granted.Store(r.name, true)
				return take(ctx)
			}
		},
		"tokens of clients": func(p *planted) {
			p.token = func(owner string) string { client, _, _ := strings.Cut(owner, "#"); return client }
		},
		"tokens of processes": func(p *planted) { p.token = func(string) string { return p.process } },
		"watchdog":            func(p *planted) { p.keeps, p.sent["renew"] = true, p.sent["extend"] },
		"no watchdog":         func(p *planted) { p.sent["renew"] = nil },
		"renews any":          func(p *planted) { p.always = true },
		"counts from the reply": func(p *planted) {
			p.asks, p.ends = correctly, func(r *request) time.Time { return time.Now().Add(r.lease) }
		},
		"tells no extension": func(p *planted) { p.moves = func(end time.Time, _, _ time.Duration) time.Time { return end } },
		"extends by its first lease": func(p *planted) {
			p.byFirst, p.moves = true, func(_ time.Time, first, _ time.Duration) time.Time { return time.Now().Add(first) }
		},
		"counts": func(p *planted) {
			p.count = func(ctx context.Context, name string) (int64, error) { return p.rdb.Incr(ctx, name+":count").Result() }
		},
		"counts alone": func(p *planted) {
			var n atomic.Int64
			p.count = func(context.Context, string) (int64, error) { return n.Add(1), nil }
		},
		"guesses":             func(p *planted) { p.guesses = true },
		"late once":           func(p *planted) { p.once, p.on = map[string]error{"release": nil}, "-third" }, // so that the lease ends before the second request
		"unsure once":         func(p *planted) { p.once = map[string]error{"take": errors.New("asked for the first time")} },
		"extends slowly once": func(p *planted) { p.once = map[string]error{"extend": nil} },
		"extends without an answer once": func(p *planted) {
			p.once = map[string]error{"extend": fmt.Errorf("read: %w", os.ErrDeadlineExceeded)}
		},
	}
	for _, name := range names {
		if parts[name] == nil {
			panic("no part of a planted lock is " + name)
		}
		all = append(all, parts[name])
	}
	return all
}
