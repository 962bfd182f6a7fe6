package harness

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/topologies"
)

// checkTrueRefusal has the reply to a request for a free lock get lost, in the ways in which networks and libraries
// lose one, and lets whatever is sent again through. An answer that the lock was refused says that nothing is left of
// the request; no other client has asked, so that the lock is then free.
func checkTrueRefusal(ctx context.Context, k *driverCheck) error {
	for i, way := range []struct {
		name string
		lose func(ctx context.Context, mend func()) error
	}{
		{"its connection was reset before the first reply came", func(ctx context.Context, mend func()) error {
			err := pause(ctx, k.lease/3) // so that the server has done it
			for _, l := range k.linksOfA() {
				l.Reset()
			}
			mend()
			return err
		}},
		{"the first reply did not come within the time that it was to wait for a server", func(ctx context.Context, mend func()) error {
			defer mend()
			return pause(ctx, k.timeout+k.timeout/4)
		}},
	} {
		if err := k.trulyRefused(ctx, fmt.Sprintf("%s-%d", k.name, i+1), way.name, way.lose); err != nil {
			return err
		}
	}
	return nil
}

func (k *driverCheck) trulyRefused(ctx context.Context, name, why string, lose func(ctx context.Context, mend func()) error) error {
	if err := k.warm(ctx); err != nil {
		return err
	}
	seen, stop, err := k.commands(ctx)
	defer stop()
	if err != nil {
		return err
	}
	mend, err := k.holdReplies()
	defer mend()
	if err != nil {
		return err
	}
	var h *lock.Hold
	var answer error
	var request sync.WaitGroup
	request.Go(func() { h, answer = ask(ctx, k.a, name, "zone-a.1", checkLong) })
	err = lose(ctx, mend)
	request.Wait()
	sent := seen(name)
	switch {
	case err != nil:
		return err
	case answer == nil:
		_ = h.Release(ctx) // its outcome is for other checks
		return nil
	case !errors.Is(answer, lock.ErrNotAcquired):
		return nil // it may have been granted: that is said
	}
	// What withdraws a request may be under way for as long as a driver waits for a server.
	limited, cancel := context.WithTimeout(ctx, 2*k.timeout)
	defer cancel()
	err = await.Until(limited, func() error {
		next, err := ask(limited, k.b, name, "zone-b.1", checkLong)
		if err == nil {
			_ = next.Release(limited)
		}
		return err
	})
	if err == nil || ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("the answer is %s, and %v later the lock is not free, though no other client had asked for it: %s. "+
		"A request without a reply may have been done: send the same token again and take your own key for a grant, or answer %s. The servers were sent:%s",
		k.word("fail", "ErrNotAcquired"), 2*k.timeout, why, k.word("info", "another error"), sent)
}

// commands has all servers tell what they are sent, until it is stopped, also with an error. What it returns first are
// the commands that name a lock, each on a line.
func (k *driverCheck) commands(ctx context.Context) (seen func(name string) string, stop func(), err error) {
	var mu sync.Mutex
	var lines []string
	var all sync.WaitGroup
	var conns []net.Conn
	stop = sync.OnceFunc(func() {
		for _, c := range conns {
			_ = c.Close()
		}
		all.Wait()
	})
	for _, server := range k.d.Topology().Of(topologies.Redis) {
		c, err := (&net.Dialer{Timeout: k.timeout}).DialContext(ctx, "tcp", k.d.Server(server).Observer().Options().Addr)
		if err != nil {
			return nil, stop, fmt.Errorf("watch %s: %w", server, err)
		}
		conns = append(conns, c)
		if _, err := c.Write([]byte("MONITOR\r\n")); err != nil {
			return nil, stop, fmt.Errorf("watch %s: %w", server, err)
		}
		read := bufio.NewReader(c)
		if _, err := read.ReadString('\n'); err != nil { // from now on it tells
			return nil, stop, fmt.Errorf("watch %s: %w", server, err)
		}
		all.Go(func() {
			for {
				line, err := read.ReadString('\n')
				if err != nil {
					return
				}
				_, command, _ := strings.Cut(strings.TrimSpace(line), "] ")
				mu.Lock()
				lines = append(lines, server+": "+command)
				mu.Unlock()
			}
		})
	}
	return func(name string) string {
		mu.Lock()
		defer mu.Unlock()
		var text strings.Builder
		told := 0
		for _, line := range lines {
			if strings.Contains(line, name) && told < mostCommands {
				told++
				text.WriteString("\n  " + clipped(line))
			}
		}
		return text.String()
	}, stop, nil
}

// mostCommands bounds the commands that are told of a request, and commandLength what is told of each.
const mostCommands, commandLength = 8, 160

func clipped(line string) string {
	if len(line) <= commandLength {
		return line
	}
	return line[:commandLength] + "…"
}

// answerLimit bounds the wait for the answer to the first request, which no fault meets.
const answerLimit = 10 * time.Second

// errSilent says that no answer came to the first request.
var errSilent = errors.New("no answer")

// silent says what is known of a driver that leaves a request without an answer.
func (k *driverCheck) silent(err error) error {
	if k.word("program", "") == "" {
		return fmt.Errorf("the lock gave no answer to the first request within %v: %w", answerLimit, err)
	}
	return fmt.Errorf("no answer to the first request came within %v. It was sent %s\nIs the output flushed after each line?", answerLimit, driverOf(k.a).Unanswered())
}
