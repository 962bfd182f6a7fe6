package harness

import (
	"cmp"
	"context"
	"slices"
	"strconv"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/topologies"
)

// A meter counts the requests that meet a fault.
type meter struct {
	links []topologies.Interceptor
	from  int64 // what is not counted
}

// meterOf begins to count the requests that meet a fault: those that clients send over
// the links that it concerns, and those under way there. It is nil where that can't be
// told.
func meterOf(d topologies.Deployment, links []topologies.Link) *meter {
	if len(links) == 0 {
		return nil
	}
	m := &meter{}
	for _, l := range links {
		c, ok := d.Proxy(l.Name()).(topologies.Interceptor)
		if !ok {
			return nil
		}
		begun, open, _ := c.Requests()
		m.links, m.from = append(m.links, c), m.from+begun-open
	}
	return m
}

// read is how many requests met the fault so far.
func (m *meter) read() int64 {
	met := -m.from
	for _, c := range m.links {
		begun, _, _ := c.Requests()
		met += begun
	}
	return met
}

// concerns are the links on which clients meet a fault.
//
//   - One of links: those of clients among them. Of a link between two servers,
//     replication for one, those to either of the two: what clients ask for there
//     depends on it.
//   - One of a server: those to it. Where grants wait for replicas, those to all
//     servers that have its data.
//   - A failover: those to all servers of the shard.
//   - A slot that moves: those to the server that has it.
//   - The clock of a zone: those of its clients.
//
// There are none of a fault of a client, which meets it itself.
func (st *Session) concerns(ctx context.Context, a *injectedFault) (d topologies.Deployment, links []topologies.Link) {
	spec, s := a.Spec, a.Step
	d, s.Target = st.where(a.target)
	t := d.Topology()
	var servers []string
	switch {
	case spec.Target == faults.AtClient:
		return d, nil
	case spec.Family == faults.Client:
		for _, l := range t.Links {
			if l.From == s.Target {
				links = append(links, l)
			}
		}
	case spec.OnLinks():
		chosen, _ := spec.LinksOf(t, s) // the step was validated
		for _, l := range chosen {
			if l.Kind == topologies.Client {
				links = append(links, l)
			} else {
				servers = append(servers, l.From, l.To)
			}
		}
	case spec.Has(history.Moves):
		server, _ := servedBy(ctx, d, st.keyOf(s.Params[ParamKey])) // else none
		servers = []string{server}
	case spec.Has(history.Promotes):
		shard, _ := faults.ShardOf(t, s)
		servers = t.Members(shard)
	default:
		servers = []string{s.Target}
		if n, _ := t.Node(s.Target); st.options.ReplicaAcks > 0 && n.Kind == topologies.Redis {
			servers = t.Members(cmp.Or(n.Of, n.Name))
		}
	}
	for _, l := range t.Links {
		if l.Kind == topologies.Client && slices.Contains(servers, l.To) && !slices.Contains(links, l) {
			links = append(links, l)
		}
	}
	return d, links
}

// recordRequests records how many requests met a fault.
func (st *Session) recordRequests(s faults.Step, requests int64) {
	st.recorder.Record(history.Event{
		Process: history.NoProcess, Op: history.Observe, Type: history.OK, Node: history.ObserveClients,
		What: history.ObserveMet, Fault: s.Fault, Target: s.Target, Value: strconv.FormatInt(requests, 10),
	})
}

// recordLingering records how many requests met each fault of which something stays.
func (st *Session) recordLingering() {
	for _, a := range st.faults {
		if a.meter != nil && (a.heal == nil || a.Spec.Stays()) {
			st.recordRequests(a.Step, a.meter.read())
		}
	}
}
