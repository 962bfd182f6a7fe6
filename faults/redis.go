package faults

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
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
			Life: history.Lasting, Effects: []history.Effect{history.Refuses}, Candidates: lasting(TargetOfLock, 2, away),
			Observed: "a PING is refused with BUSY", Healed: "SCRIPT KILL",
			Pitfall: "the script writes nothing, else it could not be killed",
			New:     onServer(runBusyScript),
		},
		{
			Name: "drop-key", Summary: "remove the keys that match, once", Params: []Param{pattern},
			Life: history.Momentary, Effects: []history.Effect{history.Forgets}, Hits: HitsRequests, Candidates: once(TargetOfLock, 2, forgets),
			Observed: "the server says how many it removed",
			Pitfall:  "no key that matches is an error",
			New:      onServerWith(func(s topologies.Server, step Step) Fault { return dropKeys(s, step.Params["pattern"]) }),
		},
		{
			Name: "evict", Summary: "throw out every key for want of memory",
			Life: history.Lasting, Effects: []history.Effect{history.Forgets}, Hits: HitsRequests, Candidates: lasting(TargetOfLock, 2, forgets),
			Observed: "the server's count of evicted keys", Healed: "the memory that it had",
			Pitfall: "takes every key, whatever it is",
			New:     onServer(evictKeys),
		},
		{
			Name: "flush", Summary: "FLUSHALL, once",
			Life: history.Momentary, Effects: []history.Effect{history.Forgets}, Hits: HitsRequests, Candidates: once(TargetOfLock, 2, forgets),
			Observed: "the server had keys, and has none",
			Pitfall:  "no key at all is an error",
			New:      onServer(flushKeys),
		},
		{
			Name: "out-of-memory", DrawnAs: "full", Summary: "refuse every write for want of memory",
			Life: history.Lasting, Effects: []history.Effect{history.Refuses}, Candidates: lasting(TargetOfLock, 2, never),
			Observed: "a write is refused with OOM", Healed: "the memory that it had",
			Pitfall: "a script that has begun to write goes on: what frees memory is not refused",
			New:     onServer(fillMemory),
		},
		{
			Name: "kill-pubsub", Summary: "close the connections of all subscribers, once",
			Life: history.Momentary, Effects: []history.Effect{history.Disconnects}, Hits: HitsSubscribers, Candidates: once(TargetOfLock, 2, never),
			Observed: "the server says how many it closed",
			Pitfall:  "no subscriber at all is an error; clients subscribe again at once",
			New:      onServer(killPubSub),
		},
		{
			Name: "pause-writes", Summary: "leave writes unanswered (CLIENT PAUSE WRITE), and carry them out at the heal",
			Life: history.Lasting, Effects: []history.Effect{history.Withholds}, Candidates: lasting(TargetOfLock, 2, never),
			Observed: "a message without a receiver gets no answer", Healed: "the writes are carried out",
			Pitfall: "reads go on, and scripts that only read",
			New:     onServer(func(s topologies.Server) Fault { return pauseWrites(s, pauseWritesLimit) }),
		},
		{
			Name: "refuse-clients", Summary: "refuse every new connection (maxclients), and leave those that are open",
			Life: history.Lasting, Effects: []history.Effect{history.Refuses}, Candidates: lasting(TargetOfLock, 2, never),
			Observed: "the server's count of rejected connections", Healed: "a new connection is served",
			Pitfall: "clients that keep their connections notice nothing: combine it with `reset` or a small pool",
			New:     onServer(refuseClients),
		},
		{
			Name: "refuse-writes", Summary: "refuse every write for want of replicas (min-replicas-to-write)",
			Life: history.Lasting, Effects: []history.Effect{history.Refuses}, Candidates: lasting(TargetOfLock, 2, never),
			Observed: "a write is refused with NOREPLICAS", Healed: "the number of replicas that it asked for before",
			Pitfall: "reads go on, and so do scripts that only read",
			New:     onServer(refuseWrites),
		},
		{
			Name: "corrupt-key", DrawnAs: "retype-key", Summary: "put strings where the keys that match are", Params: []Param{pattern},
			Life: history.Lasting, Effects: []history.Effect{history.Forgets, history.Refuses}, Hits: HitsRequests, Candidates: lasting(TargetOfLock, 2, forgets),
			Observed: "the server took the strings", Healed: "the strings are gone",
			Pitfall: "what was there before is lost",
			New:     onServerWith(func(s topologies.Server, step Step) Fault { return corruptKeys(s, step.Params["pattern"]) }),
		},
		{
			Name: "script-flush", Summary: "forget all scripts, once",
			Life: history.Momentary, Effects: []history.Effect{history.Refuses}, Candidates: once(TargetOfLock, 2, never),
			Observed: "it does not know a script that it was just sent",
			Pitfall:  "go-redis sends a script again where it is not known, except in a pipeline",
			New:      onServer(flushScripts),
		},
	}
	for i := range specs {
		specs[i].Family, specs[i].Target, specs[i].Needs = Redis, AtServer, []topologies.Capability{topologies.Settings}
	}
	return specs
}

// redisFault is a fault of a server that runs.
type redisFault struct {
	name   string
	server topologies.Server
	// inject makes it happen and says what was observed.
	inject func(ctx context.Context, rdb *redis.Client) (effect string, err error)
	// heal ends it, even if it was only half begun. Nil: it has no duration.
	heal func(ctx context.Context, rdb *redis.Client) (effect string, err error)
}

// Name returns the fault's name.
func (f *redisFault) Name() string { return f.name }

// Inject makes it happen and waits until its effect was observed.
func (f *redisFault) Inject(ctx context.Context) (Injection, error) {
	rdb := f.server.Observer().WithTimeout(Patience)
	effect, err := f.inject(ctx, rdb)
	if err != nil {
		return Injection{}, errors.Join(fmt.Errorf("%s on %s: %w", f.name, f.server.Name(), err), f.undo(ctx, rdb))
	}
	injection := Injection{Effect: f.server.Name() + " " + effect}
	if f.heal != nil {
		injection.Heal = Once(func(ctx context.Context) (string, error) {
			effect, err := f.heal(ctx, rdb)
			if err != nil {
				return "", fmt.Errorf("end %s on %s: %w", f.name, f.server.Name(), err)
			}
			return f.server.Name() + " " + effect, nil
		})
	}
	return injection, nil
}

func (f *redisFault) undo(ctx context.Context, rdb *redis.Client) error {
	if f.heal == nil {
		return nil
	}
	ctx, cancel := Undo(ctx)
	defer cancel()
	_, err := f.heal(ctx, rdb)
	return err
}

// probeChannel has no subscriber.
const probeChannel = "lockchaos:probe"

// writeScript runs a script that might write, as Redis 7 takes every script that does
// not say otherwise in its first line. It needs no key: a node of a cluster takes
// those of its own slots only.
func writeScript(ctx context.Context, rdb *redis.Client) error {
	return rdb.Eval(ctx, "#!lua\nreturn 1", nil).Err()
}

// fillMemory makes a server refuse every write for want of memory; the heal gives it
// back as much as it had.
func fillMemory(s topologies.Server) Fault {
	was := map[string]string{}
	return &redisFault{
		name: "out-of-memory", server: s,
		inject: func(ctx context.Context, rdb *redis.Client) (string, error) {
			if err := configure(ctx, rdb, was, "maxmemory-policy", "noeviction", "maxmemory", "1"); err != nil {
				return "", err
			}
			if err := writeScript(ctx, rdb); !redis.HasErrorPrefix(err, "OOM") {
				return "", fmt.Errorf("a script was answered with %w", cmp.Or(err, ErrNone))
			}
			return "refuses writes: its memory is used up", nil
		},
		heal: func(ctx context.Context, rdb *redis.Client) (string, error) {
			if err := restore(ctx, rdb, was); err != nil {
				return "", err
			}
			return "takes writes again", writeScript(ctx, rdb)
		},
	}
}

// refuseWrites makes a server refuse every write, as a master does that has lost its
// replicas and must not take writes without them. The heal gives it back the number of
// replicas that it asked for before.
func refuseWrites(s topologies.Server) Fault {
	was := map[string]string{}
	return &redisFault{
		name: "refuse-writes", server: s,
		inject: func(ctx context.Context, rdb *redis.Client) (string, error) {
			if err := configure(ctx, rdb, was, "min-replicas-max-lag", "10", "min-replicas-to-write", "1000"); err != nil {
				return "", err
			}
			if err := writeScript(ctx, rdb); !redis.HasErrorPrefix(err, "NOREPLICAS") {
				return "", fmt.Errorf("a script was answered with %w", cmp.Or(err, ErrNone))
			}
			return "refuses writes: it has too few replicas", nil
		},
		heal: func(ctx context.Context, rdb *redis.Client) (string, error) {
			if err := restore(ctx, rdb, was); err != nil {
				return "", err
			}
			return "takes writes again", await.Until(ctx, func() error { return writeScript(ctx, rdb) }) // replicas may just be back
		},
	}
}

// refuseClients makes a server refuse every new connection, as one does that has as
// many clients as it may have; those that are open go on. The heal gives it back as
// many as it could have.
func refuseClients(s topologies.Server) Fault {
	was := map[string]string{}
	var own *redis.Client // which has a connection that was open before
	return &redisFault{
		name: "refuse-clients", server: s,
		inject: func(ctx context.Context, rdb *redis.Client) (string, error) {
			own = alone(rdb)
			before, err := statistic(ctx, own, "rejected_connections")
			if err != nil {
				return "", err
			}
			if err := configure(ctx, own, was, "maxclients", "1"); err != nil {
				return "", err
			}
			return "refuses new connections", await.Until(ctx, func() error {
				late := alone(rdb)
				defer late.Close()
				served := late.Ping(ctx).Err()
				after, err := statistic(ctx, own, "rejected_connections")
				if err == nil && (served == nil || after == before) {
					err = fmt.Errorf("a new connection was answered with %w", cmp.Or(served, ErrNone))
				}
				return err
			})
		},
		heal: func(ctx context.Context, rdb *redis.Client) (string, error) {
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
			late := alone(rdb)
			defer late.Close()
			if err := late.Ping(ctx).Err(); err != nil {
				return "", err
			}
			err = own.Close()
			own = nil
			return "accepts new connections again", err
		},
	}
}

// alone is a client like another, with one connection of its own.
func alone(rdb *redis.Client) *redis.Client {
	o := *rdb.Options()
	o.PoolSize, o.MinIdleConns, o.ConnMaxIdleTime = 1, 0, -1
	o.MaxRetries = -1 // a client's own options call that 0, which is the default to another
	return redis.NewClient(&o)
}

// evictKeys makes a server throw out keys for want of memory, whatever they are,
// until none is left; the heal gives it back as much as it had. A server
// without keys has nothing to lose, which is an error.
func evictKeys(s topologies.Server) Fault {
	was := map[string]string{}
	return &redisFault{
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
	return statistic(ctx, rdb, "evicted_keys")
}

// statistic is one of the numbers of INFO stats.
func statistic(ctx context.Context, rdb *redis.Client, name string) (int64, error) {
	stats, err := rdb.Info(ctx, "stats").Result()
	if err != nil {
		return 0, err
	}
	var n int64
	for line := range strings.Lines(stats) {
		if _, err := fmt.Sscanf(line, name+":%d", &n); err == nil {
			return n, nil
		}
	}
	return 0, fmt.Errorf("INFO stats has no %s", name)
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

// flushKeys removes every key of a server, as FLUSHALL by mistake does. It has no
// duration. A server without keys has nothing to lose, which is an error.
func flushKeys(s topologies.Server) Fault {
	return &redisFault{name: "flush", server: s, inject: func(ctx context.Context, rdb *redis.Client) (string, error) {
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

// dropKeys removes the keys that match a pattern, as SCAN has it. It has no
// duration. That none match is an error.
func dropKeys(s topologies.Server, pattern string) Fault {
	return &redisFault{name: "drop-key", server: s, inject: func(ctx context.Context, rdb *redis.Client) (string, error) {
		keys, err := matching(ctx, rdb, pattern)
		if err != nil {
			return "", err
		}
		gone, err := removeKeys(ctx, rdb, keys)
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
	foreign       = "of another owner"
	removeForeign = `if redis.call('TYPE', KEYS[1]).ok == 'string' and redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`
)

// corruptKeys puts a plain string where keys that match a pattern are, as another
// program with the same names would. The heal removes the strings.
func corruptKeys(s topologies.Server, pattern string) Fault {
	var changed []string
	return &redisFault{
		name: "corrupt-key", server: s,
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

// removeKeys deletes keys one by one, since a node of a cluster refuses to take
// those of several slots at once, and counts those that were there.
func removeKeys(ctx context.Context, rdb *redis.Client, keys []string) (gone int64, err error) {
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

// flushScripts makes a server forget all scripts that it was sent. It has no
// duration.
func flushScripts(s topologies.Server) Fault {
	return &redisFault{name: "script-flush", server: s, inject: func(ctx context.Context, rdb *redis.Client) (string, error) {
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

// killPubSub closes the connections of all subscribers, who miss what is
// published until they are back. It has no duration. That no client subscribes is
// an error.
func killPubSub(s topologies.Server) Fault {
	return &redisFault{name: "kill-pubsub", server: s, inject: func(ctx context.Context, rdb *redis.Client) (string, error) {
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

// pauseWrites makes a server leave all writes and messages unanswered
// (CLIENT PAUSE WRITE) for at most that long, while reads go on. They are
// carried out at the heal.
func pauseWrites(s topologies.Server, longest time.Duration) Fault {
	return &redisFault{
		name: "pause-writes", server: s,
		inject: func(ctx context.Context, rdb *redis.Client) (string, error) {
			if err := rdb.Do(ctx, "CLIENT", "PAUSE", longest.Milliseconds(), "WRITE").Err(); err != nil {
				return "", err
			}
			// A message without a subscriber is held up like a write and leaves no trace.
			if err := s.Observer().Publish(ctx, probeChannel, "").Err(); !isTimeout(err) {
				return "", fmt.Errorf("a message was answered with %w", cmp.Or(err, ErrNone))
			}
			return "leaves writes unanswered", nil
		},
		heal: func(ctx context.Context, rdb *redis.Client) (string, error) {
			if err := rdb.Do(ctx, "CLIENT", "UNPAUSE").Err(); err != nil {
				return "", err
			}
			return "answers writes again", rdb.Publish(ctx, probeChannel, "").Err()
		},
	}
}

// isTimeout reports whether the server did not answer in time.
func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &t) && t.Timeout()
}

// runBusyScript runs a script that does not end, so that a server refuses everything
// else; the heal kills it.
func runBusyScript(s topologies.Server) Fault {
	was := map[string]string{}
	var ended chan struct{} // closed once the script has
	return &redisFault{
		name: "busy-script", server: s,
		inject: func(ctx context.Context, rdb *redis.Client) (string, error) {
			// busy-reply-threshold is called lua-time-limit before Redis 7.
			if err := configure(ctx, rdb, was, "busy-reply-threshold", "1"); err != nil {
				return "", err
			}
			ended = make(chan struct{})
			go func() {
				defer close(ended)
				runForever(context.WithoutCancel(ctx), rdb)
			}()
			err := await.Until(ctx, func() error {
				if err := rdb.Ping(ctx).Err(); !redis.HasErrorPrefix(err, "BUSY") {
					return fmt.Errorf("a PING was answered with %w", cmp.Or(err, ErrNone))
				}
				return nil
			})
			if err != nil {
				return "", err
			}
			return "is busy with a script", nil
		},
		heal: func(ctx context.Context, rdb *redis.Client) (string, error) {
			if ended != nil {
				err := await.Until(ctx, func() error {
					select {
					case <-ended:
						return nil
					default:
						_ = rdb.ScriptKill(ctx).Err() // it may not have begun, or have ended
						return errors.New("the script runs on")
					}
				})
				if err != nil {
					return "", err
				}
				ended = nil
			}
			if err := restore(ctx, rdb, was); err != nil {
				return "", err
			}
			return "is rid of the script", rdb.Ping(ctx).Err()
		},
	}
}

// runForever returns when the script is killed, or the server is.
func runForever(ctx context.Context, rdb *redis.Client) {
	o := *rdb.Options()
	o.ReadTimeout = -1 // none
	o.MaxRetries = -1  // a client's own options call that 0, which is the default to another
	o.ContextTimeoutEnabled = false
	own := redis.NewClient(&o)
	defer own.Close()
	_ = own.Eval(ctx, "while true do end", nil).Err()
}
