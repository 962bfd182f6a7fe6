package attach

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"time"

	dockercontainer "github.com/moby/moby/api/types/container"
	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/topologies/internal/bootstrap"
	"github.com/lockchaos/lockchaos/topologies/internal/docker"
	"github.com/lockchaos/lockchaos/topologies/internal/scratch"
)

// A server is one that the program did not start. What runs it is a container, or unknown.
type server struct {
	*foundServer
	container *docker.Container // nil if there is none
	why       string            // nothing can be done to its process; empty if it can
	direct    string            // where it is dialled past every proxy
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

// do does something to the container, unless nothing may be done. It is seen through even if it is called off: the engine
// would carry it out anyway, perhaps after everything was restored.
func (s *server) do(ctx context.Context, what string, act func(context.Context) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.why != "" {
		return fmt.Errorf("%s %s: %s", what, s.name, s.why)
	}
	ctx, cancel, err := await.Through(ctx)
	if err == nil {
		defer cancel()
		s.touched = true
		err = act(ctx)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", what, s.name, err)
	}
	return nil
}

// Kill sends SIGKILL to the container and waits until it has exited. To kill one
// that has is no error.
func (s *server) Kill(ctx context.Context) error {
	return s.do(ctx, "kill", func(ctx context.Context) error {
		if err := s.container.Kill(ctx); err != nil {
			return err
		}
		return s.container.Ended(ctx)
	})
}

// Pause freezes the container.
func (s *server) Pause(ctx context.Context) error { return s.do(ctx, "pause", s.container.Pause) }

// Resume thaws it.
func (s *server) Resume(ctx context.Context) error { return s.do(ctx, "resume", s.container.Resume) }

// Restart starts the container again and waits until the server answers.
func (s *server) Restart(ctx context.Context) error { return s.do(ctx, "start", s.start) }

func (s *server) start(ctx context.Context) error {
	running, err := s.container.Running(ctx)
	if err == nil && running {
		err = errors.New("it still runs")
	}
	if err == nil {
		err = s.container.Start(ctx)
	}
	if err != nil {
		return err
	}
	// With a client of its own: one that failed to dial too often stops trying
	// for a while.
	c := s.access.observer(s.direct, s.announced, lookTimeout)
	defer c.Close()
	if err := await.Until(ctx, func() error { return c.Ping(ctx).Err() }); err != nil {
		return fmt.Errorf("%w\n%s", err, bootstrap.TailLog(s.Log()))
	}
	s.claim.again(ctx, s.foundServer, c)
	return nil
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
	switch state, err := s.container.State(ctx); {
	case err != nil:
		return err
	case state == dockercontainer.StatePaused:
		return s.Resume(ctx)
	case state == dockercontainer.StateExited:
		return s.Restart(ctx)
	default:
		return nil // what was asked for did not happen, or is over
	}
}

// Log is a copy of what the container has written so far; empty if there is
// none.
func (s *server) Log() string {
	if s.container == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), restoreTimeout)
	defer cancel()
	file, err := os.Create(filepath.Join(s.logs.Path, s.name+".log"))
	if err != nil {
		return ""
	}
	defer file.Close()
	if err := writeLogs(ctx, s.container, file); err != nil {
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
			links, err := s.client.WithTimeout(meetTimeout).ClusterLinks(ctx).Result()
			if err != nil {
				return 0
			}
			return len(slices.DeleteFunc(links, func(l redis.ClusterLink) bool { return l.Direction != "from" }))
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
