package bootstrap

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/topologies"
)

// defaultMasterName is how our sentinels call what they watch.
const defaultMasterName = "mymaster"

// disarmed and armed are the down-after-milliseconds of the sentinels: so slow
// that nothing fails over by itself, and as quick as is reliable. Sentinels that we did not
// tune dial a new master up to a ping period of a second after they took it for one, and would
// declare it down before.
const (
	disarmed     = "60000"
	armed        = 300
	armedForeign = 2000
)

// sentinels vote about the one master that they watch.
type sentinels struct {
	*deployment
	steady

	mu sync.Mutex
	// before are the leader's settings from before it was armed, and replacing is the
	// master of then; nil and empty when it is not.
	before    map[string]string
	replacing string
}

func (s *sentinels) names() []string { return s.topology.Of(topologies.Sentinel) }

func (*sentinels) who() string { return "the sentinels" }

// leader is the sentinel that starts every failover: the last one. With three
// that start at once, one vote in thirty is split and costs four seconds; one
// that starts alone still needs the votes of a majority.
func (s *sentinels) leader() *redis.Client { return s.observer(s.leads()) }

func (s *sentinels) leads() string {
	all := s.names()
	return all[len(all)-1]
}

// votes leaves out sentinels that do not answer; they count for the majority.
func (s *sentinels) votes(ctx context.Context, _ string) (votes map[string]int, majority int) {
	s.calm(ctx)
	votes = map[string]int{}
	for _, name := range s.names() {
		if master, err := s.masterOf(ctx, name); err == nil {
			votes[master]++
		}
	}
	return votes, len(s.names())/2 + 1
}

// calm disarms the leader as soon as it has chosen a replica to promote, which nothing calls off.
// Until it takes that one for the master it waits for two INFOs or more, of a second each. After that,
// one late PONG on a busy machine would make it replace the new master, too.
func (s *sentinels) calm(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.before == nil {
		return
	}
	master, err := s.masterOf(ctx, s.leads())
	chosen := err == nil && master != s.replacing
	if !chosen {
		replicas, _ := AskSentinel(ctx, s.leader(), "REPLICAS", s.parts.MasterName)
		chosen = slices.ContainsFunc(replicas, func(r map[string]string) bool { return strings.Contains(r["flags"], "promoted") })
	}
	if chosen && s.set(ctx, s.before["down-after-milliseconds"], s.before["quorum"]) == nil {
		s.before, s.replacing = nil, ""
	}
}

// masterOf is the server that a sentinel takes for the master.
func (d *deployment) masterOf(ctx context.Context, sentinel string) (string, error) {
	at, err := d.observer(sentinel).Do(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", d.parts.MasterName).StringSlice()
	if err != nil {
		return "", fmt.Errorf("ask %s for the master: %w", sentinel, err)
	}
	return d.NodeAt(strings.Join(at, ":")), nil
}

func (s *sentinels) agree(ctx context.Context, masters map[string]string) error {
	for shard, master := range masters {
		replicas := len(s.topology.Members(shard)) - 1
		for _, name := range s.names() {
			if err := s.sees(ctx, name, master, replicas); err != nil {
				return &lacking{name, name + " to see all is well", err}
			}
		}
	}
	return nil
}

// sees checks that a sentinel knows the master, all others, and the replicas as
// up and attached.
func (s *sentinels) sees(ctx context.Context, name, master string, replicas int) error {
	seen, err := s.watches(ctx, name)
	if err != nil {
		return err
	}
	if at := s.NodeAt(net.JoinHostPort(seen["ip"], seen["port"])); at != master {
		return fmt.Errorf("it takes %s for the master, and not %s", at, master)
	}
	if seen["flags"] != "master" || seen["num-slaves"] != strconv.Itoa(replicas) ||
		seen["num-other-sentinels"] != strconv.Itoa(len(s.names())-1) {
		return fmt.Errorf("it sees flags %s, %s replicas, %s other sentinels",
			seen["flags"], seen["num-slaves"], seen["num-other-sentinels"])
	}
	all, err := AskSentinel(ctx, s.observer(name), "REPLICAS", s.parts.MasterName)
	for _, seen := range all {
		if seen["flags"] != "slave" || seen["master-link-status"] != "ok" {
			return fmt.Errorf("it sees replica %s with flags %s and its link %s",
				seen["name"], seen["flags"], seen["master-link-status"])
		}
	}
	return err
}

// watches is what a sentinel says of the master.
func (s *sentinels) watches(ctx context.Context, name string) (map[string]string, error) {
	cmd := redis.NewMapStringStringCmd(ctx, "SENTINEL", "MASTER", s.parts.MasterName)
	if err := s.observer(name).Process(ctx, cmd); err != nil {
		return nil, err
	}
	return cmd.Val(), nil
}

// AskSentinel asks for what it knows of several servers: MASTERS, or REPLICAS or SENTINELS of a master.
func AskSentinel(ctx context.Context, sentinel *redis.Client, of ...any) ([]map[string]string, error) {
	cmd := redis.NewMapStringStringSliceCmd(ctx, append([]any{"SENTINEL"}, of...)...)
	err := sentinel.Process(ctx, cmd)
	return cmd.Val(), err
}

// quickHello and slowHello are the milliseconds between two messages in which
// a sentinel tells the others what it knows. After four of them without news,
// a sentinel turns a replica that became a master back into a replica. In a
// failover that nothing forces, the leader sees the promotion after up to a
// second, and the others must have that much patience.
const (
	quickHello = "200"
	slowHello  = "400"
)

// slowPatience is the patience of sentinels with slow messages.
const slowPatience = 4 * 400 * time.Millisecond

// awaitAgreement waits until all sentinels that answer name the same master, for as long as they
// have patience with one that they have not heard of. With quick messages they would have
// none left, and turn a master that was promoted half a second ago back into a replica.
func (s *sentinels) awaitAgreement(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, slowPatience)
	defer cancel()
	_ = await.Until(ctx, func() error {
		masters := map[string]bool{}
		for _, name := range s.names() {
			if master, err := s.masterOf(ctx, name); err == nil {
				masters[master] = true
			}
		}
		if len(masters) > 1 {
			return fmt.Errorf("sentinels name %d masters", len(masters))
		}
		return nil
	})
}

func (s *sentinels) setHello(ctx context.Context, milliseconds string) error {
	if s.parts.Foreign {
		return nil // they have the patience that Redis comes with
	}
	for _, name := range s.names() {
		if err := s.tell(ctx, name, "PUBLISH-PERIOD", milliseconds); err != nil {
			return err
		}
	}
	return nil
}

// tell changes settings of a sentinel that last as long as it runs.
func (s *sentinels) tell(ctx context.Context, name string, settings ...any) error {
	command := append([]any{"SENTINEL", "DEBUG"}, settings...)
	if err := patiently(ctx, func() error { return s.observer(name).Do(ctx, command...).Err() }); err != nil {
		return fmt.Errorf("tell %s: %w", name, err)
	}
	return nil
}

// arm makes the leader quick to declare the master down, without the
// others' opinion. Electing itself still takes a majority. A replica whose link to the master was down for more than ten
// times as long before that is never promoted (Redis, sentinelSelectSlave): where links are cut, the leader gets twice the patience that takes.
func (s *sentinels) arm(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	quick := armed
	if s.parts.Foreign {
		quick = armedForeign
	}
	downAfter := quick
	err := patiently(ctx, func() error {
		replicas, err := AskSentinel(ctx, s.leader(), "REPLICAS", s.parts.MasterName)
		for _, r := range replicas {
			cut, _ := strconv.Atoi(r["master-link-down-time"]) // of one with a link it is 0
			downAfter = max(downAfter, quick+cut/5)
		}
		if err == nil && s.before == nil {
			s.before, err = s.watches(ctx, s.leads())
		}
		if err == nil {
			s.replacing, err = s.masterOf(ctx, s.leads())
		}
		return err
	})
	if err == nil {
		err = s.set(ctx, strconv.Itoa(downAfter), "1")
	}
	if err != nil {
		return fmt.Errorf("arm the sentinels: %w", err)
	}
	return nil
}

func (s *sentinels) disarm(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.before != nil {
		if err := s.set(ctx, s.before["down-after-milliseconds"], s.before["quorum"]); err != nil {
			return fmt.Errorf("disarm the sentinels: %w", err)
		}
		s.before, s.replacing = nil, ""
	}
	s.awaitAgreement(ctx)
	return s.setHello(ctx, quickHello)
}

// set changes the leader's opinion of when the master is down.
func (s *sentinels) set(ctx context.Context, downAfter, quorum string) error {
	return patiently(ctx, func() error {
		return s.leader().Do(ctx, "SENTINEL", "SET", s.parts.MasterName,
			"down-after-milliseconds", downAfter, "quorum", quorum).Err()
	})
}

func (s *sentinels) promote(ctx context.Context, _ string) error {
	if err := s.setHello(ctx, slowHello); err != nil {
		return err
	}
	return ask(ctx, func() error { return s.leader().Do(ctx, "SENTINEL", "FAILOVER", s.parts.MasterName).Err() },
		"INPROG", "NOGOODSLAVE")
}

func configureSentinel(at, master Address) string {
	return fmt.Sprintf(`port %d
bind %s
bind-source-addr %s
protected-mode no
dir .
sentinel announce-ip %s
sentinel announce-port %d
sentinel monitor %s %s %d 2
sentinel down-after-milliseconds %s %s
sentinel failover-timeout %s 2000
sentinel parallel-syncs %s 2
`, at.Listen.Port(), at.Listen.Addr(), at.Listen.Addr(), at.Announced.Addr(), at.Announced.Port(),
		defaultMasterName, master.Announced.Addr(), master.Announced.Port(),
		defaultMasterName, disarmed, defaultMasterName, defaultMasterName)
}
