package transport

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"
)

// A Script is one atomic step on one lock. It knows its own source, so that it
// can be sent in full where the server doesn't know its digest.
type Script struct {
	source string
	digest any // as an argument
}

// NewScript returns the script of that source.
func NewScript(source string) Script { return Script{source, redis.NewScript(source).Hash()} }

// Digest is by what the server names the script.
func (s Script) Digest() string {
	digest, _ := s.digest.(string)
	return digest
}

// A Reply is what a call came to.
type Reply struct {
	Value any
	Err   error
	// Copies says that the server may yet see the call, or see it once more: it
	// was sent again though it may have arrived, or its outcome isn't known.
	Copies bool
	// Sent says that the call may have reached the server. One that didn't left nothing there.
	Sent bool
}

// A Call is a script with its keys and arguments.
type Call struct {
	Script  Script
	words   []any           // as go-redis sends them: by digest, how many keys, those, and the arguments
	Counted bool            // a repetition that comes after the life of the mark would count twice
	Abort   <-chan struct{} // closed when no caller waits for it any more; optional
	// Narrow is sent instead where a server refuses the call because its slot is moving, and only
	// some of its keys are there: it names one key. Optional.
	Narrow *Call
	plain  bool // the words are a command, and no script; for Direct alone
}

// NewCommand is a call of a command whose first argument is its key, for [Transport.Direct].
func NewCommand(words ...any) Call { return Call{words: words, plain: true} }

// FirstKey is where the first key is in the words of a call.
const FirstKey = 3

// NewCall is a call of a script. There is at least one key. The words are put into room,
// which is not used for another call, or into new memory if it is nil.
func NewCall[K any](room []any, s Script, keys []K, args ...any) Call {
	if room == nil {
		room = make([]any, 0, FirstKey+len(keys)+len(args))
	}
	words := append(room, "evalsha", s.digest, len(keys))
	for _, key := range keys {
		words = append(words, key)
	}
	return Call{Script: s, words: append(words, args...)}
}

// Copy is the same call with words of its own, which a hook may change.
func (s Call) Copy() Call {
	s.words = slices.Clone(s.words)
	return s
}

// key is the first one, that of the lock.
func (s Call) key() string {
	key, _ := s.words[FirstKey].(string)
	return key
}

// command is the call for go-redis, which gets those words: by digest, or in full.
func (s Call) command(ctx context.Context, words []any, full bool) *redis.Cmd {
	if full {
		words[0], words[1] = "eval", s.Script.source
	}
	cmd := redis.NewCmd(ctx, words...)
	if !s.plain {
		cmd.SetFirstKeyPos(FirstKey)
	}
	return cmd
}
