package conformance_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/promises"
)

const (
	extendOwn = `return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('PEXPIRE', KEYS[1], ARGV[2]) or 0`
	deleteOwn = `return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0`
)

// A planted lock is one key that expires, on one server, as one process of a service opens it. It is
// correct; a bug replaces one of its steps.
type planted struct {
	rdb     redis.UniversalClient
	process string       // a token of this process
	met     *atomic.Bool // whether one of the processes has misbehaved once

	token   func(owner string) string                   // what stands in the key
	life    func(lease time.Duration) time.Duration     // of the key
	take    func(ctx context.Context, r *request) error // one that the service refuses is lock.ErrNotAcquired
	ends    func(r *request) time.Time                  // for the holder
	moves   func(end, extended time.Time) time.Time     // an extension moves the end for the holder
	fences  func(ctx context.Context, name string) (int64, error)
	renew   func(ctx context.Context, r *request) (done bool, err error) // by a watchdog; nil: there is none
	extend  func(ctx context.Context, name, token string, lease time.Duration) (done bool, err error)
	release func(ctx context.Context, name, token string) (done bool, err error)
	late    func(ctx context.Context, name, token string) (done bool, err error) // a release of what was released

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
			p := &planted{rdb: servers[0], process: rand.Text(), met: met}
			p.token = func(string) string { return rand.Text() }
			p.life = func(lease time.Duration) time.Duration { return lease }
			p.take = p.set
			p.ends = func(r *request) time.Time { return r.asked.Add(r.lease) }
			p.moves = func(_, extended time.Time) time.Time { return extended }
			p.extend = func(ctx context.Context, name, token string, lease time.Duration) (bool, error) {
				return p.run(ctx, extendOwn, name, token, lease.Milliseconds())
			}
			p.release = func(ctx context.Context, name, token string) (bool, error) { return p.run(ctx, deleteOwn, name, token) }
			for _, change := range plants {
				change(p)
			}
			if p.late == nil {
				p.late = p.release
			}
			over, end := context.WithCancel(context.Background())
			p.over = over
			return p, func() { end(); p.watchdogs.Wait() }, nil
		},
	}
}

func (p *planted) run(ctx context.Context, script, name string, args ...any) (bool, error) {
	done, err := p.rdb.Eval(ctx, script, []string{name}, args...).Int()
	return done == 1, err
}

// set is the correct request.
func (p *planted) set(ctx context.Context, r *request) error {
	return took(p.rdb.SetNX(ctx, r.name, r.token, r.life).Result())
}

func took(granted bool, err error) error {
	if err == nil && !granted {
		return lock.ErrNotAcquired
	}
	return err
}

// own reports whether the key has that token.
func (p *planted) own(ctx context.Context, c redis.Cmdable, name, token string) (bool, error) {
	there, err := c.Get(ctx, name).Result()
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	return there == token, err
}

// Acquire asks once.
func (p *planted) Acquire(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
	l := lock.Lease{Name: name, Owner: o.Owner, Request: p.token(o.Owner), Holds: 1, Length: o.Lease}
	r := &request{name: name, token: l.Request, lease: cmp.Or(o.Lease, time.Second), asked: time.Now()}
	r.life = p.life(r.lease)
	err := p.take(ctx, r)
	if err == nil && p.fences != nil {
		l.Token, err = p.fences(ctx, name)
	}
	if err != nil {
		return nil, err
	}
	if o.Lease > 0 || !p.keeps {
		l.Length, l.Expires = r.lease, p.ends(r)
	}
	if p.renew != nil && (o.Lease == 0 || p.always) { // a lease that was asked for ends by itself
		p.watchdogs.Go(func() { p.watch(r) })
	}
	return lock.NewHold(l, kept{p}), nil
}

// watch renews a grant until that is refused.
func (p *planted) watch(r *request) {
	for {
		select {
		case <-time.After(r.lease / 3):
		case <-p.over.Done():
			return
		}
		if done, err := p.renew(p.over, r); err == nil && !done {
			return
		}
	}
}

// kept is how a hold asks its lock.
type kept struct{ *planted }

func held(done bool, err error) error {
	if err == nil && !done {
		return lock.ErrNotHeld
	}
	return err
}

// Extend makes the lease end later.
func (k kept) Extend(ctx context.Context, l lock.Lease, d time.Duration) (time.Time, error) {
	extended := time.Now().Add(d)
	return k.moves(l.Expires, extended), k.ExtendLate(ctx, l, d)
}

// Release deletes the key.
func (k kept) Release(ctx context.Context, l lock.Lease) error {
	return held(k.release(ctx, l.Name, l.Request))
}

// ExtendLate asks although the hold is over.
func (k kept) ExtendLate(ctx context.Context, l lock.Lease, d time.Duration) error {
	return held(k.extend(ctx, l.Name, l.Request, d))
}

// ReleaseLate asks although the hold is over.
func (k kept) ReleaseLate(ctx context.Context, l lock.Lease) error {
	return held(k.late(ctx, l.Name, l.Request))
}

// afterLook changes the key in a transaction, after a request that looks at the owner. A transaction
// that was not made, since the key had changed, counts as made where the result is not heeded.
func (p *planted) afterLook(ctx context.Context, name, token string, heeds bool, change func(redis.Pipeliner)) (done bool, err error) {
	err = p.rdb.Watch(ctx, func(tx *redis.Tx) error {
		if done, err = p.own(ctx, tx, name, token); err != nil || !done {
			return err
		}
		_, err := tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			change(pipe)
			return nil
		})
		return err
	}, name)
	if errors.Is(err, redis.TxFailedErr) {
		return !heeds, nil
	}
	return done, err
}

// wholeSeconds has leases of whole seconds, none shorter than was asked for: it is correct.
func wholeSeconds(p *planted) {
	p.life = func(lease time.Duration) time.Duration { return (lease + time.Second - 1).Truncate(time.Second) }
}

// outlives has keys outlive their leases.
func outlives(p *planted) { p.life = func(lease time.Duration) time.Duration { return lease * 7 / 5 } }

// releasesAfterLook and extendsAfterLook look at the owner first.
func releasesAfterLook(heeds bool) plant {
	return func(p *planted) {
		p.release = func(ctx context.Context, name, token string) (bool, error) {
			return p.afterLook(ctx, name, token, heeds, func(pipe redis.Pipeliner) { pipe.Del(ctx, name) })
		}
	}
}

func extendsAfterLook(heeds bool) plant {
	return func(p *planted) {
		p.extend = func(ctx context.Context, name, token string, lease time.Duration) (bool, error) {
			return p.afterLook(ctx, name, token, heeds, func(pipe redis.Pipeliner) { pipe.PExpire(ctx, name, lease) })
		}
	}
}

// asksTwice asks again when the connection was closed, and takes its own key for a grant. If it recounts,
// the lease begins with the second request.
func asksTwice(recounts bool) plant {
	return func(p *planted) {
		p.take = func(ctx context.Context, r *request) error {
			err := p.set(ctx, r)
			if err == nil || errors.Is(err, lock.ErrNotAcquired) {
				return err
			}
			if recounts {
				r.asked = time.Now()
			}
			if err = p.set(ctx, r); errors.Is(err, lock.ErrNotAcquired) {
				err = took(p.own(ctx, p.rdb, r.name, r.token))
			}
			return err
		}
	}
}

// watchdog renews each grant until it is over; outlived also what another client holds by then.
func watchdog(outlived bool) plant {
	return func(p *planted) {
		p.keeps, p.always = true, outlived
		p.renew = func(ctx context.Context, r *request) (bool, error) {
			if outlived {
				return true, p.rdb.Set(ctx, r.name, r.token, r.lease).Err()
			}
			return p.run(ctx, extendOwn, r.name, r.token, r.lease.Milliseconds())
		}
	}
}

// counts gives fencing tokens, which grow with each grant of the lock.
func counts(p *planted) {
	p.fences = func(ctx context.Context, name string) (int64, error) { return p.rdb.Incr(ctx, name+":count").Result() }
}

// shy refuses all that ask at once: it is correct.
func shy(p *planted) {
	p.take = func(ctx context.Context, r *request) error {
		asking := r.name + ":asking"
		if err := p.rdb.Incr(ctx, asking).Err(); err != nil {
			return err
		}
		time.Sleep(meeting)
		n, err := p.rdb.Get(ctx, asking).Int()
		if err == nil && n == 1 {
			err = p.set(ctx, r)
		} else if err == nil {
			err = lock.ErrNotAcquired
		}
		return errors.Join(err, p.rdb.Decr(ctx, asking).Err())
	}
}

// meeting is how long requests that come at once wait for each other.
const meeting = 100 * time.Millisecond

// brisk waits for a server for a small part of a lease only: it is correct.
func brisk(p *planted) {
	p.take = func(ctx context.Context, r *request) error {
		ctx, cancel := context.WithTimeout(ctx, r.lease/15)
		defer cancel()
		return p.set(ctx, r)
	}
}

// once does something at the first call in all processes.
func (p *planted) once(do func() error) error {
	if p.met.CompareAndSwap(false, true) {
		return do()
	}
	return nil
}

// bugs are the planted ones, by name.
var bugs = map[string]plant{
	"tokens of clients": func(p *planted) {
		p.token = func(owner string) string { client, _, _ := strings.Cut(owner, "#"); return client }
	},
	"tokens of processes": func(p *planted) { p.token = func(string) string { return p.process } },
	"no watchdog":         func(p *planted) { p.renew = nil },
	"watchdog outlives":   watchdog(true),
	"ends early":          func(p *planted) { p.life = func(lease time.Duration) time.Duration { return lease / 5 } },
	"never ends":          func(p *planted) { p.life = func(time.Duration) time.Duration { return 0 } },
	"counts from the reply": func(p *planted) {
		p.take, p.ends = p.set, func(r *request) time.Time { return time.Now().Add(r.lease) }
	},
	"told in seconds": func(p *planted) {
		p.ends = func(r *request) time.Time { return r.asked.Add(r.lease / 1000) }
	},
	"recounts":    asksTwice(true),
	"two steps":   func(p *planted) { p.take = p.setThenExpire },
	"looks first": func(p *planted) { p.take = p.lookThenSet },
	"prefers shorter": func(p *planted) {
		p.take = func(ctx context.Context, r *request) error {
			left, err := p.rdb.PTTL(ctx, r.name).Result()
			if err == nil && left > r.lease {
				return p.rdb.Set(ctx, r.name, r.token, r.life).Err()
			}
			return errors.Join(err, p.set(ctx, r))
		}
	},
	"takes old for over": func(p *planted) { // as one that looks for grants of before its own lease
		p.take = func(ctx context.Context, r *request) error {
			left, err := p.rdb.PTTL(ctx, r.name).Result()
			if age := 5*time.Minute - left; err == nil && left > time.Minute && age > r.lease {
				return p.rdb.Set(ctx, r.name, r.token, r.life).Err()
			}
			return errors.Join(err, p.set(ctx, r))
		}
	},
	"remembers": func(p *planted) {
		granted := sync.Map{}
		p.take = func(ctx context.Context, r *request) error {
			if _, remembered := granted.LoadAndDelete(r.name); remembered {
				return nil
			}
			granted.Store(r.name, true)
			return p.set(ctx, r)
		}
	},
	"refuses the unknown": func(p *planted) {
		p.take = func(ctx context.Context, r *request) error {
			if p.set(ctx, r) != nil {
				return lock.ErrNotAcquired
			}
			return nil
		}
	},
	"retries with another token": func(p *planted) {
		p.take = func(ctx context.Context, r *request) error {
			err := p.set(ctx, r)
			if err != nil && !errors.Is(err, lock.ErrNotAcquired) {
				r.token = rand.Text()
				err = p.set(ctx, r)
			}
			return err
		}
	},
	"retries with another token, behind a look": func(p *planted) {
		p.take = func(ctx context.Context, r *request) error {
			err := p.rdb.Time(ctx).Err()
			if err == nil {
				err = p.set(ctx, r)
			}
			if err != nil && !errors.Is(err, lock.ErrNotAcquired) {
				r.token = rand.Text()
				err = p.set(ctx, r)
			}
			return err
		}
	},
	"cuts to seconds": func(p *planted) {
		p.life = func(lease time.Duration) time.Duration { return lease.Truncate(time.Second) }
	},
	"granted nothing": func(p *planted) {
		p.take = func(ctx context.Context, r *request) error {
			if err := p.set(ctx, r); !errors.Is(err, lock.ErrNotAcquired) {
				return err
			}
			return nil // with a token that no key has
		}
	},
	"calls refusals unknown": func(p *planted) {
		p.take = func(ctx context.Context, r *request) error {
			if p.set(ctx, r) != nil {
				return errors.New("taken")
			}
			return nil
		}
	},
	"unsure once": func(p *planted) {
		p.take = func(ctx context.Context, r *request) error {
			return cmp.Or(p.once(func() error { return errors.New("asked for the first time") }), p.set(ctx, r))
		}
	},
	"counts alone": func(p *planted) {
		var n atomic.Int64
		p.fences = func(context.Context, string) (int64, error) { return n.Add(1), nil }
	},
	"extends any": func(p *planted) {
		p.extend = func(ctx context.Context, name, _ string, lease time.Duration) (bool, error) {
			return p.rdb.PExpire(ctx, name, lease).Result()
		}
	},
	"extends by taking": func(p *planted) {
		p.extend = func(ctx context.Context, name, token string, lease time.Duration) (bool, error) {
			return true, p.rdb.Set(ctx, name, token, lease).Err()
		}
	},
	"extends in another unit": func(p *planted) {
		p.extend = func(ctx context.Context, name, token string, lease time.Duration) (bool, error) {
			return p.run(ctx, strings.Replace(extendOwn, "PEXPIRE", "EXPIRE", 1), name, token, lease.Milliseconds())
		}
	},
	"extends by a look": func(p *planted) {
		p.extend = func(ctx context.Context, name, token string, _ time.Duration) (bool, error) {
			return p.own(ctx, p.rdb, name, token)
		}
	},
	"extends in two steps": func(p *planted) {
		p.extend = func(ctx context.Context, name, token string, lease time.Duration) (bool, error) {
			own, err := p.own(ctx, p.rdb, name, token)
			if err != nil || !own {
				return false, err
			}
			return p.rdb.PExpire(ctx, name, lease).Result()
		}
	},
	"extends unheeded": extendsAfterLook(false),
	"tells no extension": func(p *planted) {
		p.moves = func(end, _ time.Time) time.Time { return end }
	},
	"extends slowly once": func(p *planted) {
		p.extend = func(ctx context.Context, name, token string, lease time.Duration) (bool, error) {
			_ = p.once(func() error { time.Sleep(slowly); return nil })
			return p.run(ctx, extendOwn, name, token, lease.Milliseconds())
		}
	},
	"extends without an answer once": func(p *planted) {
		p.extend = func(ctx context.Context, name, token string, lease time.Duration) (bool, error) {
			if err := p.once(func() error { return fmt.Errorf("read: %w", os.ErrDeadlineExceeded) }); err != nil {
				return false, err
			}
			return p.run(ctx, extendOwn, name, token, lease.Milliseconds())
		}
	},
	"calls unknown releases refused": func(p *planted) {
		p.release = func(ctx context.Context, name, token string) (bool, error) {
			done, _ := p.run(ctx, deleteOwn, name, token)
			return done, nil
		}
	},
	"releases in two steps": func(p *planted) {
		p.release = func(ctx context.Context, name, token string) (bool, error) {
			own, err := p.own(ctx, p.rdb, name, token)
			if err != nil || !own {
				return false, err
			}
			n, err := p.rdb.Del(ctx, name).Result()
			return n == 1, err
		}
	},
	"releases any again": func(p *planted) {
		p.late = func(ctx context.Context, name, _ string) (bool, error) {
			n, err := p.rdb.Del(ctx, name).Result()
			return n == 1, err
		}
	},
	"releases unheeded": releasesAfterLook(false),
	"releases unheeded, late once": func(p *planted) {
		releasesAfterLook(false)(p)
		release := p.release
		p.release = func(ctx context.Context, name, token string) (bool, error) {
			if strings.HasSuffix(name, "-third") {
				_ = p.once(func() error { time.Sleep(slowly); return nil }) // so that the lease ends before the second request
			}
			return release(ctx, name, token)
		}
	},
	"takes NOSCRIPT for done": func(p *planted) {
		sha := redis.NewScript(deleteOwn).Hash()
		p.release = func(ctx context.Context, name, token string) (bool, error) {
			done, err := p.rdb.EvalSha(ctx, sha, []string{name}, token).Int()
			if redis.HasErrorPrefix(err, "NOSCRIPT") {
				return true, nil
			}
			return done == 1, err
		}
	},
}

// slowly is for longer than the first lease of a check that is made with it.
const slowly = 700 * time.Millisecond

// setThenExpire sets the lease of the key in a second step, a while later.
func (p *planted) setThenExpire(ctx context.Context, r *request) error {
	if err := took(p.rdb.SetNX(ctx, r.name, r.token, 0).Result()); err != nil {
		return err
	}
	time.Sleep(slowly)
	return p.rdb.PExpire(ctx, r.name, r.life).Err()
}

// lookThenSet looks whether the key is there, and sets it in a second step.
func (p *planted) lookThenSet(ctx context.Context, r *request) error {
	n, err := p.rdb.Exists(ctx, r.name).Result()
	if err != nil || n > 0 {
		return errors.Join(err, took(n == 0, nil))
	}
	time.Sleep(meeting)
	return p.rdb.Set(ctx, r.name, r.token, r.life).Err()
}

// queue is the script of a request that has a place in a queue as long as its client waits.
const queue = `local head = redis.call('LINDEX', KEYS[2], 0)
if redis.call('EXISTS', KEYS[1]) == 0 and (head == ARGV[1] or not head) then
	redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
	redis.call('LREM', KEYS[2], 0, ARGV[1])
	return 1
end
if ARGV[3] == '1' then redis.call('RPUSH', KEYS[2], ARGV[1]) end
return 0`

// fairSpec is a fair lock with such a script.
func fairSpec(name, script string) harness.LockSpec {
	l := plantedSpec(name)
	l.Fair = true
	open := l.Open
	l.Open = func(servers []redis.UniversalClient, o harness.LockOptions) (lock.Locker, func(), error) {
		opened, end, err := open(servers, o)
		p := opened.(*planted) //nolint:forcetypeassert // see plantedSpec
		return lock.LockerFunc(func(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
			joins, until := 1, time.Now().Add(o.Wait)
			token := rand.Text()
			p := &planted{rdb: p.rdb, release: p.release, late: p.late, moves: p.moves, extend: p.extend, life: p.life, ends: p.ends}
			p.token = func(string) string { return token }
			p.take = func(ctx context.Context, r *request) error {
				done, err := p.rdb.Eval(ctx, script, []string{name, name + ":queue"}, token, r.life.Milliseconds(), joins).Int()
				joins = 0
				return errors.Join(err, took(done == 1, err))
			}
			for {
				h, err := p.Acquire(ctx, name, o)
				if !errors.Is(err, lock.ErrNotAcquired) || time.Now().After(until) {
					return h, err
				}
				time.Sleep(10 * time.Millisecond)
			}
		}), end, err
	}
	return l
}
