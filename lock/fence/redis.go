package fence

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed guard.lua
var guardLua string

// Config says how a [RedisGuard] works. The zero value is a good start.
type Config struct {
	// Prefix begins the name of every key with a token, followed by a colon. It
	// has no braces. Default: "fence".
	Prefix string
	// Life is how long the greatest token of a resource is remembered after it
	// was last accepted, at least a millisecond. It bounds what is kept, and
	// lets in a holder that was paused for longer than that. Default: for good,
	// a key a resource, until it is deleted.
	Life time.Duration
}

// Validate joins everything that is wrong with the configuration.
func (c Config) Validate() error {
	var errs []error
	if strings.ContainsAny(c.Prefix, "{}") {
		errs = append(errs, fmt.Errorf("prefix %q: leave out the braces, they would move a token away from its key", c.Prefix))
	}
	if c.Life < 0 || c.Life > 0 && c.Life < time.Millisecond {
		errs = append(errs, fmt.Errorf("life of %v: give at least 1ms, or 0 for good", c.Life))
	}
	return errors.Join(errs...)
}

// A RedisGuard keeps the greatest token of each resource on Redis, for resources
// that several processes write to. Make one with [NewRedis]. It is safe for
// concurrent use.
//
// It is as durable as that Redis is: a failover or restart that loses the
// greatest token lets in the one before it.
type RedisGuard struct {
	rdb    redis.Scripter
	config Config
	script *redis.Script
}

// NewRedis returns a guard that keeps its tokens on rdb, which it never closes.
func NewRedis(rdb redis.Scripter, c Config) (*RedisGuard, error) {
	err := c.Validate()
	if rdb == nil {
		err = errors.Join(errors.New("no Redis client: pass one to NewRedis"), err)
	}
	if err != nil {
		return nil, fmt.Errorf("configure fence: %w", err)
	}
	if c.Prefix == "" {
		c.Prefix = "fence"
	}
	return &RedisGuard{rdb, c, redis.NewScript(guardLua)}, nil
}

// Check is [Guard.Check] for all processes together. After an error other than
// [ErrStale] and [ErrNotFenced] the token may have been remembered.
func (g *RedisGuard) Check(ctx context.Context, name string, token int64) error {
	return g.ask(ctx, name, token)
}

// Set writes a value to a key, as SET does, if Check would accept the token for
// that key, in one step: nothing slips in between. After an error other than
// [ErrStale] and [ErrNotFenced] it may have been written.
func (g *RedisGuard) Set(ctx context.Context, key string, value any, token int64) error {
	return g.ask(ctx, key, token, value)
}

// ask checks a token for a key, and writes the value to it if there is one.
func (g *RedisGuard) ask(ctx context.Context, name string, token int64, value ...any) error {
	if err := check(name, token); err != nil {
		return err
	}
	at, err := g.tokenKey(name)
	if err != nil {
		return err
	}
	keys := []string{at}
	if len(value) > 0 {
		keys = append(keys, name)
	}
	life := int64(math.Ceil(float64(g.config.Life) / float64(time.Millisecond)))
	greatest, err := g.script.Run(ctx, g.rdb, keys, append([]any{token, life}, value...)...).Text()
	if err != nil {
		return fmt.Errorf("token %d for %q: %w", token, name, err)
	}
	if greatest == "" {
		return nil
	}
	n, err := strconv.ParseInt(greatest, 10, 64)
	if err != nil {
		return fmt.Errorf("token %d for %q: strange token in %s: %w", token, name, at, err)
	}
	return stale(name, token, n)
}

// tokenKey is where the greatest token of a resource is kept: in the same slot of
// a cluster as the key of that name. Redis hashes what is between the first "{"
// and the first "}" after it, unless that is nothing.
func (g *RedisGuard) tokenKey(name string) (string, error) {
	_, tag, ok := strings.Cut(name, "{")
	switch {
	case ok && strings.IndexByte(tag, '}') > 0:
		return g.config.Prefix + "::" + name, nil
	case strings.Contains(name, "}"):
		return "", fmt.Errorf("name %q: leave out the \"}\", or give it a hash tag, so that its token has the same slot", name)
	default:
		return g.config.Prefix + ":{" + name + "}", nil
	}
}
