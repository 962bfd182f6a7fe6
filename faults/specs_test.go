package faults_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/traffic"
	"github.com/lockchaos/lockchaos/topologies"
)

// stub is a deployment that can have every fault, as long as none is injected.
type stub struct {
	topologies.Deployment

	topology topologies.Topology
}

func (s stub) Topology() topologies.Topology                 { return s.topology }
func (s stub) Unsupported() map[topologies.Capability]string { return nil }
func (s stub) Proxy(string) topologies.Proxy                 { return stubWire{} }
func (s stub) Instruments(string) topologies.Instruments {
	return struct{ topologies.Instruments }{}
}
func (s stub) Server(string) topologies.Server { return struct{ topologies.Server }{} }

// stubWire is a link on which everything can be done.
type stubWire struct{ topologies.Proxy }

func (stubWire) Judge(func(traffic.Message) traffic.Action) (func(), error) { return nil, nil }
func (stubWire) Requests() (begun, open, refused int64)                     { return 0, 0, 0 }

// environments are those that, together, can have every fault.
func environments(t *testing.T) []faults.Environment {
	t.Helper()
	var all []faults.Environment
	for _, name := range topologies.Names() {
		options := []topologies.Options{{Persistence: topologies.PersistAlways}}
		switch name {
		case topologies.EtcdCluster, topologies.ZooKeeperEnsemble:
			options = []topologies.Options{{}}
		case topologies.Single:
			options = append(options, topologies.Options{Access: topologies.AccessName})
		}
		for _, o := range options {
			topology, err := topologies.New(name, o)
			require.NoError(t, err)
			e := faults.Environment{
				Topology: topology, Locks: []string{"lock-1", "lock-2"},
				Lock: faults.LockTraits{Name: "mutex", Subscribes: true, Commands: "EVALSHA|acquire", Process: true},
			}
			all = append(all, e)
			if topology.Consensus() {
				e.Session, e.Outlasting = 2*time.Second, true
				all = append(all, e)
			}
		}
	}
	return all
}

// Every spec says all that lists, documents, plans, records and reports need of it.
func TestAll_complete(t *testing.T) {
	names := map[string]bool{}
	for _, spec := range faults.All() {
		t.Run(spec.Name, func(t *testing.T) {
			require.False(t, names[spec.Name], "the name of two faults")
			names[spec.Name] = true
			found, err := faults.ByName(spec.Name)
			require.NoError(t, err)
			require.Equal(t, spec.Name, found.Name)
			require.NotEmpty(t, spec.Family)
			require.NotEmpty(t, spec.Summary)
			require.NotEmpty(t, spec.Target)
			require.NotEmpty(t, spec.Needs)
			require.NotEmpty(t, spec.Effects)
			require.NotEmpty(t, spec.Observed)
			require.NotEmpty(t, spec.Pitfall)
			require.Contains(t, []history.Life{history.Lasting, history.Momentary, history.Triggered, history.Repeating}, spec.Life)
			require.Equal(t, spec.Life == history.Momentary, spec.Healed == "", "what lasts is healed, and nothing else is")
			require.Equal(t, spec.Target == faults.AtClient, spec.Candidates == nil, "random runs have all but those of single clients")
			require.Contains(t, faults.Markdown(), "\n| `"+spec.Name+"`")
		})
	}
}

// What is drawn is within its range, and can be made.
func TestGenerate_everyCandidate(t *testing.T) {
	made := map[string]bool{}
	for _, e := range environments(t) {
		site := faults.Site{Deployment: stub{topology: e.Topology}}
		for _, c := range e.Candidates() {
			if c.Cant != "" {
				continue
			}
			spec := c.Spec
			require.Equal(t, spec.Life == history.Lasting || spec.Life == history.Repeating || spec.Life == history.Triggered && !spec.OneShot(), c.Most > 0,
				"%s lasts from %v to %v", spec.Name, c.Least, c.Most)
			require.Positive(t, c.Weight, spec.Name)
			for seed := range uint64(20) {
				plan := faults.Generate(seed, []faults.Candidate{c}, time.Minute)
				require.NotEmpty(t, plan, spec.Name)
				for _, step := range plan {
					require.GreaterOrEqual(t, step.For, c.Least, spec.Name)
					require.LessOrEqual(t, step.For, c.Most, spec.Name)
					again, err := e.Resolve(step.Step)
					require.NoError(t, err, "%+v", step)
					require.Equal(t, step, again)
					step.Target = faults.SomeTarget(e.Topology, step.Target)
					_, err = step.On(site)
					require.NoError(t, err, "%+v", step)
				}
			}
			made[spec.Name] = true
		}
	}
	for _, spec := range faults.All() {
		if spec.Target == faults.AtClient {
			p, err := faults.Environment{Script: true, Clients: []string{"a"}}.Resolve(faults.Step{Fault: spec.Name, Target: "a"})
			require.NoError(t, err)
			_, err = p.On(faults.Site{Clients: map[string]faults.ClientProcess{"a": struct{ faults.ClientProcess }{}}})
			require.NoError(t, err)
			continue
		}
		require.True(t, made[spec.Name], "no environment can have %s", spec.Name)
	}
}

// A step that says what the fault does not know is refused.
func TestEnvironment_Resolve_params(t *testing.T) {
	single, err := topologies.ByName(topologies.Single)
	require.NoError(t, err)
	for _, tt := range []struct {
		name string
		give faults.Step
		want string
	}{
		{"unknown", faults.Step{Fault: "flap", Target: "client", Params: map[string]string{"dwon": "5"}}, `flap: unknown parameter "dwon" (did you mean down?`},
		{"none known", faults.Step{Fault: "cut", Target: "client", Params: map[string]string{"how": "cut"}}, `cut has no parameters, and "how" is one`},
		{"out of range", faults.Step{Fault: "clock-back", Target: "redis-1", Params: map[string]string{"by": "99"}}, "clock-back: by must be a whole number of ms from 100"},
		{"no choice", faults.Step{Fault: "stall", Target: "client", Params: map[string]string{"stream": "up"}}, `stall: unknown stream "up" (did you mean upstream?`},
		{"missing", faults.Step{Fault: "drop-key", Target: "redis-1"}, `drop-key: say which keys in the parameter "pattern"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := faults.Environment{Topology: single}.Resolve(tt.give)
			require.ErrorContains(t, err, tt.want)
		})
	}
}

func TestSpec_EffectsOf(t *testing.T) {
	spec, err := faults.ByName("partition")
	require.NoError(t, err)
	require.Equal(t, []history.Effect{history.Isolates, history.Cuts}, spec.EffectsOf(nil))
	require.Equal(t, []history.Effect{history.Isolates, history.Stalls}, spec.EffectsOf(map[string]string{"how": "stall"}))
	require.True(t, slices.Equal([]history.Effect{history.Isolates, history.Cuts}, spec.Effects), "the spec is left as it was")
}
