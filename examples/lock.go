// Package orders has a lock as services write it, and the same lock with the bug
// that most of them begin with. Their tests show how package chaos is used.
package orders

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// The definite answers of a lock.
var (
	ErrTaken   = errors.New("another client holds the lock")
	ErrNotHeld = errors.New("the lock is not held by that token")
)

// A Lock is one key that expires.
type Lock struct {
	rdb    redis.UniversalClient
	unlock *redis.Script
}

// New returns a correct lock: it is unlocked by the token that locked it alone.
func New(rdb redis.UniversalClient) *Lock {
	return &Lock{rdb, redis.NewScript(`
		if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
		return 0`)}
}

// NewBuggy returns a lock that any client can unlock. A holder that is late deletes
// the lock of the next one.
func NewBuggy(rdb redis.UniversalClient) *Lock {
	return &Lock{rdb, redis.NewScript(`return redis.call('DEL', KEYS[1])`)}
}

// TryLock asks for the lock once, and returns the token to unlock it with.
func (l *Lock) TryLock(ctx context.Context, name string, lease time.Duration) (token string, err error) {
	token = rand.Text()
	err = l.rdb.SetArgs(ctx, "lock:"+name, token, redis.SetArgs{Mode: "NX", TTL: lease}).Err()
	if errors.Is(err, redis.Nil) {
		return "", ErrTaken
	}
	return token, err
}

// Unlock gives the lock back.
func (l *Lock) Unlock(ctx context.Context, name, token string) error {
	n, err := l.unlock.Run(ctx, l.rdb, []string{"lock:" + name}, token).Int()
	if err != nil {
		return fmt.Errorf("unlock %s: %w", name, err)
	}
	if n == 0 {
		return ErrNotHeld
	}
	return nil
}
