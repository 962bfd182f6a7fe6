package bootstrap

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/topologies"
)

// A Process runs a server that lockchaos starts: as a process of this machine, or in a container. It is started and
// killed again and again.
type Process interface {
	// Start starts it, and does not wait until the server answers.
	Start(ctx context.Context) error
	// Running reports whether it runs, and Ended waits until it does not.
	Running(ctx context.Context) (bool, error)
	Ended(ctx context.Context) error
	// Kill ends it with SIGKILL. To kill one that does not run is no error.
	Kill(ctx context.Context) error
	// Pause returns once it stands still, and Resume once it goes on.
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error
}

// A Host is a server with a name, an address and a folder that outlive its processes.
type Host struct {
	At  Address
	Dir string // of its files

	name     string
	store    Store
	process  Process
	observer *redis.Client
}

var _ topologies.Server = (*Host)(nil)

// NewHost makes the folder of a server of that name in another, and starts nothing. A dial of its observer may take so
// long; 0: as long as any look at a server.
func NewHost(s Store, name string, at Address, parent string, p Process, dial time.Duration) (*Host, error) {
	h := &Host{At: at, Dir: filepath.Join(parent, name), name: name, store: s, process: p}
	if err := os.Mkdir(h.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("prepare %s: %w", name, err)
	}
	o := ObserverOptions(at.Listen.String())
	o.DialTimeout = cmp.Or(dial, o.DialTimeout)
	if _, other := s.(Consensus); other {
		o.Dialer = NoRedis(name)
	}
	h.observer = redis.NewClient(o)
	return h, nil
}

// Name is that of the server in its topology.
func (h *Host) Name() string { return h.name }

// Observer is a connection past every fault.
func (h *Host) Observer() *redis.Client { return h.observer }

// Log is the file that all processes of the server write to.
func (h *Host) Log() string { return filepath.Join(h.Dir, "log") }

// did says what was done to the server where that failed.
func (h *Host) did(what string, err error) error {
	if err != nil {
		return fmt.Errorf("%s %s: %w", what, h.name, err)
	}
	return nil
}

// Kill ends the process and waits until it is gone.
func (h *Host) Kill(ctx context.Context) error {
	err := h.process.Kill(ctx)
	if err == nil {
		err = h.process.Ended(ctx)
	}
	return h.did("kill", err)
}

// stopped fails while the process runs.
func (h *Host) stopped(ctx context.Context) error {
	running, err := h.process.Running(ctx)
	if err == nil && running {
		err = errors.New("it still runs")
	}
	return err
}

// Restart starts the process again and waits until the server answers, or has ended.
func (h *Host) Restart(ctx context.Context) error {
	err := h.stopped(ctx)
	if err == nil {
		err = h.process.Start(ctx)
	}
	if err != nil {
		return h.did("start", err)
	}
	limited, cancel := context.WithCancelCause(ctx)
	defer await.Behind(ctx, func(ctx context.Context) {
		if h.process.Ended(ctx) == nil {
			cancel(errors.New("it ended"))
		}
	})()
	defer cancel(nil)
	if err := await.Until(limited, func() error { return h.store.Alive(limited, h.At) }); err != nil {
		return fmt.Errorf("await %s: %w\n%s", h.name, err, TailLog(h.Log()))
	}
	return nil
}

// Pause has the process stand still.
func (h *Host) Pause(ctx context.Context) error { return h.did("pause", h.process.Pause(ctx)) }

// Resume lets it go on.
func (h *Host) Resume(ctx context.Context) error { return h.did("resume", h.process.Resume(ctx)) }

// Wipe removes the data of a server that does not run. What it knows of the others stays.
func (h *Host) Wipe(ctx context.Context) error {
	err := h.stopped(ctx)
	for _, pattern := range []string{"dump.rdb", "temp-*", "appendonlydir", filepath.Join("data", "version-2")} {
		files, _ := filepath.Glob(filepath.Join(h.Dir, pattern)) // the pattern is good
		for _, file := range files {
			if err == nil {
				err = os.RemoveAll(file)
			}
		}
	}
	return h.did("wipe", err)
}

// A managed server is one of ours for which starting the process is not all
// that there is to a start.
type managed struct {
	topologies.Server
	restart func(ctx context.Context) error
}

// Restart starts the process again.
func (m managed) Restart(ctx context.Context) error { return m.restart(ctx) }

// manage makes a server start as its topology wants it.
func (d *deployment) manage(name string, s topologies.Server) topologies.Server {
	watch, _ := d.elector.(*sentinels)
	switch n, _ := d.topology.Node(name); {
	case d.parts.Foreign:
		return s
	case n.Kind == topologies.Sentinel:
		return managed{s, func(ctx context.Context) error {
			if err := s.Restart(ctx); err != nil {
				return err
			}
			// Shorter periods than it comes with, and which it has forgotten when it is started again. Five ping
			// periods and three info periods must exceed the second that a sentinel waits between two INFOs while a
			// master is down, else it finds no replica good enough to promote.
			return watch.tell(ctx, name, "INFO-PERIOD", "400", "PING-PERIOD", "250",
				"ASK-PERIOD", "50", "PUBLISH-PERIOD", quickHello, "TILT-PERIOD", "500")
		}}
	case n.Kind == topologies.Redis && d.topology.Options.Persistence == topologies.PersistNone:
		// Replicas sync through a file, and a server that finds it would start
		// with what it held then.
		return managed{s, func(ctx context.Context) error {
			if err := s.Wipe(ctx); err != nil {
				return err
			}
			return s.Restart(ctx)
		}}
	default:
		return s
	}
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
