package bootstrap

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/topologies"
)

// members are those of a consensus store, which elect a leader by themselves and at one
// speed.
type members struct {
	*deployment
	steady

	store Consensus
}

var _ elector = (*members)(nil)

func (*members) who() string { return "the members" }

// state is what a member says of itself.
func (m *members) state(ctx context.Context, name string) (MemberState, error) {
	ctx, cancel := context.WithTimeout(ctx, observerTimeout)
	defer cancel()
	s, err := m.store.State(ctx, m.parts.Nodes[name].At)
	if err != nil {
		return s, fmt.Errorf("ask %s for its role: %w", name, err)
	}
	return s, nil
}

// states are what the members say that answer.
func (m *members) states(ctx context.Context) map[string]MemberState {
	states := map[string]MemberState{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, name := range m.topology.Servers() {
		all.Go(func() {
			if s, err := m.state(ctx, name); err == nil {
				mu.Lock()
				defer mu.Unlock()
				states[name] = s
			}
		})
	}
	all.Wait()
	nameLeader(states)
	return states
}

// nameLeader has members that follow a leader, and do not say which, follow the newest of
// those that lead. A leader that has not stepped down yet may be older.
func nameLeader(states map[string]MemberState) {
	newest := MemberState{}
	for _, s := range states {
		if s.Role() == topologies.Leader && s.Term >= newest.Term {
			newest = s
		}
	}
	for name, s := range states {
		if s.Leader == Unnamed && newest.ID != "" {
			s.Leader = newest.ID
			states[name] = s
		}
	}
}

// votes has each member vote for the one that it takes for the leader. Of a leader that
// does not answer itself, the name is known from before; until it answered once it has
// no votes.
func (m *members) votes(ctx context.Context, _ string) (votes map[string]int, majority int) {
	votes = map[string]int{}
	states := m.states(ctx)
	named := map[string]string{}
	for name, s := range states {
		named[s.ID] = name
	}
	for _, s := range states {
		if leader := named[s.Leader]; leader != "" {
			votes[leader]++
		}
	}
	return votes, len(m.topology.Servers())/2 + 1
}

// agree fails unless all have the same leader, which answers as one.
func (m *members) agree(ctx context.Context, _ map[string]string) error {
	votes, _ := m.votes(ctx, "")
	for _, n := range votes {
		if n == len(m.topology.Servers()) {
			return nil
		}
	}
	return &lacking{"", "the members to agree on a leader", fmt.Errorf("of %d, so many take each for it: %v", len(m.topology.Servers()), votes)}
}

// serves fails unless clients of a zone can write by way of every member.
func (m *members) serves(ctx context.Context, zone string) error {
	dial := m.parts.Dial(zone)
	for _, name := range m.topology.Servers() {
		limited, cancel := context.WithTimeout(ctx, ClientTimeout)
		err := m.store.Serves(limited, dial, m.parts.Nodes[name].Announced)
		cancel()
		if err != nil {
			return &lacking{name, zone + " to write to " + name, err}
		}
	}
	return nil
}

// promote has the leader hand over to the next member that answers. They are asked for a while: a member that is busy may
// not answer at once.
func (m *members) promote(ctx context.Context, shard string) error {
	leader, err := m.Master(ctx, shard)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var next MemberState
	err = await.Until(ctx, func() error {
		names, states := m.topology.Servers(), m.states(ctx)
		for i := 1; i < len(names); i++ {
			answers := false
			if next, answers = states[names[(slices.Index(names, leader)+i)%len(names)]]; answers {
				return nil
			}
		}
		return fmt.Errorf("no member but %s answers", leader)
	})
	if err != nil {
		return err
	}
	return m.store.HandOver(ctx, m.parts.Nodes[leader].At, next.ID)
}

// watchMembersEvery is how often a member is asked for its role: it costs it more than a
// Redis server.
const watchMembersEvery = 100 * time.Millisecond
