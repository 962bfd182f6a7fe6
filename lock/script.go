package lock

import (
	"context"
	"embed"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

//go:embed scripts/*.lua
var scriptFiles embed.FS

// Scripts returns the source of every script that this package runs, by the name
// of its file without the suffix: "acquire", "fair_release". A server names them
// by the SHA-1 of that, in SLOWLOG and MONITOR for instance, and can be given
// them ahead of their first use with SCRIPT LOAD.
func Scripts() map[string]string {
	parts := map[string]string{ // the files of each, in the order in which they are sent
		"acquire": "free hash tickets acquire", "extend": "extend", "release": "sole hash tickets release",
		"force": "hash tickets force", "inspect": "inspect",
		"fair_acquire": "hash fair_queue fair_acquire", "fair_release": "hash fair_queue fair_release",
		"fair_force": "hash fair_queue fair_force", "fair_waiters": "fair_waiters",
	}
	for _, step := range []string{"acquire", "extend", "release", "force", "inspect"} {
		parts["rw_"+step] = "rw_state rw_" + step
	}
	for _, step := range []string{"acquire", "extend", "release", "give", "size", "delete", "inspect"} {
		parts["semaphore_"+step] = "semaphore semaphore_" + step
	}
	for _, step := range []string{"set", "down", "count", "delete"} {
		parts["latch_"+step] = "latch_" + step
	}
	sources := map[string]string{}
	for name, files := range parts {
		for file := range strings.FieldsSeq(files) {
			text, _ := scriptFiles.ReadFile("scripts/" + file + ".lua")
			sources[name] += string(text)
		}
	}
	return sources
}

// A script is one atomic step on one lock. It knows its own source, so that it
// can be sent in full where the server doesn't know its digest.
type script struct {
	*redis.Script
	source string
	digest any // as an argument
}

// scripts are all of them by name. To join them and to compute their digests is most of what a
// first client costs.
var scripts = sync.OnceValue(func() map[string]script { //nolint:gochecknoglobals // it never changes
	all := map[string]script{}
	for name, source := range Scripts() {
		s := redis.NewScript(source)
		all[name] = script{s, source, s.Hash()}
	}
	return all
})

// A call is a script with its keys and arguments.
type call struct {
	script  script
	words   []any           // as go-redis sends them: by digest, how many keys, those, and the arguments
	counted bool            // a repetition that comes after the life of the mark would count twice
	abort   <-chan struct{} // closed when no caller waits for it any more; optional
}

// firstKey is where the first key is in the words of a call.
const firstKey = 3

// on is a call of the script of that name. There is at least one key.
func on[K any](name string, keys []K, args ...any) call { return onWords(nil, name, keys, args...) }

// onWords is on with memory for the words; nil for new one.
func onWords[K any](words []any, name string, keys []K, args ...any) call {
	s := scripts()[name]
	if words == nil {
		words = make([]any, 0, firstKey+len(keys)+len(args))
	}
	words = append(words, "evalsha", s.digest, len(keys))
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
