package lock

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// A script is one atomic step on one lock. It knows its own source, so that it
// can be sent in full where the server doesn't know its digest.
type script struct {
	*redis.Script
	source string
	digest any // as an argument
}

func newScript(source string) script {
	s := redis.NewScript(source)
	return script{s, source, s.Hash()}
}

// kinds are the sorts of lock that a client makes, and the scripts that no
// single one of them owns.
type kinds struct {
	mutex, fenced  *kind
	fair           fair
	rw             rwKinds
	semaphore      semaphoreScripts
	latch          latchScripts
	force, inspect script
}

// sharedKinds are those of all clients. To join the scripts and to compute their digests is
// most of what a new client costs.
var sharedKinds = sync.OnceValue(newKinds) //nolint:gochecknoglobals // it never changes

func newKinds() kinds {
	sources := Scripts()
	return kinds{
		mutex:     newMutexKind(sources, false),
		fenced:    newMutexKind(sources, true),
		fair:      newFair(sources),
		rw:        newRWKinds(),
		semaphore: newSemaphoreScripts(),
		latch:     newLatchScripts(),
		force:     newScript(sources["force"]),
		inspect:   newScript(inspectLua),
	}
}

// A call is a script with its keys and arguments.
type call struct {
	script  script
	words   []any           // as go-redis sends them: by digest, how many keys, those, and the arguments
	counted bool            // a repetition that comes after the life of the mark would count twice
	abort   <-chan struct{} // closed when no caller waits for it any more; optional
}

// firstKey is where the first key is in the words of a call.
const firstKey = 3

// on is a call of a script. There is at least one key.
func on[K any](s script, keys []K, args ...any) call {
	words := make([]any, firstKey, firstKey+len(keys)+len(args))
	words[0], words[1], words[2] = "evalsha", s.digest, len(keys)
	for _, key := range keys {
		words = append(words, key)
	}
	return call{script: s, words: append(words, args...)}
}

// copy is the same call with words of its own, which a hook may change.
func (s call) copy() call {
	s.words = slices.Clone(s.words)
	return s
}

// key is the first one, that of the lock.
func (s call) key() string {
	key, _ := s.words[firstKey].(string)
	return key
}

// command is the call for go-redis, which gets those words: by digest, or in full.
func (s call) command(ctx context.Context, words []any, full bool) *redis.Cmd {
	if full {
		words[0], words[1] = "eval", s.script.source
	}
	cmd := redis.NewCmd(ctx, words...)
	cmd.SetFirstKeyPos(firstKey)
	return cmd
}

func isUnknownScript(err error) bool { return redis.HasErrorPrefix(err, "NOSCRIPT") }

// advice says what can be done about a server's error; "" for nothing special.
func advice(err error, key string) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	switch {
	case strings.Contains(text, "WRONGTYPE"):
		return "key " + key + " holds something else than this kind of lock: use another name or Config.Prefix, or remove the key"
	case strings.Contains(text, "READONLY"):
		return "the server is a replica: connect to the master, or with a failover or cluster client, which find it"
	case strings.Contains(text, "NOPERM"), strings.Contains(text, "The user executing the script"):
		return "let the user run EVALSHA, EVAL, HGETALL, HMGET, HSET, PEXPIRE, HDEL, HGET, HEXISTS, HLEN, PEXPIREAT, EXISTS, GET, SET, DEL, TIME, ZADD, ZCARD, ZCOUNT, ZPOPMIN, ZRANGE, ZRANGEBYSCORE, ZREM, ZREMRANGEBYSCORE, ZREVRANGE, ZSCORE, TYPE, PTTL, PUBLISH, PUBSUB, SUBSCRIBE and UNSUBSCRIBE on the prefix"
	case strings.Contains(text, "OOM command not allowed"):
		return "the server's memory is used up: raise maxmemory"
	case strings.Contains(text, "NOAUTH"), strings.Contains(text, "unauthenticated"), strings.Contains(text, "WRONGPASS"):
		return "give the Redis client the user and the password that the server wants"
	case strings.Contains(text, "LOADING"):
		return "the server is still loading its data: ask again in a moment"
	case strings.Contains(text, "BUSY Redis is busy"):
		return "a script runs for too long on the server: let it end, or kill it with SCRIPT KILL"
	case strings.Contains(text, "TRYAGAIN"), strings.HasPrefix(text, "ASK "):
		return "the slot of this lock is moving to another server: ask again when it has"
	case strings.Contains(text, "CLUSTERDOWN"):
		return "no server serves the slot of this lock: look at CLUSTER INFO"
	case strings.Contains(text, "MASTERDOWN"):
		return "the server is a replica without its master: connect to the master, or with a failover or cluster client, which find it"
	default:
		return ""
	}
}
