package redistest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Nightly is the environment variable that is 1 where each test gets servers that were
// started for it.
const Nightly = "LOCKCHAOS_TEST_NIGHTLY"

// Reusing are the tests of a package, of which one gets the server that another one is
// done with. A TestMain runs them:
//
//	func TestMain(m *testing.M) { os.Exit(redistest.Reusing{M: m}.Run()) }
//
// A server is handed on only when it has been emptied and is as it was when it started
// (see asNew); one that a test ended, stopped, configured or gave a replica is not. Its
// socket has another name for each test, so that a client of the test before can't reach
// it. The servers end with Run, and with the process (see lockThread).
//
// Assumes that all that a test can change in a server is in what asNew compares.
type Reusing struct{ M *testing.M }

// Run runs the tests, and ends the servers after the last one.
func (r Reusing) Run() int {
	if os.Getenv(Nightly) != "1" {
		idle.open()
		defer idle.close()
	}
	return r.M.Run()
}

// idle are the servers of this process that no test uses. There are none before Run, and after it.
var idle pool //nolint:gochecknoglobals // servers outlive the tests that use them

type pool struct {
	mu      sync.Mutex
	isOpen  bool
	servers []*process
}

func (p *pool) open() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isOpen = true
}

func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isOpen = false
	for _, s := range p.servers {
		s.end()
	}
	p.servers = nil
}

// take returns a server that is as new, or nil.
func (p *pool) take() (s *process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last := len(p.servers) - 1; last >= 0 {
		s, p.servers = p.servers[last], p.servers[:last]
	}
	return s
}

// give keeps a server for another test if it can be made as new, and ends it otherwise.
func (p *pool) give(s *process) {
	p.mu.Lock()
	isOpen := p.isOpen
	p.mu.Unlock()
	if !isOpen || s.renew() != nil {
		s.end()
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.servers = append(p.servers, s) // a test gives it back before Run ends
}

// renewal bounds what it takes to make a server as new: on a busy machine a new one is
// started sooner than that.
const renewal = 2 * time.Second

// renew takes everything from a server that a test has left there. An error tells why it
// is not as new.
func (p *process) renew() error {
	ctx, cancel := context.WithTimeout(context.Background(), renewal)
	defer cancel()
	admin := p.admin()
	defer admin.Close()
	// An outcome that matters is seen by asNew: none but that of the first, by which a
	// server that is busy, or asks for a password, is known at once.
	if err := admin.Do(ctx, "CLIENT", "UNPAUSE").Err(); err != nil {
		return err
	}
	for ctx.Err() == nil {
		_, _ = admin.Pipelined(ctx, func(all redis.Pipeliner) error {
			for _, kind := range []string{"normal", "pubsub"} {
				all.Do(ctx, "CLIENT", "KILL", "TYPE", kind)
			}
			all.Do(ctx, "FLUSHALL", "SYNC")
			all.Do(ctx, "SCRIPT", "FLUSH", "SYNC")
			all.Do(ctx, "FUNCTION", "FLUSH", "SYNC")
			all.Do(ctx, "CONFIG", "RESETSTAT")
			all.Do(ctx, "SLOWLOG", "RESET")
			all.Do(ctx, "ACL", "LOG", "RESET")
			return nil
		})
		err := p.asNew(ctx, admin)
		if !errors.Is(err, errOtherClients) {
			return err
		}
	}
	return ctx.Err()
}

var errOtherClients = errors.New("it has other clients")

// asNew returns an error unless a server is as it was when it started: its settings, its
// users, its part in replication, and that it holds nothing and serves no client.
func (p *process) asNew(ctx context.Context, admin *redis.Client) error {
	now, err := describe(ctx, admin)
	switch {
	case err != nil:
		return err
	case now["clients"] != p.fresh["clients"]:
		return errOtherClients
	case !maps.Equal(now, p.fresh):
		return fmt.Errorf("it is %v, and was %v", now, p.fresh)
	default:
		return nil
	}
}

// described are the lines of INFO that a test can change, and the tests of others see.
// Databases that are not empty have a line each.
func described(line string) bool {
	name, _, _ := strings.Cut(line, ":")
	switch name {
	case "role", "connected_slaves", "repl_backlog_active", "second_repl_offset", // replication
		"connected_clients", "blocked_clients", "tracking_clients", "clients_in_timeout_table", // clients
		"number_of_cached_scripts", "number_of_functions", "number_of_libraries", // scripts
		"loading", "async_loading", "rdb_bgsave_in_progress", "aof_enabled", "aof_rewrite_in_progress", // persistence
		"maxmemory", "maxmemory_policy", "lazyfree_pending_objects", "cluster_enabled":
		return true
	}
	return strings.HasPrefix(line, "db")
}

// describe tells what a test can change in a server.
func describe(ctx context.Context, admin *redis.Client) (map[string]string, error) {
	var info, settings, users, channels, patterns, clients *redis.Cmd
	_, err := admin.Pipelined(ctx, func(all redis.Pipeliner) error {
		info = all.Do(ctx, "INFO", "EVERYTHING")
		settings = all.Do(ctx, "CONFIG", "GET", "*")
		users = all.Do(ctx, "ACL", "LIST")
		channels = all.Do(ctx, "PUBSUB", "CHANNELS")
		patterns = all.Do(ctx, "PUBSUB", "NUMPAT")
		clients = all.Do(ctx, "CLIENT", "LIST")
		return nil
	})
	if err != nil {
		return nil, err
	}
	lines := map[string]string{}
	for line := range strings.Lines(fmt.Sprint(info.Val())) {
		if line = strings.TrimSpace(line); described(line) {
			name, value, _ := strings.Cut(line, ":")
			lines["info "+name] = value
		}
	}
	pairs, err := settings.Slice()
	if err != nil {
		return nil, err
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		lines[fmt.Sprint("setting ", pairs[i])] = fmt.Sprint(pairs[i+1])
	}
	lines["users"] = fmt.Sprint(users.Val())
	lines["subscriptions"] = fmt.Sprint(channels.Val(), patterns.Val())
	lines["clients"] = fmt.Sprint(strings.Count(fmt.Sprint(clients.Val()), "id="))
	return lines, nil
}

// admin is a client with one connection, for what is done between tests.
func (p *process) admin() *redis.Client {
	return redis.NewClient(&redis.Options{
		Network: "unix", Addr: p.socket, Protocol: 2, DisableIdentity: true, MaxRetries: -1, PoolSize: 1,
		ReadTimeout:           patience, // a context bounds it
		ContextTimeoutEnabled: true,
	})
}
