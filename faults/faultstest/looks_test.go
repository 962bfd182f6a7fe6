//go:build linux

package faultstest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/topologies"
)

const (
	// client is the link that is looked at.
	client = "zone-a>redis-1"
	// probes is a pattern of the keys that are there for faults to hit, and bait one of them.
	probes, bait = "lockchaos:hit:*", "lockchaos:hit:1"
	// moved is a key whose slot moves.
	moved = "orders"
	// impatient is how long a client waits for an answer that does not come.
	impatient = 200 * time.Millisecond
	// lease is how long the bait has to live.
	lease = 2 * time.Minute
)

// A scene is a deployment with what faults need to hit, and what a look at their effect compares.
type scene struct {
	d   topologies.Deployment
	was map[string]string

	clients []goredis.UniversalClient // of zone-a, each with a connection
	pubsubs []*goredis.PubSub         // one of each
	runID   string                    // of the first server
	script  string                    // that it knows
	id      int64                     // of the first client's connection
	master  string                    // of the shard
	shard   string
	keys    int
	held    string // a key whose command is kept, and must be there in the end
}

// newScene is a deployment that is as it should be.
func newScene(t *testing.T, d topologies.Deployment, e entry) *scene {
	t.Helper()
	s := &scene{d: d, shard: e.Params["shard"]}
	if shards := d.Topology().Shards(); s.shard == "" && len(shards) > 0 {
		s.shard = shards[0]
	}
	var err error
	s.was, err = settings(runtest.Within(t, limit), d)
	require.NoError(t, err)
	t.Cleanup(s.leave)
	return s
}

// leave ends the clients.
func (s *scene) leave() {
	for _, p := range s.pubsubs {
		_ = p.Close()
	}
	for _, c := range s.clients {
		_ = c.Close()
	}
	s.pubsubs, s.clients = nil, nil
}

// server is the first one, which has a shard of its own, past every fault and every link.
func (s *scene) server() *goredis.Client { return patient(s.d.Server("redis-1")) }

// link is the link that is looked at.
func (s *scene) link() topologies.Proxy { return s.d.Proxy(client) }

// whole waits until the deployment is as it was before the fault, and puts there what faults can hit:
// a key on the first server, and clients of zone-a that have a connection and a subscription each.
func (s *scene) whole(ctx context.Context) error {
	if err := s.asItWas(ctx); err != nil {
		return err
	}
	s.leave()
	return s.ready(ctx)
}

// ready waits until there is what faults can hit.
func (s *scene) ready(ctx context.Context) error {
	return await.Until(ctx, func() error {
		if err := s.prepare(ctx); err != nil {
			s.leave()
			return err
		}
		return nil
	})
}

// asItWas waits until the deployment is ready, every link answers, every clock shows the true time, what was held
// has arrived, and every setting is what it was.
func (s *scene) asItWas(ctx context.Context) error {
	if s.held != "" {
		if err := s.there(ctx, s.held, 1); err != nil {
			return fmt.Errorf("what was held back: %w", err)
		}
		s.held = ""
	}
	if err := s.d.AwaitReady(ctx); err != nil {
		return err
	}
	if err := await.Until(ctx, func() error { return whole(ctx, s.d) }); err != nil {
		return err
	}
	now, err := settings(ctx, s.d)
	if err != nil {
		return err
	}
	for what, is := range now {
		if is != s.was[what] {
			err = errors.Join(err, fmt.Errorf("%s is %q, and was %q", what, is, s.was[what]))
		}
	}
	return err
}

func (s *scene) prepare(ctx context.Context) (err error) {
	s.clients = topologies.Clients(s.d.ClientOptions("zone-a"))
	for _, c := range s.clients {
		p := c.Subscribe(ctx, "channel")
		s.pubsubs = append(s.pubsubs, p)
		if _, err := p.Receive(ctx); err != nil {
			return err
		}
		if err := c.Ping(ctx).Err(); err != nil {
			return err
		}
	}
	if rdb, ok := s.clients[0].(*goredis.Client); ok {
		if s.id, err = rdb.ClientID(ctx).Result(); err != nil {
			return err
		}
	}
	if s.d.Topology().Name == topologies.Cluster {
		if err := s.clients[0].Set(ctx, moved, "kept", 0).Err(); err != nil {
			return err
		}
	}
	if t := s.d.Topology(); t.Name == topologies.Single && !t.Options.ByName() {
		if err := errors.Join(s.server().FlushAll(ctx).Err(), s.server().Set(ctx, bait, "1", lease).Err()); err != nil {
			return err
		}
		if s.script, err = s.server().ScriptLoad(ctx, "return 2").Result(); err != nil {
			return err
		}
	}
	if s.runID, err = s.process(ctx); err != nil {
		return err
	}
	if s.shard != "" {
		s.master, err = s.d.Master(ctx, s.shard)
	}
	return err
}

// process tells the processes of the first server apart.
func (s *scene) process(ctx context.Context) (string, error) {
	info, err := s.server().InfoMap(ctx, "server").Result()
	if err != nil {
		return "", err
	}
	return info["Server"]["run_id"], nil
}

// there waits until a key is there, or not.
func (s *scene) there(ctx context.Context, key string, want int64) error {
	return await.Until(ctx, func() error {
		n, err := s.server().Exists(ctx, key).Result()
		if err == nil && n != want {
			err = fmt.Errorf("key %s: there is %d, want %d", key, n, want)
		}
		return err
	})
}

// set asks for a new key to be set, on a connection that is there already, and returns its name.
func (s *scene) set(ctx context.Context) (key string, err error) {
	s.keys++
	key = fmt.Sprintf("key-%d", s.keys)
	if err := await.Until(ctx, func() error { return s.clients[0].Ping(ctx).Err() }); err != nil {
		return key, err
	}
	ctx, cancel := context.WithTimeout(ctx, impatient)
	defer cancel()
	return key, s.clients[0].Set(ctx, key, "value", 0).Err()
}

// A look fails unless the effect of a fault shows.
type look = func(ctx context.Context, s *scene, e entry) error

// looks are those at the effect of each fault.
func looks() map[string]look {
	all := map[string]look{
		"bandwidth": takes("bandwidth", 50*time.Millisecond, func(ctx context.Context, l topologies.Proxy) (time.Duration, error) {
			return l.ProbeBandwidth(ctx, 1000)
		}),
		"slow-close": takes("slow_close", 50*time.Millisecond, func(ctx context.Context, l topologies.Proxy) (time.Duration, error) {
			return l.ProbeClose(ctx)
		}),
		"latency": takes("latency", 20*time.Millisecond, func(ctx context.Context, l topologies.Proxy) (time.Duration, error) {
			return l.Probe(ctx)
		}),
		"flap":             flaps,
		"reset":            reconnects,
		"clock-back":       livesFor(time.Hour, time.Hour+lease),
		"clock-forward":    livesFor(time.Second, time.Minute),
		"clock-freeze":     freezes,
		"clock-rate":       drifts,
		"stall-disk":       answersWrites(unanswered),
		"pause-writes":     answersWrites(unanswered),
		"out-of-memory":    answersWrites(answers("OOM")),
		"refuse-writes":    answersWrites(answers("NOREPLICAS")),
		"busy-script":      answersWrites(answers("BUSY")),
		"refuse-clients":   refusesClients,
		"corrupt-key":      has("foreign", func(v string) bool { return v != "1" && v != "" }),
		"drop-key":         has("no key", func(v string) bool { return v == "" }),
		"evict":            has("no key", func(v string) bool { return v == "" }),
		"flush":            has("no key", func(v string) bool { return v == "" }),
		"kill-pubsub":      unsubscribed,
		"script-flush":     forgetsScripts,
		"restart":          restarts("1"),
		"shutdown":         restarts("1"),
		"power-cut":        restarts("1"), // of a server that syncs each write
		"restart-empty":    restarts(""),
		"migrate-slot":     moves,
		"drop-message":     losesTheSecond,
		"drop-command":     loses(0),
		"drop-reply":       loses(1),
		"hold-command":     holds,
		"hold-reply":       loses(1),
		"delay-command":    late,
		"delay-reply":      late,
		"crash-failover":   promotes,
		"failover":         promotes,
		"planned-failover": promotes,
		"split-brain":      promotes,
	}
	for fault, toxic := range map[string]string{"cut": disabled, "stall": topologies.TypeHold, "kill": "", "pause": ""} {
		all[fault] = func(ctx context.Context, s *scene, _ entry) error {
			return errors.Join(fails(ctx, s.link()), lies(ctx, s.link(), toxic))
		}
	}
	for _, fault := range []string{"partition", "partition-bridge", "partition-halves", "partition-ring"} {
		all[fault] = parts
	}
	return all
}

// disabled is how toxiproxy shows a cut.
const disabled = "disabled"

// lies wants toxiproxy to show that a toxic of that type lies on a link, or that the link is disabled; empty: that neither is so.
func lies(ctx context.Context, l topologies.Proxy, toxic string) error {
	types, enabled, err := l.Toxics(ctx)
	if !enabled {
		types = append(types, disabled)
	}
	types = slices.Compact(types) // one for each stream
	if want := strings.Fields(toxic); err == nil && !slices.Equal(types, want) {
		err = fmt.Errorf("toxiproxy shows %v on %s, want %v", types, l.Name(), want)
	}
	return err
}

// fails wants a link not to answer.
func fails(ctx context.Context, l topologies.Proxy) error {
	ctx, cancel := context.WithTimeout(ctx, impatient)
	defer cancel()
	if took, err := l.Probe(ctx); err == nil {
		return fmt.Errorf("%s answers after %v", l.Name(), took)
	}
	return nil
}

// parts wants every link between the parties not to answer, and no party to be cut off from itself.
func parts(ctx context.Context, s *scene, e entry) error {
	spec, err := faults.ByName(e.Fault)
	if err != nil {
		return err
	}
	links, err := spec.LinksOf(s.d.Topology(), e.Step)
	if err != nil || len(links) == 0 {
		return fmt.Errorf("there are %d links across: %w", len(links), err)
	}
	toxic := disabled
	if e.Params["how"] == "stall" {
		toxic = topologies.TypeHold
	}
	for _, l := range links {
		err = errors.Join(err, fails(ctx, s.d.Proxy(l.Name())), lies(ctx, s.d.Proxy(l.Name()), toxic))
	}
	return err
}

// takes wants something on a link with a toxic to take so long at the least.
func takes(toxic string, least time.Duration, do func(context.Context, topologies.Proxy) (time.Duration, error)) look {
	return func(ctx context.Context, s *scene, _ entry) error {
		took, err := do(ctx, s.link())
		if err == nil && took < least {
			err = fmt.Errorf("it took %v", took)
		}
		return errors.Join(err, lies(ctx, s.link(), toxic))
	}
}

// flaps wants a link to be cut sooner or later.
func flaps(ctx context.Context, s *scene, _ entry) error {
	return await.Until(ctx, func() error { return lies(ctx, s.link(), disabled) })
}

// reconnects wants a client to have another connection.
func reconnects(ctx context.Context, s *scene, _ entry) error {
	return await.Until(ctx, func() error {
		id, err := s.clients[0].(*goredis.Client).ClientID(ctx).Result()
		if err == nil && id == s.id {
			err = errors.New("its connection is open still")
		}
		return err
	})
}

// livesFor wants the bait to have so long to live.
func livesFor(least, most time.Duration) look {
	return func(ctx context.Context, s *scene, _ entry) error {
		left, err := s.server().PTTL(ctx, bait).Result()
		if err == nil && (left < least || left > most) {
			err = fmt.Errorf("the key has %v to live, and should have from %v to %v", left, least, most)
		}
		return err
	}
}

// freezes wants no time to pass.
func freezes(ctx context.Context, s *scene, _ entry) error {
	before, err := s.server().PTTL(ctx, bait).Result()
	if err != nil {
		return err
	}
	time.Sleep(20 * time.Millisecond) // what is tested is that time does not pass
	if after, err := s.server().PTTL(ctx, bait).Result(); err != nil || after != before {
		return fmt.Errorf("the key had %v to live, and has %v (%w)", before, after, err)
	}
	return nil
}

// drifts wants the clock to be off: the longer it lasts, the more it shows, and at last more than it takes to ask.
func drifts(ctx context.Context, s *scene, e entry) error {
	return await.Until(ctx, func() error {
		before := time.Now()
		at, err := s.server().Time(ctx).Result()
		after := time.Now()
		slow := strings.HasPrefix(e.Params["percent"], "-")
		if err == nil && (!slow && !at.After(after) || slow && !at.Before(before)) {
			err = fmt.Errorf("between %v and %v it says %v", before, after, at)
		}
		return err
	})
}

// answersWrites looks at the answer of a write.
func answersWrites(want func(error) error) look {
	return func(ctx context.Context, s *scene, _ entry) error {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		return want(s.d.Server("redis-1").Observer().Set(ctx, "written", 1, 0).Err())
	}
}

func answers(prefix string) func(error) error {
	return func(err error) error {
		if !goredis.HasErrorPrefix(err, prefix) {
			return fmt.Errorf("answered with %w, want %q", errors.Join(err), prefix)
		}
		return nil
	}
}

func unanswered(err error) error {
	var late interface{ Timeout() bool }
	if !errors.As(err, &late) || !late.Timeout() {
		return fmt.Errorf("answered with %w", errors.Join(err))
	}
	return nil
}

// refusesClients wants a new connection to be refused.
func refusesClients(ctx context.Context, s *scene, _ entry) error {
	c := topologies.Clients(s.d.ClientOptions("zone-a"))[0]
	defer c.Close()
	if err := c.Ping(ctx).Err(); err == nil {
		return errors.New("a new client is served")
	}
	return nil
}

// has wants the bait to be so.
func has(want string, is func(value string) bool) look {
	return func(ctx context.Context, s *scene, _ entry) error {
		value, err := s.server().Get(ctx, bait).Result()
		if errors.Is(err, goredis.Nil) {
			err = nil
		}
		if err == nil && !is(value) {
			err = fmt.Errorf("there is %q, want %s", value, want)
		}
		return err
	}
}

// unsubscribed wants the subscription to end.
func unsubscribed(ctx context.Context, s *scene, _ entry) error {
	if _, err := s.pubsubs[0].ReceiveTimeout(ctx, limit); !errors.Is(err, io.EOF) {
		return fmt.Errorf("the subscription goes on: %w", errors.Join(err))
	}
	return nil
}

// forgetsScripts wants the server not to know a script that it knew.
func forgetsScripts(ctx context.Context, s *scene, _ entry) error {
	known, err := s.server().ScriptExists(ctx, s.script).Result()
	if err == nil && known[0] {
		err = errors.New("it knows the script")
	}
	return err
}

// restarts wants another process, and the bait to be so, "" for none.
func restarts(kept string) look {
	return func(ctx context.Context, s *scene, e entry) error {
		now, err := s.process(ctx)
		if err == nil && now == s.runID {
			err = errors.New("it is the same process")
		}
		return errors.Join(err, has(fmt.Sprintf("%q", kept), func(v string) bool { return v == kept })(ctx, s, e))
	}
}

// moves wants one server to send on who asks for the key, and a client that follows to find it.
func moves(ctx context.Context, s *scene, _ entry) error {
	askings := 0
	for _, name := range s.d.Topology().Of(topologies.Redis) {
		if err := patient(s.d.Server(name)).Exists(ctx, moved).Err(); goredis.HasErrorPrefix(err, "ASK ") {
			askings++
		}
	}
	if askings != 1 {
		return fmt.Errorf("%d servers send on who asks for the key", askings)
	}
	got, err := s.clients[0].Get(ctx, moved).Result()
	if err == nil && got != "kept" {
		err = fmt.Errorf("a client that follows finds %q", got)
	}
	return err
}

// losesTheSecond wants the second message of those that are wanted to be lost, and no other.
func losesTheSecond(ctx context.Context, s *scene, _ entry) error {
	for _, text := range []string{"wanted 1", "other", "wanted 2", "wanted 3"} {
		if err := s.server().Publish(ctx, "channel", text).Err(); err != nil {
			return err
		}
	}
	var got []string
	for range 3 {
		m, err := s.pubsubs[0].ReceiveMessage(ctx)
		if err != nil {
			return err
		}
		got = append(got, m.Payload)
	}
	if want := []string{"wanted 1", "other", "wanted 3"}; !slices.Equal(got, want) {
		return fmt.Errorf("there came %q", got)
	}
	return nil
}

// loses wants a client to get no answer, and its key to be there or not.
func loses(there int64) look {
	return func(ctx context.Context, s *scene, _ entry) error {
		key, err := s.set(ctx)
		if err == nil {
			return errors.New("the client got an answer")
		}
		return s.there(ctx, key, there)
	}
}

// holds is like a loss until the heal.
func holds(ctx context.Context, s *scene, _ entry) error {
	key, err := s.set(ctx)
	if err == nil {
		return errors.New("the client got an answer")
	}
	s.held = key
	return s.there(ctx, key, 0)
}

// late wants the answer of a request to take as long as it is kept.
func late(ctx context.Context, s *scene, e entry) error {
	least, err := time.ParseDuration(e.Params["for"] + "ms")
	if err != nil {
		return err
	}
	begin := time.Now()
	err = s.clients[0].Set(ctx, "key-late", "value", 0).Err()
	if took := time.Since(begin); err == nil && took < least {
		err = fmt.Errorf("it was answered after %v", took)
	}
	return err
}

// promotes wants the servers to agree on another master than before.
func promotes(ctx context.Context, s *scene, _ entry) error {
	return await.Until(ctx, func() error { // a server that is asked may be late to answer
		now, err := s.d.Master(ctx, s.shard)
		if err == nil && now == s.master {
			err = fmt.Errorf("%s is still the master", now)
		}
		return err
	})
}
