package deploy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/internal/await"
)

// patience is how long a server is told again what it did not answer.
const patience = 5 * time.Second

// patiently does again what timed out: on a busy machine, a server may take
// longer to answer than it takes to call it silent. Done twice, it must come to
// the same as once.
func patiently(ctx context.Context, do func() error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var final error
	err := await.Until(ctx, func() error {
		err := do()
		var netErr net.Error
		if err != nil && (!errors.As(err, &netErr) || !netErr.Timeout()) {
			final = err
			return nil
		}
		return err
	})
	return errors.Join(final, err)
}

// Ping asks a server over a connection of its own whether it answers; nothing
// but PONG is an answer. It is there because go-redis stops dialling for a
// second once as many dials have failed as its pool is large.
func Ping(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, observerTimeout)
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", address)
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

// LastWords are the last lines of a server's log; empty if there is none.
func LastWords(file string) string {
	log, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(log)), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "\n")
}
