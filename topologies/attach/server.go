package attach

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/topologies/internal/bootstrap"
	"github.com/lockchaos/lockchaos/topologies/internal/scratch"
)

// A server is one that the program did not start. What runs it is a container, or unknown.
type server struct {
	*foundServer
	engine    *engine
	container string // its id; empty if there is none
	why       string // nothing can be done to its process; empty if it can
	direct    string // where it is dialled past every proxy
	access    access
	logs      *scratch.Folder
	claim     *claim

	mu      sync.Mutex
	touched bool // we had it killed or paused, even if the answer got lost
}

func (s *server) Name() string            { return s.name }
func (s *server) Observer() *redis.Client { return s.client }

// restoreTimeout bounds how long one thing may take that is put back.
const restoreTimeout = 10 * time.Second

// do has the engine do something to the container, unless nothing may be done, and waits until that is in a
// state; empty: for nothing.
func (s *server) do(ctx context.Context, what, state string) error {
	if s.why != "" {
		return fmt.Errorf("%s %s: %s", what, s.name, s.why)
	}
	if err := s.engine.act(ctx, s.container, what); err != nil {
		return fmt.Errorf("%s %s: %w", what, s.name, err)
	}
	if state == "" {
		return nil
	}
	return await.Until(ctx, func() error {
		now, err := s.engine.state(ctx, s.container)
		if err == nil && now != state {
			err = fmt.Errorf("container of %s is %s, not %s", s.name, now, state)
		}
		return err
	})
}

// doThrough is do, which is seen through even if it is called off: the engine would carry it out anyway, perhaps after
// everything was restored. That it is in the state already is no error where it may be.
func (s *server) doThrough(ctx context.Context, what, state string, already bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx, cancel, err := await.Through(ctx)
	if err != nil {
		return fmt.Errorf("%s %s: %w", what, s.name, err)
	}
	defer cancel()
	if already && s.why == "" {
		if now, err := s.engine.state(ctx, s.container); err == nil && now == state {
			return nil
		}
	}
	s.touched = s.touched || s.why == ""
	return s.do(ctx, what, state)
}

// Kill sends SIGKILL to the container and waits until it has exited. To kill one
// that has is no error.
func (s *server) Kill(ctx context.Context) error { return s.doThrough(ctx, "kill", "exited", true) }

// Pause freezes the container.
func (s *server) Pause(ctx context.Context) error { return s.doThrough(ctx, "pause", "paused", false) }

// Restart starts the container again and waits until the server answers.
func (s *server) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.why == "" {
		if state, err := s.engine.state(ctx, s.container); err == nil && state != "exited" {
			return fmt.Errorf("restart %s: it still runs", s.name)
		}
	}
	if err := s.do(ctx, "start", ""); err != nil {
		return err
	}
	// With a client of its own: one that failed to dial too often stops trying
	// for a while.
	c := s.access.observer(s.direct, s.announced, lookTimeout)
	defer c.Close()
	if err := await.Until(ctx, func() error { return c.Ping(ctx).Err() }); err != nil {
		return fmt.Errorf("await %s: %w\n%s", s.name, err, bootstrap.TailLog(s.Log()))
	}
	s.claim.again(ctx, s.foundServer, c)
	return nil
}

// Resume thaws it.
func (s *server) Resume(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.do(ctx, "unpause", "running")
}

// noWiping is why Wipe does nothing.
const noWiping = "the data of servers that run elsewhere is never removed"

// Wipe fails: the data is not the program's.
func (s *server) Wipe(context.Context) error {
	return fmt.Errorf("wipe %s: %s", s.name, noWiping)
}

// restore lets run again what was killed or paused.
func (s *server) restore() error {
	ctx, cancel := context.WithTimeout(context.Background(), restoreTimeout)
	defer cancel()
	s.mu.Lock()
	touched := s.touched
	s.mu.Unlock()
	if !touched {
		return nil
	}
	switch state, err := s.engine.state(ctx, s.container); {
	case err != nil:
		return err
	case state == "paused":
		return s.Resume(ctx)
	case state == "exited":
		return s.Restart(ctx)
	default:
		return nil // what was asked for did not happen, or is over
	}
}

// Log is a copy of what the container has written so far; empty if there is
// none.
func (s *server) Log() string {
	if s.container == "" {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), restoreTimeout)
	defer cancel()
	file, err := os.Create(filepath.Join(s.logs.Path, s.name+".log"))
	if err != nil {
		return ""
	}
	defer file.Close()
	if err := s.engine.logs(ctx, s.container, file); err != nil {
		return ""
	}
	return file.Name()
}

// callers counts the connections that other servers have to this one: replicas
// and sentinels, or, on a cluster's bus, all other nodes. Redis knows them apart
// from clients; that it does not say counts as none.
func (s *server) callers(bus bool) func(context.Context) int {
	if bus {
		return func(ctx context.Context) int {
			links, err := s.client.WithTimeout(meetTimeout).Do(ctx, "CLUSTER", "LINKS").Slice()
			if err != nil {
				return 0
			}
			return len(slices.DeleteFunc(links, func(l any) bool { return bootstrap.Fields(l)["direction"] != "from" }))
		}
	}
	return func(ctx context.Context) int {
		list, err := s.client.WithTimeout(meetTimeout).ClientList(ctx).Result()
		if err != nil {
			return 0
		}
		return len(regexp.MustCompile(`(?m)^.* (name=sentinel-|flags=\w*S).*$`).FindAllString(list, -1))
	}
}
