package lock

import (
	"context"
	_ "embed"
	"strings"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed scripts/acquire.lua
	acquireLua string
	//go:embed scripts/release.lua
	releaseLua string
	//go:embed scripts/extend.lua
	extendLua string
	//go:embed scripts/force.lua
	forceLua string
	//go:embed scripts/inspect.lua
	inspectLua string
)

// A script is one atomic step on one lock. It knows its own source, so that it
// can be sent in full where the server doesn't know its digest.
type script struct {
	*redis.Script
	source string
}

func newScript(source string) script { return script{redis.NewScript(source), source} }

type scripts struct{ acquire, release, extend, force, inspect script }

func newScripts() scripts {
	return scripts{
		acquire: newScript(acquireLua),
		release: newScript(releaseLua),
		extend:  newScript(extendLua),
		force:   newScript(forceLua),
		inspect: newScript(inspectLua),
	}
}

// A call is a script with its keys and arguments.
type call struct {
	script script
	keys   []string
	args   []any
}

// queue adds the call to a pipeline: by digest, or in full.
func (s call) queue(ctx context.Context, p redis.Pipeliner, full bool) *redis.Cmd {
	if full {
		return p.Eval(ctx, s.script.source, s.keys, s.args...)
	}
	return p.EvalSha(ctx, s.script.Hash(), s.keys, s.args...)
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
		return "key " + key + " holds something that is no lock: use another name or Config.Prefix, or remove the key"
	case strings.Contains(text, "READONLY"):
		return "the server is a replica: connect to the master, or with a failover or cluster client, which find it"
	case strings.Contains(text, "NOPERM"):
		return "let the user run EVALSHA, EVAL, HGETALL, HSET, HDEL, HEXISTS, PEXPIREAT, EXISTS, SET, DEL, TIME, PUBLISH and SUBSCRIBE on the prefix"
	case strings.Contains(text, "OOM command not allowed"):
		return "the server's memory is used up: raise maxmemory"
	default:
		return ""
	}
}
