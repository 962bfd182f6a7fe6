package simulation

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/locks"
	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/scenarios"
	"github.com/lockchaos/lockchaos/simulation/world"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/workload"
)

// A player plays a scenario of the catalogue in a simulated world: what the harness does with
// one on real servers.
type player struct {
	*deployment
	scenario  scenarios.Scenario
	clients   map[string]*workload.Client
	resources map[string]*workload.Register
	busy      map[string]chan history.Type
	asked     map[string]string // for which lock a client asked last
	observers map[string]*redis.Client
	heals     []healing
}

type healing struct {
	fault string
	end   func()
}

// unplayable says what of a scenario a simulation has not; empty if it can be played.
func unplayable(s scenarios.Scenario) string {
	if err := Simulable(s.Lock, s.Topology); err != nil {
		return err.Error()
	}
	known := []string{
		world.Cut, world.Stall, world.CrashFailover, "restart", world.Kill, world.ClockForward, world.ClockBack, world.ClockRate,
		world.Flush, "drop-key", world.DropReply,
	}
	for _, step := range s.Steps {
		switch {
		case step.Inject != "" && !slices.Contains(known, step.Inject):
			return "fault " + step.Inject
		case strings.HasPrefix(step.Target, "sentinel>"):
			return "what a Sentinel does not see"
		case step.Params["then"] == "silent":
			return "a reply that is lost in silence"
		case step.Params["percent"] == "0.5":
			return "a part of a percent"
		case step.Until == "lost" || step.In != "":
			return "a step that awaits a loss, or looks into a ledger"
		}
	}
	switch {
	case s.Topology == topologies.Cluster:
		return "the lock is on a shard of the script's choice"
	case s.Lock.Name == "correct-hand-over", s.Lock.Name == "broken-granted-by-message":
		return "the lock waits for the network with a mutex locked"
	case s.Retries > 0:
		return "a Redis client that repeats requests"
	case s.Lock.HolderOn == nil && slices.ContainsFunc(s.Steps, func(step scenarios.ScriptStep) bool { return step.Require != "" }):
		return "the lock does not say whether it is held"
	case s.Resource != "" && s.Resource != "register":
		return "resource " + s.Resource
	case s.Servers.MinReplicas > 0 || s.Servers.Access != "":
		return "an option of the servers"
	}
	return ""
}

// play plays the scenario, and returns the kinds of violation that it shows.
func (s *player) play() error {
	for i, step := range s.scenario.Steps {
		if err := s.do(step); err != nil {
			return fmt.Errorf("step %d (%s): %w", i+1, step, err)
		}
	}
	for _, h := range slices.Backward(s.heals) {
		h.end()
	}
	return nil
}

func (s *player) do(step scenarios.ScriptStep) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if step.Acquire != "" {
		s.asked[step.Client] = step.Acquire
	}
	switch {
	case step.Background:
		done := make(chan history.Type, 1)
		s.busy[step.Client] = done
		go func() { done <- s.request(context.WithoutCancel(ctx), step) }()
		return nil
	case step.Await != "":
		if done := s.busy[step.Await]; done != nil {
			return met(step, <-done)
		}
		return nil // of a fault: the step behind it awaits what that did
	case step.Inject != "":
		return s.inject(step)
	case step.Heal != "":
		i := slices.IndexFunc(s.heals, func(h healing) bool { return h.fault == step.Heal })
		for ; i >= 0 && i < len(s.heals) && s.heals[i].fault == step.Heal; s.heals = slices.Delete(s.heals, i, i+1) {
			s.heals[i].end()
		}
		time.Sleep(time.Second) // in virtual time: replicas have what they lacked
		return nil
	case step.Require != "":
		return s.require(ctx, step)
	case step.Acquire == "" && step.Extend == "" && step.Release == "":
		return s.use(ctx, step)
	}
	for {
		outcome := s.request(ctx, step)
		err := met(step, outcome)
		if err == nil || step.Acquire == "" && outcome != history.Info || step.Until == "unknown" || step.Until == "refused" && outcome == history.OK {
			return err
		}
		if !workload.Pause(ctx, 5*time.Millisecond) {
			return err
		}
	}
}

func met(step scenarios.ScriptStep, outcome history.Type) error {
	ok := outcome != history.Info
	switch step.Until {
	case "granted", "done":
		ok = outcome == history.OK
	case "refused":
		ok = outcome == history.Fail
	case "unknown":
		ok = outcome == history.Info
	case "ended":
		ok = true
	}
	if !ok {
		return fmt.Errorf("it ended as %s, and should have been %s", outcome, cmp.Or(step.Until, "answered"))
	}
	return nil
}

func (s *player) request(ctx context.Context, step scenarios.ScriptStep) history.Type {
	c := s.clients[step.Client]
	switch {
	case step.Acquire != "":
		return c.Acquire(ctx, step.Acquire, step.Lease, step.Wait)
	case step.Extend != "":
		return c.Extend(ctx, step.Lease)
	default:
		return c.Release(ctx)
	}
}

func (s *player) use(ctx context.Context, step scenarios.ScriptStep) error {
	name := cmp.Or(step.Read, step.Write, step.Access)
	if s.resources[name] == nil {
		s.resources[name] = &workload.Register{}
	}
	if step.Write == "" {
		if err := s.clients[step.Client].Read(ctx, name, s.resources[name]); err != nil {
			return err
		}
	}
	if step.Read == "" {
		if outcome := s.clients[step.Client].Write(ctx, name, s.resources[name]); outcome != history.OK {
			return fmt.Errorf("the write ended as %s", outcome)
		}
	}
	return nil
}

func (s *player) inject(step scenarios.ScriptStep) error {
	number := func(name string) float64 {
		n, _ := strconv.ParseFloat(step.Params[name], 64) // which scenarios.Parse checked
		return n
	}
	keep := s.scenario.Servers.Persistence != "" && s.scenario.Servers.Persistence != "none"
	f := world.Fault{
		Name: step.Inject, Target: step.Target, Stream: step.Params["stream"],
		By: time.Duration(number("by") * float64(time.Millisecond)), Percent: int(number("percent")), For: world.Forever,
	}
	switch step.Inject {
	case world.DropReply: // of the request that has the grant: a server that does not know the script is sent it
		f.After = &world.Anchor{Event: world.Request, Command: "EVAL"}
		if len(s.asked) > 0 && !strings.HasPrefix(step.Params["command"], "EVAL") {
			f.After.Command = "EVALSHA"
		}
		_, err := s.Inject(f)
		return err
	case "drop-key":
		keys, err := s.observers[step.Target].Keys(context.Background(), step.Params["pattern"]).Result()
		return errors.Join(err, s.observers[step.Target].Del(context.Background(), keys...).Err())
	case "restart":
		f.Name, f.Keep = world.Kill, keep
	case world.Kill:
		f.Keep = keep
	case world.CrashFailover:
		f.By = 500 * time.Millisecond
	}
	targets := []string{f.Target}
	if world.OnLink(f.Name) {
		if targets = s.links(f.Target); len(targets) == 0 {
			return fmt.Errorf("no link is %s", f.Target)
		}
	}
	begun := s.Counts().Faults
	for _, f.Target = range targets {
		if f.Name == world.Cut && strings.HasPrefix(f.Target, "redis") { // a stream of replication, which a connection is not
			f.Name = world.Stall
		}
		heal, err := s.Inject(f)
		if err != nil {
			return err
		}
		s.heals = append(s.heals, healing{step.Inject, heal})
	}
	if s.Counts().Faults < begun+len(targets) {
		return fmt.Errorf("%s has no effect now", step.Inject)
	}
	if step.Inject == "restart" {
		s.heals[len(s.heals)-1].end()
		s.heals = s.heals[:len(s.heals)-1]
	}
	time.Sleep(time.Second) // in virtual time: the promotion is over, and the clients know of it
	return nil
}

// lockNames are those of the locks, in order of the script.
func lockNames(s scenarios.Scenario) (all []string) {
	for _, step := range s.Steps {
		if step.Acquire != "" && !slices.Contains(all, step.Acquire) {
			all = append(all, step.Acquire)
		}
	}
	return all
}

// links are those of a target such as redis>redis-1.
func (s *player) links(target string) []string {
	from, to, _ := strings.Cut(target, ">")
	var all []string
	parties := slices.Collect(maps.Keys(s.scenario.Clients))
	for i, name := range parties {
		parties[i] = s.scenario.Clients[name]
	}
	parties = append(parties, names.Of(s.servers, (*world.Node).Name)...)
	slices.Sort(parties)
	for _, party := range slices.Compact(parties) {
		for _, n := range s.servers {
			fits, _ := path.Match(from+"*", party)
			if fits && (n.Name() == to || to == "redis") && n.Name() != party {
				all = append(all, party+">"+n.Name())
			}
		}
	}
	return all
}

// require waits until servers say that a client holds the lock, or that it does not.
func (s *player) require(ctx context.Context, step scenarios.ScriptStep) error {
	c := s.clients[step.Of]
	for _, server := range step.On {
		for {
			holder, err := s.scenario.Lock.HolderOn(ctx, s.observers[server], s.asked[step.Of])
			if err == nil && (holder == c.Owner()) == (step.Require == "held") {
				break
			}
			if !workload.Pause(ctx, 5*time.Millisecond) {
				return fmt.Errorf("%s: %q, %w", server, holder, err)
			}
		}
	}
	return nil
}

// playScenario plays it in a bubble, and judges it.
func playScenario(t *testing.T, s scenarios.Scenario) (kinds []string, err error) {
	t.Helper()
	zones := slices.Compact(slices.Sorted(maps.Values(s.Clients)))
	c := Case{
		Lock: s.Lock.Name, Topology: s.Topology, Servers: cmp.Or(s.Servers.Nodes, 5), Seed: 1, Zones: len(zones), Clients: len(zones),
		ReplicaAcks: s.ReplicaAcks, Watchdog: s.Watchdog, Workload: s.Lock.DefaultWorkload(), Progress: cmp.Or(s.Progress, checker.ProgressBound),
	}.withDefaults()
	var out Outcome
	_, restore := seedProcess(1)
	defer restore()
	synctest.Test(t, func(*testing.T) {
		var written bytes.Buffer
		d := deploy(s.Lock, c)
		defer d.Close()
		d.recorder = history.NewRecorder(&written)
		d.recorder.Collect(&out.events)
		d.Notice = d.notice
		p := &player{deployment: d, scenario: s, clients: map[string]*workload.Client{}, resources: map[string]*workload.Register{}, busy: map[string]chan history.Type{}, asked: map[string]string{}, observers: map[string]*redis.Client{}}
		for _, name := range lockNames(s) {
			d.recorder.Record(history.Event{
				Process: history.NoProcess, Op: history.Declare, Type: history.OK, Lock: name,
				Kind: cmp.Or(s.Lock.Kind, history.KindMutex), Reentrant: s.Lock.Reentrant, Fair: s.Lock.Place,
			})
		}
		observer := d.AddZone("observer")
		for _, n := range d.servers {
			rdb := redis.NewClient(&redis.Options{Addr: n.Address(), Dialer: observer.Dialer(), MaxRetries: -1, DisableIdentity: true, PoolSize: poolSize})
			d.closers = append(d.closers, func() { _ = rdb.Close() })
			p.observers[n.Name()] = rdb
		}
		var opened []workload.Zone
		if opened, err = d.open(s.Lock.Begin(), c.config(s.Lock)); err == nil {
			err = d.Start()
		}
		if err == nil {
			for name, zone := range s.Clients {
				z := opened[slices.Index(zones, zone)]
				p.clients[name] = &workload.Client{Name: name, Locker: z.Locker, Recorder: d.recorder, Processes: &d.processes, Careless: true, NodeName: d.NodeName}
			}
			err = p.play()
		}
		out.Virtual = time.Since(d.recorder.Start())
		err = errors.Join(err, d.recorder.Close())
		for _, do := range slices.Backward(d.closers) {
			do()
		}
		time.Sleep(leftover)
		out.History, out.Topology = written.Bytes(), d.drawing()
	})
	if err != nil {
		return nil, err
	}
	return c.Findings(t.Context(), s.Lock, out)
}

// least is how many scenarios and variants of the catalogue can be played.
const least = 47

// What the catalogue plays on real servers gives the same verdict in a simulation, as far as a
// simulation has what it is about.
func TestCatalogueInBothWorlds(t *testing.T) {
	all, err := scenarios.Catalogue(locks.All())
	require.NoError(t, err)
	played, left := 0, map[string][]string{}
	for _, s := range all {
		for _, variant := range append([]string{""}, s.VariantNames()...) {
			one := s.As(variant)
			if why := unplayable(one); why != "" {
				left[why] = append(left[why], one.Name)
				continue
			}
			played++
			t.Run(one.Name, func(t *testing.T) {
				found, err := playScenario(t, one)
				require.NoError(t, err)
				if one.Expect.Verdict == "valid" {
					require.Empty(t, found)
				} else {
					require.Contains(t, found, one.Expect.Violation)
				}
			})
		}
	}
	for _, why := range slices.Sorted(maps.Keys(left)) {
		t.Logf("not played, %s: %s", why, strings.Join(left[why], ", "))
	}
	require.GreaterOrEqual(t, played, least)
}
