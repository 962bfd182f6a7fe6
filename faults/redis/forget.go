package redis

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/faults"
)

// Flush removes every key of a server, as FLUSHALL by mistake does. It has no
// duration. A server without keys has nothing to lose, which is an error.
func Flush(s Server) faults.Fault {
	return &fault{name: "flush", server: s, inject: func(ctx context.Context, rdb *redis.Client) (string, error) {
		had, err := rdb.DBSize(ctx).Result()
		switch {
		case err != nil:
			return "", err
		case had == 0:
			return "", errors.New("it has no key to lose")
		}
		if err := rdb.FlushAll(ctx).Err(); err != nil {
			return "", err
		}
		return fmt.Sprintf("forgot its %d keys", had), nil
	}}
}

// Drop removes the keys that match a pattern, as SCAN has it. It has no
// duration. That none match is an error.
func Drop(s Server, pattern string) faults.Fault {
	return &fault{name: "drop-key", server: s, inject: func(ctx context.Context, rdb *redis.Client) (string, error) {
		keys, err := matching(ctx, rdb, pattern)
		if err != nil {
			return "", err
		}
		gone, err := remove(ctx, rdb, keys)
		switch {
		case err != nil:
			return "", err
		case gone == 0:
			return "", fmt.Errorf("the keys like %q went by themselves", pattern)
		}
		return fmt.Sprintf("forgot %d keys like %s", gone, pattern), nil
	}}
}

// foreign is what another program left in a key, and removeForeign takes that
// away and nothing that came after it.
const (
	foreign       = "somebody else's"
	removeForeign = `if redis.call('TYPE', KEYS[1]).ok == 'string' and redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`
)

// Retype puts a plain string where keys that match a pattern are, as another
// program with the same names would. The heal removes the strings.
func Retype(s Server, pattern string) faults.Fault {
	var changed []string
	return &fault{
		name: "retype-key", server: s,
		inject: func(ctx context.Context, rdb *redis.Client) (string, error) {
			keys, err := matching(ctx, rdb, pattern)
			if err != nil {
				return "", err
			}
			for _, key := range keys {
				changed = append(changed, key) // even if the answer is lost
				if err := rdb.Set(ctx, key, foreign, 0).Err(); err != nil {
					return "", err
				}
			}
			return fmt.Sprintf("has strings in %d keys like %s", len(keys), pattern), nil
		},
		heal: func(ctx context.Context, rdb *redis.Client) (string, error) {
			if len(changed) == 0 {
				return "", nil
			}
			gone := 0
			for _, key := range changed {
				n, err := rdb.Eval(ctx, removeForeign, []string{key}, foreign).Int()
				if err != nil {
					return "", err
				}
				gone += n
			}
			changed = nil
			return fmt.Sprintf("is rid of %d strings", gone), nil
		},
	}
}

// remove deletes keys one by one, since a node of a cluster refuses to take
// those of several slots at once, and counts those that were there.
func remove(ctx context.Context, rdb *redis.Client, keys []string) (gone int64, err error) {
	for _, key := range keys {
		n, err := rdb.Del(ctx, key).Result()
		if err != nil {
			return gone, err
		}
		gone += n
	}
	return gone, nil
}

// matching lists the keys that match a pattern; none is an error.
func matching(ctx context.Context, rdb *redis.Client, pattern string) ([]string, error) {
	var keys []string
	all := rdb.Scan(ctx, 0, pattern, 1000).Iterator()
	for all.Next(ctx) {
		keys = append(keys, all.Val())
	}
	if err := all.Err(); err != nil {
		return nil, err
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("it has no key like %q", pattern)
	}
	return keys, nil
}

// FlushScripts makes a server forget all scripts that it was sent. It has no
// duration.
func FlushScripts(s Server) faults.Fault {
	return &fault{name: "script-flush", server: s, inject: func(ctx context.Context, rdb *redis.Client) (string, error) {
		digest, err := rdb.ScriptLoad(ctx, "return 1").Result()
		if err != nil {
			return "", err
		}
		if err := rdb.ScriptFlush(ctx).Err(); err != nil {
			return "", err
		}
		known, err := rdb.ScriptExists(ctx, digest).Result()
		switch {
		case err != nil:
			return "", err
		case len(known) != 1 || known[0]:
			return "", errors.New("it still knows a script")
		}
		return "forgot its scripts", nil
	}}
}

// KillPubSub closes the connections of all subscribers, who miss what is
// published until they are back. It has no duration. That nobody subscribes is
// an error.
func KillPubSub(s Server) faults.Fault {
	return &fault{name: "kill-pubsub", server: s, inject: func(ctx context.Context, rdb *redis.Client) (string, error) {
		killed, err := rdb.Do(ctx, "CLIENT", "KILL", "TYPE", "pubsub").Int()
		switch {
		case err != nil:
			return "", err
		case killed == 0:
			return "", errors.New("it has no subscriber")
		}
		return fmt.Sprintf("closed %d connections of subscribers", killed), nil
	}}
}
