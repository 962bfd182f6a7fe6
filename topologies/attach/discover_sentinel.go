package attach

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/internal/bootstrap"
)

// A watcher is what a sentinel says of a server that it watches, or of another
// sentinel.
type watcher map[string]string

func (w watcher) address() string { return net.JoinHostPort(w["ip"], w["port"]) }

// down is why the sentinel does not count on it; empty if it does.
func (w watcher) down() string {
	for flag := range strings.SplitSeq(w["flags"], ",") {
		if slices.Contains([]string{"s_down", "o_down", "disconnected", "failover_in_progress"}, flag) {
			return w["flags"]
		}
	}
	return ""
}

// seen asks a sentinel for a list: MASTERS, or REPLICAS or SENTINELS of a master.
func seen(ctx context.Context, c *redis.Client, args ...any) ([]watcher, error) {
	list, err := c.Do(ctx, append([]any{"SENTINEL"}, args...)...).Slice()
	if err != nil {
		return nil, err
	}
	var all []watcher
	for _, reply := range list {
		all = append(all, bootstrap.Fields(reply))
	}
	return all, nil
}

// replicated learns from the sentinels who the others are, and which servers
// they watch.
func (s *discovery) replicated(ctx context.Context, endpoints []string) error {
	// A sentinel does not know how the others call it, so each is known by its
	// id until all were asked.
	byID := map[string]*foundServer{}
	var order []string
	enter := func(at string) (*foundServer, error) {
		f, err := s.probe(ctx, s.sentinels, at)
		if err != nil {
			return nil, err
		}
		if err := f.expect(topologies.Sentinels, modeSentinel); err != nil {
			return nil, err
		}
		id, err := f.client.Do(ctx, "SENTINEL", "MYID").Text()
		if err != nil {
			return nil, s.sentinels.refused(at, err)
		}
		if byID[id] == nil {
			byID[id] = f
			order = append(order, id)
		}
		return byID[id], nil
	}
	for _, e := range endpoints {
		f, err := enter(e)
		if err != nil {
			return err
		}
		if err := s.chooseMaster(ctx, f); err != nil {
			return err
		}
	}
	announced := map[string]string{}
	for i := 0; i < len(order); i++ { // it grows
		f := byID[order[i]]
		others, err := seen(ctx, f.client, "SENTINELS", s.masterName)
		if err != nil {
			return s.sentinels.refused(f.announced, err)
		}
		for _, other := range others {
			at := other.address()
			if why := other.down(); why != "" {
				return unsettled("sentinel %s takes sentinel %s for %s", f.announced, at, why)
			}
			announced[other["runid"]] = at
			if byID[other["runid"]] == nil {
				if _, err := enter(at); err != nil {
					return fmt.Errorf("%s, which %s names as a sentinel: %w", at, f.announced, err)
				}
			}
		}
	}
	for _, id := range order {
		if at := announced[id]; at != "" {
			byID[id].announced = at
		}
		s.found = append(s.found, byID[id])
	}
	return s.watched(ctx)
}

// chooseMaster takes the name that was typed, or the only one that there is.
func (s *discovery) chooseMaster(ctx context.Context, f *foundServer) error {
	masters, err := seen(ctx, f.client, "MASTERS")
	if err != nil {
		return s.sentinels.refused(f.announced, err)
	}
	var names []string
	for _, m := range masters {
		names = append(names, m["name"])
	}
	switch {
	case s.masterName == "" && len(names) == 1:
		s.masterName = names[0]
	case s.masterName == "":
		return usage("sentinel %s watches several masters, of which one must be named: %s", f.announced, listed(names))
	case !slices.Contains(names, s.masterName):
		return usage("sentinel %s watches no master named %s, but %s", f.announced, s.masterName, listed(names))
	}
	return nil
}

// watched finds the master that all sentinels agree on, and its replicas.
func (s *discovery) watched(ctx context.Context) error {
	sentinels := slices.Clone(s.found)
	at := ""
	for _, f := range sentinels {
		masters, err := seen(ctx, f.client, "MASTERS")
		if err != nil {
			return s.sentinels.refused(f.announced, err)
		}
		i := slices.IndexFunc(masters, func(m watcher) bool { return m["name"] == s.masterName })
		if i < 0 {
			return usage("sentinel %s watches no master named %s", f.announced, s.masterName)
		}
		m := masters[i]
		if why := m.down(); why != "" {
			return unsettled("sentinel %s takes the master %s for %s", f.announced, m.address(), why)
		}
		if at == "" {
			at = m.address()
		}
		if m.address() != at {
			return unsettled("sentinel %s takes %s for the master, and %s takes %s", sentinels[0].announced, at, f.announced, m.address())
		}
	}
	replicas, err := seen(ctx, sentinels[0].client, "REPLICAS", s.masterName)
	if err != nil {
		return s.sentinels.refused(sentinels[0].announced, err)
	}
	master, err := s.probe(ctx, s.redis, at)
	if err != nil {
		return fmt.Errorf("%s, which the sentinels name as the master: %w", at, err)
	}
	if master.info.role != topologies.Master {
		return unsettled("%s, which the sentinels name as the master, is a replica of %s", at, master.info.master)
	}
	s.found = append(s.found, master)
	for _, r := range replicas {
		if why := r.down(); why != "" {
			return unsettled("sentinel %s takes replica %s for %s", sentinels[0].announced, r.address(), why)
		}
		f, err := s.probe(ctx, s.redis, r.address())
		if err != nil {
			return fmt.Errorf("%s, which the sentinels name as a replica: %w", r.address(), err)
		}
		f.master = at
		s.found = append(s.found, f)
	}
	return nil
}
