package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/internal/await"
)

// probeChannel has no subscriber.
const probeChannel = "lockchaos:probe"

// write runs a script that might write, as Redis 7 takes every script that does
// not say otherwise in its first line. It needs no key: a node of a cluster takes
// those of its own slots only.
func write(ctx context.Context, rdb *redis.Client) error {
	return rdb.Eval(ctx, "#!lua\nreturn 1", nil).Err()
}

// Full makes a server refuse every write for want of memory; the heal gives it
// back as much as it had.
func Full(s Server) faults.Fault {
	was := map[string]string{}
	return &fault{
		name: "full", server: s,
		inject: func(ctx context.Context, rdb *redis.Client) (string, error) {
			if err := configure(ctx, rdb, was, "maxmemory-policy", "noeviction", "maxmemory", "1"); err != nil {
				return "", err
			}
			if err := write(ctx, rdb); !redis.HasErrorPrefix(err, "OOM") {
				return "", fmt.Errorf("a script was answered with %w", cmp.Or(err, faults.ErrNone))
			}
			return "refuses writes: its memory is used up", nil
		},
		heal: func(ctx context.Context, rdb *redis.Client) (string, error) {
			if err := restore(ctx, rdb, was); err != nil {
				return "", err
			}
			return "takes writes again", write(ctx, rdb)
		},
	}
}

// Evict makes a server throw out keys for want of memory, whatever they are,
// until none is left; the heal gives it back as much as it had. A server
// without keys has nothing to lose, which is an error.
func Evict(s Server) faults.Fault {
	was := map[string]string{}
	return &fault{
		name: "evict", server: s,
		inject: func(ctx context.Context, rdb *redis.Client) (string, error) {
			before, err := evicted(ctx, rdb)
			if err != nil {
				return "", err
			}
			if err := configure(ctx, rdb, was, "maxmemory-policy", "allkeys-lru", "maxmemory", "1"); err != nil {
				return "", err
			}
			var after int64
			err = await.Until(ctx, func() error {
				var err error
				if after, err = evicted(ctx, rdb); err == nil && after == before {
					err = errors.New("it threw out no key")
				}
				return err
			})
			if err != nil {
				return "", err
			}
			return fmt.Sprintf("threw out %d keys", after-before), nil
		},
		heal: func(ctx context.Context, rdb *redis.Client) (string, error) {
			if err := restore(ctx, rdb, was); err != nil {
				return "", err
			}
			return "keeps its keys again", nil
		},
	}
}

// evicted is how many keys a server has thrown out since it started.
func evicted(ctx context.Context, rdb *redis.Client) (int64, error) {
	stats, err := rdb.Info(ctx, "stats").Result()
	if err != nil {
		return 0, err
	}
	var n int64
	for line := range strings.Lines(stats) {
		if _, err := fmt.Sscanf(line, "evicted_keys:%d", &n); err == nil {
			return n, nil
		}
	}
	return 0, errors.New("INFO stats has no evicted_keys")
}

// configure changes settings, given as names and values, and notes what they
// were.
func configure(ctx context.Context, rdb *redis.Client, was map[string]string, settings ...string) error {
	for pair := range slices.Chunk(settings, 2) {
		old, err := rdb.ConfigGet(ctx, pair[0]).Result()
		if err != nil {
			return err
		}
		if _, noted := was[pair[0]]; !noted {
			was[pair[0]] = old[pair[0]]
		}
		if err := rdb.ConfigSet(ctx, pair[0], pair[1]).Err(); err != nil {
			return err
		}
	}
	return nil
}

// restore gives settings their old values, and forgets those. Memory comes
// first: while it is short every other policy but the old one does harm.
func restore(ctx context.Context, rdb *redis.Client, was map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(was)) {
		if err := rdb.ConfigSet(ctx, name, was[name]).Err(); err != nil {
			return err
		}
		delete(was, name)
	}
	return nil
}
