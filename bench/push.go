package bench

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"
)

// The steps of the baseline that is named push. KEYS: the lock, and who waits. A
// waiter is the request that names it, and the channel on which it hears.
const (
	pushAcquireLua = `if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[3]) then return 1 end
redis.call('RPUSH', KEYS[2], ARGV[1], ARGV[2])
return 0`
	pushReleaseLua = `if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
local request = redis.call('LPOP', KEYS[2])
if not request then return redis.call('DEL', KEYS[1]) end
redis.call('SET', KEYS[1], request, 'PX', ARGV[2])
redis.call('PUBLISH', redis.call('LPOP', KEYS[2]), request)
return 1`
)

// push is one script to ask, one to release, and a message.
func push(ctx context.Context, rdb redis.UniversalClient) (Acquire, func(), error) {
	acquire, release := redis.NewScript(pushAcquireLua), redis.NewScript(pushReleaseLua)
	channel := "push:" + rand.Text()
	subscription := rdb.Subscribe(ctx, channel)
	if _, err := subscription.Receive(ctx); err != nil {
		_ = subscription.Close()
		return nil, nil, fmt.Errorf("subscribe: %w", err)
	}
	var waiters sync.Map // of each request, the chan struct{} that is closed once it has the lock
	var reader sync.WaitGroup
	reader.Go(func() {
		for m := range subscription.Channel() {
			told, _ := waiters.LoadAndDelete(m.Payload)
			if told, waits := told.(chan struct{}); waits {
				close(told)
			}
		}
	})
	end := func() {
		_ = subscription.Close()
		reader.Wait()
	}
	return func(ctx context.Context, name string) (func(context.Context) error, error) {
		keys, request := []string{"{push:" + name + "}", "{push:" + name + "}:waiters"}, rand.Text()
		told := make(chan struct{})
		waiters.Store(request, told)
		granted, err := acquire.Run(ctx, rdb, keys, request, channel, Lease.Milliseconds()).Int()
		if err != nil || granted == 1 {
			waiters.Delete(request)
		} else {
			select {
			case <-told:
			case <-ctx.Done():
				return nil, ctx.Err() // the place is kept: it is no lock to be used
			}
		}
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) error {
			return deleted(release.Run(ctx, rdb, keys, request, Lease.Milliseconds()))
		}, nil
	}, end, nil
}
