package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/internal/await"
)

// patience is how long a server is told again what it did not answer.
const patience = 5 * time.Second

// patiently does again what timed out: on a busy machine, a server may take
// longer to answer than it takes to call it silent. Done twice, it must come to
// the same as once. A refusal that begins with a word of passing is
// tried again too: a server may take a slow one for dead.
func patiently(ctx context.Context, do func() error, passing ...string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var final error
	err := await.Until(ctx, func() error {
		err := do()
		if err != nil && !timedOut(err) && !slices.ContainsFunc(passing, func(p string) bool { return strings.HasPrefix(err.Error(), p) }) {
			final = err
			return nil
		}
		return err
	})
	return errors.Join(final, err)
}

func timedOut(err error) bool {
	var netErr net.Error
	return errors.As(err, &netErr) && netErr.Timeout()
}

// ask asks for a failover, patiently. If the answer was lost, one that says that
// it is under way, or over, is the answer.
func ask(ctx context.Context, do func() error, underWay string, passing ...string) error {
	lost := false
	return patiently(ctx, func() error {
		err := do()
		switch {
		case err == nil, lost && strings.HasPrefix(err.Error(), underWay):
			return nil
		case timedOut(err):
			lost = true
		}
		return err
	}, passing...)
}

// Alive asks a server over a connection of its own whether it answers; nothing
// but PONG is an answer. It is there because go-redis stops dialling for a
// second once as many dials have failed as its pool is large.
func (RedisStore) Alive(ctx context.Context, at Address) error {
	ctx, cancel := context.WithTimeout(ctx, observerTimeout)
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", at.Listen.String())
	if err != nil {
		return err
	}
	defer c.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := c.SetDeadline(deadline); err != nil {
			return err
		}
	}
	if _, err := c.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	reply := make([]byte, len("+PONG"))
	if _, err := io.ReadFull(c, reply); err != nil {
		return err
	}
	if string(reply) != "+PONG" {
		return fmt.Errorf("it answers %q", reply)
	}
	return nil
}

// TailLog are the last lines of a server's log, without the frames of a Java stack, which
// would hide what it is of; empty if there is none.
func TailLog(file string) string {
	log, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	frame := func(line string) bool { return strings.HasPrefix(line, "\tat ") || strings.HasPrefix(line, "\t... ") }
	lines := slices.DeleteFunc(strings.Split(strings.TrimSpace(string(log)), "\n"), frame)
	return strings.Join(lines[max(0, len(lines)-5):], "\n")
}
