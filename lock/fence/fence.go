// Package fence is what makes a fencing token of a lock worth having: a guard at
// the resource, which refuses the token of a holder that others have overtaken.
// See Kleppmann, "How to do distributed locking", 2016.
//
// Where the resource is a process or what only one process writes to, [Guard]
// keeps the greatest tokens in memory. Where it is Redis, [RedisGuard] keeps them
// there, and writes in the same step. A resource of another kind does the same by
// its own means: an UPDATE … WHERE token <= $1, say.
//
// A guard is as good as its memory: what has forgotten a token lets its
// predecessors in.
package fence

import (
	"errors"
	"fmt"
	"sync"
)

var (
	// ErrStale says that a greater token was seen: another owner was granted the
	// lock since.
	ErrStale = errors.New("stale fencing token")
	// ErrNotFenced says that a token is not positive: it comes from a lock that
	// gives none, as a plain Mutex.
	ErrNotFenced = errors.New("not a fencing token")
)

// A Guard keeps the greatest token that it saw of each resource, in memory: a few
// dozen bytes a resource, until Forget or the end of the process. The zero value
// has seen none, and is ready to use. It is safe for concurrent use, and must not
// be copied after that.
type Guard struct {
	mu        sync.Mutex
	resources map[string]*resource
}

// resource is the last word on one resource, and whose turn it is there.
type resource struct {
	turn      sync.Mutex
	greatest  int64
	forgotten bool // no longer in the map
}

// Check accepts a token that is not smaller than any that it saw of the resource,
// and remembers it. It refuses others with [ErrStale] or [ErrNotFenced].
//
// What is done after Check is done too late if the next holder comes in between:
// use [Guard.Do] for it.
func (g *Guard) Check(name string, token int64) error {
	return g.Do(name, token, func() error { return nil })
}

// Do calls f if Check would accept the token, and returns f's error. No other
// token of the resource is accepted or refused until f returns, so nothing slips
// in between. The token is remembered even if f fails. f must not use the guard
// for the same resource.
func (g *Guard) Do(name string, token int64, f func() error) error {
	if err := check(name, token); err != nil {
		return err
	}
	r := g.take(name)
	defer r.turn.Unlock()
	if token < r.greatest {
		return stale(name, token, r.greatest)
	}
	r.greatest = token
	return f()
}

// Greatest returns the greatest token that the guard saw of a resource; 0 if
// there was none.
func (g *Guard) Greatest(name string) int64 {
	g.mu.Lock()
	r := g.resources[name]
	g.mu.Unlock()
	if r == nil {
		return 0
	}
	r.turn.Lock()
	defer r.turn.Unlock()
	return r.greatest
}

// Forget frees what is kept of a resource, which is for resources that are gone:
// any token is accepted afterwards.
func (g *Guard) Forget(name string) {
	r := g.take(name)
	defer r.turn.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	r.forgotten, r.greatest = true, 0
	delete(g.resources, name)
}

// take waits for the turn at a resource.
func (g *Guard) take(name string) *resource {
	for {
		g.mu.Lock()
		r := g.resources[name]
		if r == nil {
			r = &resource{}
			if g.resources == nil {
				g.resources = map[string]*resource{}
			}
			g.resources[name] = r
		}
		g.mu.Unlock()
		r.turn.Lock()
		if !r.forgotten {
			return r
		}
		r.turn.Unlock()
	}
}

func check(name string, token int64) error {
	if name == "" {
		return errors.New("empty name: say which resource the token is for")
	}
	if token <= 0 {
		return fmt.Errorf("token %d for %q: %w: use a lock that gives tokens, as a FencedMutex", token, name, ErrNotFenced)
	}
	return nil
}

func stale(name string, token, greatest int64) error {
	return fmt.Errorf("token %d for %q after %d: %w", token, name, greatest, ErrStale)
}
