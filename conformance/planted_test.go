package conformance_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
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

	"github.com/lockchaos/lockchaos/chaos"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/promises"
)

// A bug is a row of testdata/bugs.yaml, which says what its fields are.
type bug struct {
	Bug, Check, Told, Run, Driver string
	Promises                      promises.Promises
	Hopeless                      bool
	Lease, Says                   time.Duration
	Names                         map[string]string
	With, Has, Locks              []string
	Correct, Sends                map[string][]string
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
func (b bug) locks(t *testing.T) (correct, bad harness.LockSpec) {
	t.Helper()
	switch {
	case b.Driver != "":
		return inPython(t, b.Driver+" correct"), inPython(t, b.Driver+" "+b.Bug)
	case b.Locks != nil:
		return runtest.Lock(b.Locks[0]), runtest.Lock(b.Locks[1])
	}
	right := append(named(b.With...), sends(b.Correct))
	correct = plantedSpec("correct", right...)
	bad = plantedSpec(b.Bug, slices.Concat(right, named(b.Has...), []plant{sends(b.Sends)})...)
	bad.Sends, bad.Lease = b.Names, b.Says
	correct.Promises = promises.Full(b.Promises)
	bad.Promises = correct.Promises
	return correct, bad
}

// A planted lock is one key that expires, on one server, as one process of a service opens it. It is
// correct; a bug replaces one of its parts.
type planted struct {
	rdb redis.UniversalClient
	met *atomic.Bool // whether one of the processes has misbehaved once

	sent    map[string][]string                             // for an operation, one after the other until nothing is done
	token   func(owner string) string                       // what stands in the key
	asks    func(context.Context, *planted, *request) error // as [take] does
	counter string                                          // behind a lock's name, names what counts its fencing tokens; empty: there are none
	once    map[string]error                                // what is wrong with the first request of a kind; nil: it is slow
	on      string                                          // with which the name of its lock ends

	waitsOn   bool            // a request that is cancelled is told as refused, and goes on
	guesses   bool            // a release without an answer is told as one of what was not held
	always    bool            // a watchdog renews a grant with a lease of its own as well
	over      context.Context //nolint:containedctx // it is the life of the process
	watchdogs sync.WaitGroup
}

// A request is for one lock. The lease is counted from asked on.
type request struct {
	name, token string
	lease       time.Duration
	asked       time.Time
}

// A plant changes a lock.
type plant func(p *planted)

// plantedSpec is a lock with its plants.
func plantedSpec(name string, plants ...plant) harness.LockSpec {
	met := &atomic.Bool{}
	return chaos.New(name, func(s chaos.Servers) (lock.Locker, func() error, error) {
		p := &planted{
			rdb: s.Redis, met: met, asks: take,
			token: func(string) string { return rand.Text() },
			sent: map[string][]string{
				"take":    {"SET KEY TOKEN NX PX LIFE"},
				"extend":  {extendOwn},
				"release": {"return OWN redis.call('DEL', KEYS[1]) or 0"},
			},
		}
		for _, change := range plants {
			change(p)
		}
		over, end := context.WithCancel(context.Background())
		p.over = over
		return p, func() error { end(); p.watchdogs.Wait(); return nil }, nil
	})
}

// extendOwn extends what the client holds.
const extendOwn = "return OWN redis.call('PEXPIRE', KEYS[1], ARGV[2]) or 0"

// does sends what is sent for an operation. It returns what is refused if not all of it was done.
func (p *planted) does(ctx context.Context, op string, r *request, refused error) error {
	if err, is := p.once[op]; is && strings.HasSuffix(r.name, p.on) && p.met.CompareAndSwap(false, true) {
		if err != nil {
			return err
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
		case errors.Is(err, redis.Nil), counted && n <= 0:
			return refused
		case err != nil:
			return err
		}
	}
	return nil
}

// words are the command of a step.
func words(step string, r *request) (all []any) {
	life := strconv.FormatInt(r.lease.Milliseconds(), 10)
	if strings.Contains(step, "return") {
		return []any{"EVAL", strings.ReplaceAll(step, "OWN", "redis.call('GET', KEYS[1]) == ARGV[1] and"), 1, r.name, r.token, life}
	}
	meant := strings.NewReplacer("KEY", r.name, "TOKEN", r.token, "LIFE", life)
	for word := range strings.FieldsSeq(step) {
		all = append(all, meant.Replace(word))
	}
	return all
}

// Acquire asks again as long as the client waits.
func (p *planted) Acquire(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
	r := &request{name: name, token: p.token(o.Owner), lease: cmp.Or(o.Lease, time.Second)}
	h, err := chaos.Tries(func(ctx context.Context, name string, lease time.Duration) (g chaos.Grant, err error) {
		r.asked = time.Now()
		if err = p.asks(ctx, p, r); err == nil && p.counter != "" {
			g.Token, err = p.rdb.Incr(ctx, name+p.counter).Result()
		}
		if err != nil {
			return g, err
		}
		renew, watched := p.sent["renew"]
		if lease > 0 || !watched {
			g.Expires = r.asked.Add(r.lease)
		}
		if len(renew) > 0 && (lease == 0 || p.always) { // a lease that was asked for ends by itself
			p.watchdogs.Go(func() { p.watch(r) })
		}
		g.Extend = func(ctx context.Context, d time.Duration) error {
			return p.does(ctx, "extend", &request{name: name, token: r.token, lease: d}, lock.ErrNotHeld)
		}
		g.Release = func(ctx context.Context) error {
			err := p.does(ctx, "release", r, lock.ErrNotHeld)
			if err != nil && p.guesses {
				err = lock.ErrNotHeld
			}
			return err
		}
		return g, nil
	}).Acquire(ctx, name, o)
	if ctx.Err() != nil && p.waitsOn {
		go func() {
			for errors.Is(take(context.WithoutCancel(ctx), p, r), lock.ErrNotAcquired) {
				time.Sleep(10 * time.Millisecond)
			}
		}()
		err = lock.ErrNotAcquired
	}
	return h, err
}

// watch renews a grant until that is refused.
func (p *planted) watch(r *request) {
	for await.Pause(p.over, r.lease/3) == nil {
		if errors.Is(p.does(p.over, "renew", r, lock.ErrNotHeld), lock.ErrNotHeld) {
			return
		}
	}
}

// slowly is for longer than the first lease of a check that is made with it.
const slowly = 700 * time.Millisecond

// take asks for a lock once. A request that is refused is lock.ErrNotAcquired.
func take(ctx context.Context, p *planted, r *request) error {
	return p.does(ctx, "take", r, lock.ErrNotAcquired)
}

// The parts that replace what a lock sends, and how it asks.
func sends(what map[string][]string) plant { return func(p *planted) { maps.Copy(p.sent, what) } }

func asks(ask func(context.Context, *planted, *request) error) plant {
	return func(p *planted) { p.asks = ask }
}

// misread takes each error for another one.
func misread(as error) plant {
	return asks(func(ctx context.Context, p *planted, r *request) error {
		err := take(ctx, p, r)
		if err != nil {
			err = as
		}
		return err
	})
}

// again changes a request whose outcome is open, and asks again.
func again(change func(*request)) plant {
	return asks(func(ctx context.Context, p *planted, r *request) error {
		err := take(ctx, p, r)
		if err != nil && !errors.Is(err, lock.ErrNotAcquired) {
			change(r)
			err = take(ctx, p, r)
		}
		return err
	})
}

// named are the parts of these names.
func named(names ...string) (all []plant) {
	parts := map[string]plant{
		"brisk": asks(func(ctx context.Context, p *planted, r *request) error { // it waits for a server for a small part of a lease only
			ctx, cancel := context.WithTimeout(ctx, r.lease/15)
			defer cancel()
			return take(ctx, p, r)
		}),
		"counts from the reply": asks(func(ctx context.Context, p *planted, r *request) error {
			err := take(ctx, p, r)
			r.asked = time.Now()
			return err
		}),
		"asks twice":                 again(func(*request) {}),
		"recounts":                   again(func(r *request) { r.asked = time.Now() }), // the lease begins with the second request
		"retries with another token": again(func(r *request) { r.token = rand.Text() }),
		"refuses the unknown":        misread(lock.ErrNotAcquired),
		"waits on":                   func(p *planted) { p.waitsOn = true },
		"remembers": asks(func(ctx context.Context, p *planted, r *request) error {
			if p.met.Swap(true) {
				return nil
			}
			return take(ctx, p, r)
		}),
		"tokens of clients": func(p *planted) {
			p.token = func(owner string) string { client, _, _ := strings.Cut(owner, "#"); return client }
		},
		"tokens of processes": func(p *planted) {
			process := rand.Text()
			p.token = func(string) string { return process }
		},
		"renews any":   func(p *planted) { p.always = true },
		"counts":       func(p *planted) { p.counter = ":count" },
		"counts alone": func(p *planted) { p.counter = rand.Text() },
		"guesses":      func(p *planted) { p.guesses = true },
		"late once":    func(p *planted) { p.once, p.on = map[string]error{"release": nil}, "-third" }, // so that the lease ends before the second request
	}
	for _, name := range names {
		all = append(all, parts[name])
	}
	return all
}
