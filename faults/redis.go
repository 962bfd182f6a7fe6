package faults

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/topologies"
)

// pauseWritesLimit bounds a pause that is never healed.
const pauseWritesLimit = time.Minute

// lockKeys is what the keys of every lock under test look like.
const lockKeys = "*lock-*"

// redisSpecs are the faults of a Redis server that runs and is reached: what is
// forgotten, refused or held up in it, as an administrator, a full memory or a bad
// script would.
func redisSpecs() []Spec {
	pattern := Param{Name: "pattern", About: "as SCAN has it", Ask: "which keys", Draw: lockKeys}
	specs := []Spec{
		{
			Name: "busy-script", Summary: "run a script that does not end before the heal, so that everything else is refused",
			Life: history.Lasting, Effects: []history.Effect{history.Refuses}, Candidates: drawn(TargetOfLock, 2, away),
			Observed: "a PING is refused with BUSY", Healed: "SCRIPT KILL",
			Pitfall: "the script writes nothing, else it could not be killed",
			New:     onRedis(runBusyScript),
		},
		{
			Name: "drop-key", Summary: "remove the keys that match, once", Params: []Param{pattern},
			Life: history.Momentary, Effects: []history.Effect{history.Forgets}, Hits: HitsRequests, Candidates: drawn(TargetOfLock, 2, forgets),
			Observed: "the server says how many it removed",
			Pitfall:  "no key that matches is an error",
			New:      onRedis(dropKeys),
		},
		{
			Name: "evict", Summary: "throw out every key for want of memory",
			Life: history.Lasting, Effects: []history.Effect{history.Forgets}, Hits: HitsRequests, Candidates: drawn(TargetOfLock, 2, forgets),
			Observed: "the server's count of evicted keys", Healed: "the memory that it had",
			Pitfall: "takes every key, whatever it is",
			New:     onRedis(evictKeys),
		},
		{
			Name: "flush", Summary: "FLUSHALL, once",
			Life: history.Momentary, Effects: []history.Effect{history.Forgets}, Hits: HitsRequests, Candidates: drawn(TargetOfLock, 2, forgets),
			Observed: "the server had keys, and has none",
			Pitfall:  "no key at all is an error",
			New:      onRedis(flushKeys),
		},
		{
			Name: "out-of-memory", Summary: "refuse every write for want of memory",
			Life: history.Lasting, Effects: []history.Effect{history.Refuses}, Candidates: drawn(TargetOfLock, 2, never),
			Observed: "a write is refused with OOM", Healed: "the memory that it had",
			Pitfall: "a script that has begun to write goes on: what frees memory is not refused",
			New:     onRedis(refuses("OOM", "its memory is used up", "maxmemory-policy", "noeviction", "maxmemory", "1")),
		},
		{
			Name: "kill-pubsub", Summary: "close the connections of all subscribers, once",
			Life: history.Momentary, Effects: []history.Effect{history.Disconnects}, Hits: HitsSubscribers, Candidates: drawn(TargetOfLock, 2, never),
			Observed: "the server says how many it closed",
			Pitfall:  "no subscriber at all is an error; clients subscribe again at once",
			New:      onRedis(killPubSub),
		},
		{
			Name: "pause-writes", Summary: "leave writes unanswered (CLIENT PAUSE WRITE), and carry them out at the heal",
			Life: history.Lasting, Effects: []history.Effect{history.Withholds}, Candidates: drawn(TargetOfLock, 2, never),
			Observed: "a message without a receiver gets no answer", Healed: "the writes are carried out",
			Pitfall: "reads go on, and scripts that only read",
			New:     onRedis(pauseWrites),
		},
		{
			Name: "refuse-clients", Summary: "refuse every new connection (maxclients), and leave those that are open",
			Life: history.Lasting, Effects: []history.Effect{history.Refuses}, Candidates: drawn(TargetOfLock, 2, never),
			Observed: "the server's count of rejected connections", Healed: "a new connection is served",
			Pitfall: "clients that keep their connections notice nothing: combine it with `reset` or a small pool",
			New:     onRedis(refuseClients),
		},
		{
			Name: "refuse-writes", Summary: "refuse every write for want of replicas (min-replicas-to-write)",
			Life: history.Lasting, Effects: []history.Effect{history.Refuses}, Candidates: drawn(TargetOfLock, 2, never),
			Observed: "a write is refused with NOREPLICAS", Healed: "the number of replicas that it asked for before",
			Pitfall: "reads go on, and so do scripts that only read",
			New:     onRedis(refuses("NOREPLICAS", "it has too few replicas", "min-replicas-max-lag", "10", "min-replicas-to-write", "1000")),
		},
		{
			Name: "corrupt-key", Summary: "put strings where the keys that match are", Params: []Param{pattern},
			Life: history.Lasting, Effects: []history.Effect{history.Forgets, history.Refuses}, Hits: HitsRequests, Candidates: drawn(TargetOfLock, 2, forgets),
			Observed: "the server took the strings", Healed: "the strings are gone",
			Pitfall: "what was there before is lost",
			New:     onRedis(corruptKeys),
		},
		{
			Name: "script-flush", Summary: "forget all scripts, once",
			Life: history.Momentary, Effects: []history.Effect{history.Refuses}, Candidates: drawn(TargetOfLock, 2, never),
			Observed: "it does not know a script that it was just sent",
			Pitfall:  "go-redis sends a script again where it is not known, except in a pipeline",
			New:      onRedis(flushScripts),
		},
	}
	for i := range specs {
		specs[i].Family, specs[i].Target, specs[i].Needs = Redis, AtServer, []topologies.Capability{topologies.Settings}
	}
	return specs
}

// asked does something to a server that runs, and says what was observed of it.
type asked = func(ctx context.Context, rdb *redis.Client) (effect string, err error)

// onRedis makes a fault of a server that runs: how it begins, and how it ends, even if it was
// only half begun; nil: it has no duration.
func onRedis(of func(Step) (begin, end asked)) func(Site, Step) (inject, error) {
	return onServer(func(s topologies.Server, step Step) change {
		on := func(do asked) act {
			if do == nil {
				return nil
			}
			return func(ctx context.Context) (string, error) { return do(ctx, s.Observer().WithTimeout(patience)) }
		}
		begin, end := of(step)
		return change{begin: on(begin), end: on(end)}
	})
}

// probeChannel has no subscriber.
const probeChannel = "lockchaos:probe"

// writeScript runs a script that might write, as Redis 7 takes every script that does
// not say otherwise in its first line. It needs no key: a node of a cluster takes
// those of its own slots only.
func writeScript(ctx context.Context, rdb *redis.Client) error {
	return rdb.Eval(ctx, "#!lua\nreturn 1", nil).Err()
}

// refuses makes a server refuse every write with an error, by settings of which the heal gives
// it back what they were: for want of memory, or of replicas, as a master does that has lost
// those and must not take writes without them.
func refuses(prefix, why string, settings ...string) func(Step) (begin, end asked) {
	return func(Step) (begin, end asked) {
		was := map[string]string{}
		return func(ctx context.Context, rdb *redis.Client) (string, error) {
				if err := configure(ctx, rdb, was, settings...); err != nil {
					return "", err
				}
				if err := writeScript(ctx, rdb); !redis.HasErrorPrefix(err, prefix) {
					return "", fmt.Errorf("a script was answered with %w", cmp.Or(err, errNone))
				}
				return "refuses writes: " + why, nil
			}, func(ctx context.Context, rdb *redis.Client) (string, error) {
				if err := restore(ctx, rdb, was); err != nil {
					return "", err
				}
				return "takes writes again", await.Until(ctx, func() error { return writeScript(ctx, rdb) }) // replicas may just be back
			}
	}
}

// refuseClients makes a server refuse every new connection, as one does that has as
// many clients as it may have; those that are open go on. The heal gives it back as
// many as it could have.
func refuseClients(Step) (begin, end asked) {
	was := map[string]string{}
	var own *redis.Client // which has a connection that was open before
	begin = func(ctx context.Context, rdb *redis.Client) (string, error) {
		own = alone(rdb, patience)
		before, err := infoNumber(ctx, own, "Stats", "rejected_connections")
		if err != nil {
			return "", err
		}
		if err := configure(ctx, own, was, "maxclients", "1"); err != nil {
			return "", err
		}
		return "refuses new connections", await.Until(ctx, func() error {
			late := alone(rdb, patience)
			defer late.Close()
			served := late.Ping(ctx).Err()
			after, err := infoNumber(ctx, own, "Stats", "rejected_connections")
			if err == nil && (served == nil || after == before) {
				err = fmt.Errorf("a new connection was answered with %w", cmp.Or(served, errNone))
			}
			return err
		})
	}
	end = func(ctx context.Context, rdb *redis.Client) (string, error) {
		if own == nil {
			return "", nil
		}
		err := await.Until(ctx, func() error {
			err := restore(ctx, own, was)
			if err != nil {
				err = restore(ctx, rdb, was) // a server that was started again has forgotten both
			}
			return err
		})
		if err != nil {
			return "", err
		}
		late := alone(rdb, patience)
		defer late.Close()
		if err := late.Ping(ctx).Err(); err != nil {
			return "", err
		}
		err = own.Close()
		own = nil
		return "accepts new connections again", err
	}
	return begin, end
}

// alone is a client like another, with one connection of its own, that waits so long for a
// reply; below 0: as long as it takes.
func alone(rdb *redis.Client, wait time.Duration) *redis.Client {
	o := *rdb.Options()
	o.PoolSize, o.MinIdleConns, o.ConnMaxIdleTime, o.ReadTimeout = 1, 0, -1, wait
	o.MaxRetries = -1 // a client's own options call that 0, which is the default to another
	return redis.NewClient(&o)
}

// evictKeys makes a server throw out keys for want of memory, whatever they are,
// until none is left; the heal gives it back as much as it had. A server
// without keys has nothing to lose, which is an error.
func evictKeys(Step) (begin, end asked) {
	was := map[string]string{}
	begin = func(ctx context.Context, rdb *redis.Client) (string, error) {
		before, err := infoNumber(ctx, rdb, "Stats", "evicted_keys")
		if err != nil {
			return "", err
		}
		if err := configure(ctx, rdb, was, "maxmemory-policy", "allkeys-lru", "maxmemory", "1"); err != nil {
			return "", err
		}
		var after int64
		err = await.Until(ctx, func() (err error) {
			if after, err = infoNumber(ctx, rdb, "Stats", "evicted_keys"); err == nil && after == before {
				err = errors.New("it threw out no key")
			}
			return err
		})
		return fmt.Sprintf("threw out %d keys", after-before), err
	}
	end = func(ctx context.Context, rdb *redis.Client) (string, error) {
		return "keeps its keys again", restore(ctx, rdb, was)
	}
	return begin, end
}

// infoNumber is one of the numbers of a section of INFO, which is called as INFO heads it.
func infoNumber(ctx context.Context, rdb *redis.Client, section, name string) (int64, error) {
	info, err := rdb.InfoMap(ctx, section).Result()
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(info[section][name], 10, 64)
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

// flushKeys removes every key of a server, as FLUSHALL by mistake does. A server
// without keys has nothing to lose, which is an error.
func flushKeys(Step) (begin, end asked) {
	return func(ctx context.Context, rdb *redis.Client) (string, error) {
		had, err := rdb.DBSize(ctx).Result()
		switch {
		case err != nil:
			return "", err
		case had == 0:
			return "", errors.New("it has no key to lose")
		}
		return fmt.Sprintf("forgot its %d keys", had), rdb.FlushAll(ctx).Err()
	}, nil
}

// dropKeys removes the keys that match a pattern, one by one, since a node of a cluster
// refuses to take those of several slots at once. That none match is an error.
func dropKeys(step Step) (begin, end asked) {
	pattern := step.Params["pattern"]
	return func(ctx context.Context, rdb *redis.Client) (string, error) {
		keys, err := matching(ctx, rdb, pattern)
		gone := int64(0)
		for _, key := range keys {
			n, err := rdb.Del(ctx, key).Result()
			if err != nil {
				return "", err
			}
			gone += n
		}
		if err == nil && gone == 0 {
			err = fmt.Errorf("the keys like %q went by themselves", pattern)
		}
		return fmt.Sprintf("forgot %d keys like %s", gone, pattern), err
	}, nil
}

// foreign is what another program left in a key, and removeForeign takes that
// away and nothing that came after it.
const (
	foreign       = "of another owner"
	removeForeign = `if redis.call('TYPE', KEYS[1]).ok == 'string' and redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`
)

// corruptKeys puts a plain string where keys that match a pattern are, as another
// program with the same names would. The heal removes the strings.
func corruptKeys(step Step) (begin, end asked) {
	pattern := step.Params["pattern"]
	var changed []string
	begin = func(ctx context.Context, rdb *redis.Client) (string, error) {
		keys, err := matching(ctx, rdb, pattern)
		for _, key := range keys {
			changed = append(changed, key) // even if the answer is lost
			if err := rdb.Set(ctx, key, foreign, 0).Err(); err != nil {
				return "", err
			}
		}
		return fmt.Sprintf("has strings in %d keys like %s", len(keys), pattern), err
	}
	end = func(ctx context.Context, rdb *redis.Client) (string, error) {
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
	}
	return begin, end
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

// flushScripts makes a server forget all scripts that it was sent.
func flushScripts(Step) (begin, end asked) {
	return func(ctx context.Context, rdb *redis.Client) (string, error) {
		digest, err := rdb.ScriptLoad(ctx, "return 1").Result()
		if err != nil {
			return "", err
		}
		if err := rdb.ScriptFlush(ctx).Err(); err != nil {
			return "", err
		}
		known, err := rdb.ScriptExists(ctx, digest).Result()
		if err == nil && (len(known) != 1 || known[0]) {
			err = errors.New("it still knows a script")
		}
		return "forgot its scripts", err
	}, nil
}

// killPubSub closes the connections of all subscribers, who miss what is
// published until they are back. That no client subscribes is an error.
func killPubSub(Step) (begin, end asked) {
	return func(ctx context.Context, rdb *redis.Client) (string, error) {
		killed, err := rdb.Do(ctx, "CLIENT", "KILL", "TYPE", "pubsub").Int()
		if err == nil && killed == 0 {
			err = errors.New("it has no subscriber")
		}
		return fmt.Sprintf("closed %d connections of subscribers", killed), err
	}, nil
}

// pauseWrites makes a server leave all writes and messages unanswered
// (CLIENT PAUSE WRITE), while reads go on. They are carried out at the heal.
func pauseWrites(Step) (begin, end asked) {
	begin = func(ctx context.Context, rdb *redis.Client) (string, error) {
		if err := rdb.Do(ctx, "CLIENT", "PAUSE", pauseWritesLimit.Milliseconds(), "WRITE").Err(); err != nil {
			return "", err
		}
		// A message without a subscriber is held up like a write and leaves no trace.
		err := rdb.WithTimeout(2*silence).Publish(ctx, probeChannel, "").Err()
		if !errors.Is(err, context.DeadlineExceeded) && !timedOut(err) {
			return "", fmt.Errorf("a message was answered with %w", cmp.Or(err, errNone))
		}
		return "leaves writes unanswered", nil
	}
	end = func(ctx context.Context, rdb *redis.Client) (string, error) {
		if err := rdb.Do(ctx, "CLIENT", "UNPAUSE").Err(); err != nil {
			return "", err
		}
		return "answers writes again", rdb.Publish(ctx, probeChannel, "").Err()
	}
	return begin, end
}

// runBusyScript runs a script that does not end, so that a server refuses everything
// else; the heal kills it.
func runBusyScript(Step) (begin, end asked) {
	was := map[string]string{}
	ended := make(chan struct{}) // closed while no script runs
	close(ended)
	begin = func(ctx context.Context, rdb *redis.Client) (string, error) {
		// busy-reply-threshold is called lua-time-limit before Redis 7.
		if err := configure(ctx, rdb, was, "busy-reply-threshold", "1"); err != nil {
			return "", err
		}
		ends := make(chan struct{})
		ended = ends
		go func() {
			defer close(ends)
			own := alone(rdb, -1)
			defer own.Close()
			_ = own.Eval(context.WithoutCancel(ctx), "while true do end", nil).Err() // until it is killed, or the server is
		}()
		return "is busy with a script", await.Until(ctx, func() error {
			if err := rdb.Ping(ctx).Err(); !redis.HasErrorPrefix(err, "BUSY") {
				return fmt.Errorf("a PING was answered with %w", cmp.Or(err, errNone))
			}
			return nil
		})
	}
	end = func(ctx context.Context, rdb *redis.Client) (string, error) {
		err := await.Until(ctx, func() error {
			select {
			case <-ended:
				return nil
			default:
				_ = rdb.ScriptKill(ctx).Err() // it may not have begun, or have ended
				return errors.New("the script runs on")
			}
		})
		if err == nil {
			err = restore(ctx, rdb, was)
		}
		if err != nil {
			return "", err
		}
		return "is rid of the script", rdb.Ping(ctx).Err()
	}
	return begin, end
}
