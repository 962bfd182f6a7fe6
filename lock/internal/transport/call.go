package transport

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Script is one atomic step on one lock. It knows its own source, so that it
// can be sent in full where the server doesn't know its digest, by which it names the script.
type Script struct{ source, Digest string }

// NewScript returns the script of that source.
func NewScript(source string) Script { return Script{source, redis.NewScript(source).Hash()} }

// A Reply is what a call came to.
type Reply struct {
	Value any
	Err   error
	// Unacked is why too few replicas are known to have the outcome of a call that wants that.
	Unacked error
	// Copies says that the server may yet see the call, or see it once more: it
	// was sent again though it may have arrived, or its outcome isn't known.
	Copies bool
	// Sent says that the call may have reached the server. One that didn't left nothing there.
	Sent bool
	// UnderWay is closed once a call that its caller left is not under way any more; nil if that isn't known.
	UnderWay <-chan struct{}
}

// A Call is a script with its keys and arguments, or a command for [Transport.Try].
type Call struct {
	Script Script
	Name   string   // of a command that is sent in place of a script; optional
	Keys   []string // the first is that of the lock
	Args   []any
	Acked  bool // replicas are to have the outcome, if the Transport awaits any
	// Inline is how long the goroutine of the caller, which a context does not end while it sends, may wait for the answer, and
	// [Transport.Try] waits for it. Zero: another one sends the call.
	Inline time.Duration
	Abort  <-chan struct{} // closed when no caller waits for it any more; optional
	// Narrow is sent instead where a server refuses the call because its slot is moving, and only
	// some of its keys are there: it names one key. Optional.
	Narrow *Call

	full bool // the server doesn't know the script
}

// command is the call for go-redis: by digest, or in full. Its words are its own, since hooks may change them, and
// the call may be sent again.
func (s Call) command(ctx context.Context) *redis.Cmd {
	words := make([]any, 0, 3+len(s.Keys)+len(s.Args))
	switch {
	case s.Name != "":
		words = append(words, s.Name)
	case s.full:
		words = append(words, "eval", s.Script.source, len(s.Keys))
	default:
		words = append(words, "evalsha", s.Script.Digest, len(s.Keys))
	}
	first := len(words)
	for _, key := range s.Keys {
		words = append(words, key)
	}
	cmd := redis.NewCmd(ctx, append(words, s.Args...)...)
	cmd.SetFirstKeyPos(int8(first)) //nolint:gosec // at most 3
	return cmd
}
