package driver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// A Remote is a driver's program on another machine: its lines, as they come.
type Remote struct {
	// In takes the lines for the program, each of them in one call, of which the first is hello. Its Close is the end of its input.
	In io.WriteCloser
	// Out has the lines of the program. Its Close gives the program up.
	Out io.ReadCloser
	// Wait returns once the program has ended, or is out of reach, and says how: "it ended: exit status 1".
	Wait func() error
}

// Relay starts the program of c for a lockchaos on another machine, whose hello says what else c is. What the program
// writes, its answer to hello first, is passed to say as it is: that lockchaos judges it, and sends the requests
// ([Driver.Pass]). The servers of hello are at other addresses here where at says so.
func Relay(ctx context.Context, c Config, hello []byte, at func(addr string) string, say func(line []byte)) (*Driver, error) {
	var q request
	if err := json.Unmarshal(hello, &q); err != nil || q.Op != opHello {
		return nil, errors.Join(fmt.Errorf("the first line is no hello: %s", quote(hello)), err)
	}
	c.Zone, c.Topology, c.Master, c.relay = q.Zone, q.Topology, q.Master, say
	c.Timeout, c.Watchdog = time.Duration(q.TimeoutMS)*time.Millisecond, time.Duration(q.WatchdogMS)*time.Millisecond
	for _, s := range q.Servers {
		s.Addr = at(s.Addr)
		c.Servers = append(c.Servers, s)
	}
	return Start(ctx, c)
}

// Pass sends a line to a program that was started by [Relay], and waits until it is taken or [Driver.Done].
func (d *Driver) Pass(line []byte) {
	select {
	case d.send <- line:
	case <-d.stopped.Done():
	}
}
