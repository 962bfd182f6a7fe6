package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/lock"
)

// The baselines by name: see [Baselines].
const (
	BaselineSetNX  = "set-nx"
	BaselineToken  = "token"
	BaselinePush   = "push"
	BaselineFanOut = "fan-out"
)

const (
	releaseLua = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`
	// baselinePause is how long the baseline pauses when another worker has the lock.
	baselinePause = time.Millisecond
	// tokenLua puts the token of a lock there, once.
	tokenLua = `if redis.call('SET', KEYS[2], 1, 'NX') then return redis.call('RPUSH', KEYS[1], 1) end return 0`
	// tokenWait is how long one BLPOP blocks. A slice may last that much longer.
	tokenWait = 250 * time.Millisecond
)

// Baselines lists the least that does a job of a lock on Redis, by the same client as
// ours. None of them is a lock that one would use.
//
//   - set-nx: SET NX PX, and a script that deletes the key if it is still ours. Where
//     another worker has it, it asks again every millisecond.
//   - token: the worker that takes the token off a list with BLPOP has the lock, and puts it
//     back. Nothing hands a lock over with fewer messages; a holder that dies keeps
//     it.
//   - push: the script that releases the lock names the next holder, and a message
//     tells it. A waiter that died, or whose message is lost, keeps it.
//   - fan-out: the first one on several servers at once, going on with the answers
//     of a majority.
func Baselines() []System {
	return []System{
		{
			Name: BaselineSetNX, About: "SET NX PX and a release script, over go-redis; asks again every 1 ms",
			Unfit: func(w Workload) string { return only(w.Servers == 0, "is for one deployment") },
			Open: func(_ context.Context, servers []redis.UniversalClient) (Acquire, func(), error) {
				return set(servers[0]), func() {}, nil
			},
		},
		{
			Name: BaselineToken, About: "BLPOP and RPUSH of a token, over go-redis; no lease",
			Unfit: func(w Workload) string {
				return only(w.Servers == 0 && (w.Baseline == BaselineToken || w.Baseline == BaselinePush), "is the baseline of hand-overs")
			},
			Open: func(_ context.Context, servers []redis.UniversalClient) (Acquire, func(), error) {
				return token(servers[0]), func() {}, nil
			},
		},
		{
			Name: BaselinePush, About: "a release script that names the next holder, and a message, over go-redis",
			Unfit: func(w Workload) string {
				return only(w.Servers == 0 && w.Baseline == BaselinePush, "is the baseline of a hand-over")
			},
			Open: func(ctx context.Context, servers []redis.UniversalClient) (Acquire, func(), error) {
				return push(ctx, servers[0])
			},
		},
		{
			Name: BaselineFanOut, About: "set-nx on several servers at once, going on with a majority",
			Unfit: func(w Workload) string { return only(w.Servers > 0, "is for independent servers") },
			Open: func(_ context.Context, servers []redis.UniversalClient) (Acquire, func(), error) {
				return fanOut(servers), func() {}, nil
			},
		},
	}
}

func only(fit bool, why string) string {
	if fit {
		return ""
	}
	return why
}

// set is one SET and one script.
func set(rdb redis.UniversalClient) Acquire {
	release := redis.NewScript(releaseLua)
	return func(ctx context.Context, name string) (func(context.Context) error, error) {
		key, token := "baseline:"+name, rand.Text()
		for {
			err := rdb.SetArgs(ctx, key, token, redis.SetArgs{Mode: "NX", TTL: Lease}).Err()
			if err == nil {
				break
			}
			if !errors.Is(err, redis.Nil) {
				return nil, err
			}
			if err := await.Pause(ctx, baselinePause); err != nil {
				return nil, err
			}
		}
		return func(ctx context.Context) error { return deleted(release.Run(ctx, rdb, []string{key}, token)) }, nil
	}
}

func deleted(c *redis.Cmd) error {
	n, err := c.Int()
	if err == nil && n != 1 {
		err = fmt.Errorf("baseline: %w", lock.ErrNotHeld)
	}
	return err
}

// token is one BLPOP and one RPUSH.
func token(rdb redis.UniversalClient) Acquire {
	create := redis.NewScript(tokenLua)
	var made atomic.Pointer[string] // the last name whose token is there for sure
	return func(ctx context.Context, name string) (func(context.Context) error, error) {
		key := "{token:" + name + "}"
		if last := made.Load(); last == nil || *last != name {
			if err := create.Run(ctx, rdb, []string{key, key + ":made"}).Err(); err != nil {
				return nil, err
			}
			made.Store(&name)
		}
		for {
			// Not cut short by the context: a token without a taker would be lost.
			err := rdb.Do(context.WithoutCancel(ctx), "BLPOP", key, tokenWait.Seconds()).Err()
			if err == nil {
				return func(ctx context.Context) error { return rdb.RPush(ctx, key, 1).Err() }, nil
			}
			if !errors.Is(err, redis.Nil) {
				return nil, err
			}
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
		}
	}
}

// fanOut asks all servers at once and goes on with the answers of a majority. A
// server is told of a release when it has answered the request before, which
// would otherwise come after it on another connection.
func fanOut(servers []redis.UniversalClient) Acquire {
	script := redis.NewScript(releaseLua)
	all := func(send func(i int) error) error {
		answers := make(chan error, len(servers))
		for i := range servers {
			go func() { answers <- send(i) }()
		}
		quorum := len(servers)/2 + 1
		for good, bad := 0, 0; ; {
			err := <-answers
			if err == nil {
				good++
			} else {
				bad++
			}
			switch {
			case good == quorum:
				return nil
			case bad > len(servers)-quorum:
				return fmt.Errorf("no majority: %w", err)
			}
		}
	}
	try := func(ctx context.Context, key string) (release func(context.Context) error, err error) {
		ctx = context.WithoutCancel(ctx) // the minority is not cut short when the majority has answered
		token := rand.Text()
		answered := make([]chan struct{}, len(servers))
		for i := range answered {
			answered[i] = make(chan struct{})
		}
		err = all(func(i int) error {
			defer close(answered[i])
			return servers[i].SetArgs(ctx, key, token, redis.SetArgs{Mode: "NX", TTL: Lease}).Err()
		})
		return func(ctx context.Context) error {
			ctx = context.WithoutCancel(ctx)
			return all(func(i int) error {
				<-answered[i]
				return script.Run(ctx, servers[i], []string{key}, token).Err()
			})
		}, err
	}
	return func(ctx context.Context, name string) (func(context.Context) error, error) {
		for {
			release, err := try(ctx, "baseline:"+name)
			if err == nil {
				return release, nil
			}
			_ = release(ctx) // what a minority granted
			if !errors.Is(err, redis.Nil) {
				return nil, err
			}
			if err := await.Pause(ctx, baselinePause); err != nil {
				return nil, err
			}
		}
	}
}
