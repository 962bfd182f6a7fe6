package faults

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/topologies"
)

// ofOneZone is the one candidate of a fault that lasts, on the links of the clients of one
// zone or the other.
func ofOneZone(weight int) func(Environment) []Candidate {
	return func(e Environment) []Candidate {
		var targets []string
		for _, zone := range []string{"zone-a", "zone-b"} {
			targets = append(targets, zone+">"+string(cmp.Or(e.Topology.ServerKind(), topologies.Redis)))
		}
		return drawn(strings.Join(targets, "|"), weight, never)(e)
	}
}

// awayFromServers is ofOneZone of a fault during which these clients reach no server.
func awayFromServers(weight int) func(Environment) []Candidate {
	return func(e Environment) []Candidate { return []Candidate{e.outlastingSessions(ofOneZone(weight)(e)[0])} }
}

// outlastingSessions has a fault that keeps clients from their servers last for longer than their sessions, around one that
// goes on holding a lock where some do, and draws it twice as often: how late a holder is told is what locks on such a store
// differ in. Not where a run of [fullPace] has no time for it.
func (e Environment) outlastingSessions(c Candidate) Candidate {
	if pace := PaceOf(fullPace); e.Session == 0 || e.Session+mostFor > fullPace-pace.Start-pace.End {
		return c
	}
	c.Least, c.Most, c.Weight = e.Session+leastFor, e.Session+mostFor, 2*c.Weight
	if e.Outlasting {
		c.Target = TargetOfHolder + strings.TrimPrefix(firstOf(c.Target), "zone-a")
	}
	return c
}

// stream is the parameter that says in which direction data passes.
func stream(draw string) Param {
	return Param{Name: "stream", Values: []string{topologies.Upstream, topologies.Downstream, topologies.Both}, Default: topologies.Both, Draw: draw}
}

// networkSpecs are the faults of links, and of everything that passes them.
func networkSpecs() []Spec {
	specs := []Spec{
		{
			Name: "bandwidth", Summary: "let only so many kilobytes a second pass",
			Target: AtLinks, Life: history.Lasting, Effects: []history.Effect{history.Delays},
			Needs:      []topologies.Capability{topologies.Bandwidth},
			Params:     []Param{{Name: "rate", Unit: "kB/s", Least: 1, Most: most, Ask: "how many kB a second", Draw: "2-20"}, stream("upstream|downstream|both")},
			Candidates: ofOneZone(1),
			Observed:   "a burst of a twentieth of that takes 50 ms or longer", Healed: "full speed",
			Pitfall: "a request of a lock has some 200 bytes: at 1 kB/s each is 200 ms late",
			New:     onLinks(limitBandwidth),
		},
		{
			Name: "cut", Summary: "reset all connections and refuse new ones",
			Target: AtLinks, Life: history.Lasting, Effects: []history.Effect{history.Cuts},
			Candidates: awayFromServers(4),
			Observed:   "a probe is refused", Healed: "the links answer",
			Pitfall: "both ends learn of it at once, unlike a partition of a real network: that is `stall`",
			New:     onLinks(func(Step) linkFault { return cutting() }),
		},
		{
			Name: "flap", Summary: "cut and mend, over and over",
			Target: AtLinks, Life: history.Repeating, Effects: []history.Effect{history.Cuts},
			Params:     []Param{{Name: "down", Unit: "ms", Least: 1, Most: most, Default: "200", Draw: "50-300"}, {Name: "up", Unit: "ms", Least: 1, Most: most, Default: "200", Draw: "50-300"}},
			Candidates: ofOneZone(1),
			Observed:   "one round: refused, and answered again", Healed: "the links answer",
			Pitfall: "a run in which it is cut at each request shows no more than `cut`",
			New:     flap,
		},
		{
			Name: "latency", Summary: "delay the data",
			Target: AtLinks, Life: history.Lasting, Effects: []history.Effect{history.Delays},
			Params: []Param{{Name: "latency", Unit: "ms", Least: 1, Most: most, Ask: "how many ms", Draw: "10-50"}, {Name: "jitter", Unit: "ms", Most: most, Draw: "5"}, stream(topologies.Both)},
			Check: func(_ topologies.Topology, s Step) error {
				if latency, jitter := millis(s, "latency"), millis(s, "jitter"); jitter >= latency {
					return fmt.Errorf("want a latency above its jitter, not %v and %v", latency, jitter)
				}
				return nil
			},
			Candidates: drawn(string(topologies.Client), 3, never),
			Observed:   "a probe is as late as it must be", Healed: "the links answer",
			Pitfall: "the reply alone: `stream: downstream`",
			New:     onLinks(slowLinks),
		},
		{
			Name: "reset", Summary: "reset all open connections, once",
			Target: AtLinks, Life: history.Momentary, Effects: []history.Effect{history.Disconnects}, Hits: HitsRequests,
			Candidates: drawn(string(topologies.Client), 3, never),
			Observed:   "how many connections there were",
			Pitfall:    "no connection at all is an error; clients connect again at once",
			New:        reset,
		},
		{
			Name: "slow-close", Summary: "pass the end of a connection on late",
			Target: AtLinks, Life: history.Lasting, Effects: []history.Effect{history.Delays},
			Params:     []Param{{Name: "by", Unit: "ms", Least: 1, Most: most, Ask: "by how many ms", Draw: "100-500"}, stream("upstream|downstream|both")},
			Candidates: ofOneZone(1),
			Observed:   "a connection that its caller ended is open for so much longer", Healed: "connections end at once",
			Pitfall: "a reset is not delayed: it is no end in order",
			New:     onLinks(slowClose),
		},
		{
			Name: "stall", Summary: "let nothing through, and deliver it all at the heal; on one stream, a one-way cut",
			Target: AtLinks, Life: history.Lasting, Effects: []history.Effect{history.Stalls},
			Params: []Param{stream("upstream|downstream|both")},
			Candidates: func(e Environment) []Candidate {
				all := awayFromServers(4)(e)
				if all[0].Least > 0 { // a session lives on where replies alone are lost
					all[0].Params = map[string]string{"stream": "upstream|both"}
				}
				if to := e.members(); to != "" { // one silent server of a quorum, for longer than a watchdog's lease often is
					all = append(all, Candidate{Target: to, Weight: 4, Least: 2 * leastFor, Most: mostFor + leastFor})
				}
				if from := e.replicas(); from != "" {
					all = append(all, Candidate{Target: from, Weight: 2})
				}
				return all
			},
			Observed: "a probe gets no answer within 100 ms more than the one before took", Healed: "all that was kept is delivered, in order",
			Pitfall: "no party learns of it until a request times out; replicas count as attached for a while",
			New:     onLinks(func(s Step) linkFault { return stalling(s.Params["stream"]) }),
		},
	}
	specs = append(specs, partitionSpecs()...)
	for i := range specs {
		specs[i].Family, specs[i].Needs = Network, append([]topologies.Capability{topologies.Proxies}, specs[i].Needs...)
	}
	return specs
}

// How links are kept apart by a partition: they are cut, or stall.
const howParam, stalls = "how", "stall"

// partitionSpecs are the faults that keep parties apart.
func partitionSpecs() []Spec {
	how := Param{Name: howParam, Values: []string{"cut", stalls}, Default: "cut", Draw: "cut|stall"}
	specs := []Spec{
		{
			Name: "partition", Summary: "cut some parties, as a group, off from all others", Target: AtParties,
			Candidates: func(e Environment) []Candidate {
				c := Candidate{Weight: 2}
				clients, servers := c, amongServers(e, c)
				clients.Target = strings.Join(e.Topology.Of(topologies.Zone), "|")
				servers.Target = strings.Join(e.Topology.Servers(), "|")
				return []Candidate{e.outlastingSessions(clients), servers}
			},
			Pitfall: "it waits for no promotion: `split-brain` does",
			Aim:     func(_ context.Context, _ topologies.Deployment, s Step) string { return "{" + s.Target + "}" },
		},
		{
			Name: "partition-bridge", Summary: "cut the deployment in two, but for one server that both sides see", Target: AtParties,
			Candidates: func(e Environment) []Candidate {
				return []Candidate{amongServers(e, Candidate{Target: strings.Join(e.Topology.Servers(), "|"), Weight: 1})}
			},
			Pitfall: "the target is the server that both sides see",
		},
		{
			Name: "partition-halves", Summary: "cut the deployment in two: the first half of each kind of server, rounded down, with zone-a, and the others with zone-b", Target: AtDeployment,
			Candidates: func(e Environment) []Candidate {
				return []Candidate{amongServers(e, Candidate{Weight: 2})}
			},
			Pitfall: "clients of zone-b are with the greater half",
		},
		{
			Name: "partition-ring", Summary: "let every server see its neighbours only: a majority, and no two the same one", Target: AtDeployment,
			Candidates: func(e Environment) []Candidate {
				return []Candidate{amongServers(e, Candidate{Weight: 1})}
			},
			Pitfall: "clients see all servers",
		},
	}
	for i := range specs {
		s := &specs[i]
		name := s.Name
		s.Life, s.Effects, s.Params = history.Lasting, []history.Effect{history.Isolates, history.Cuts}, []Param{how}
		s.Observed, s.Healed = "every link across refuses, or is silent", "the links answer"
		s.Links = func(t topologies.Topology, step Step) ([]topologies.Link, error) {
			return divided(t, name, step.Target)
		}
		s.New = func(site Site, step Step) (inject, error) {
			chosen, err := divided(site.Deployment.Topology(), name, step.Target)
			if err != nil {
				return nil, err
			}
			f := cutting()
			if step.Params[howParam] == stalls {
				f = stalling(topologies.Both)
			}
			links, err := wires(site.Deployment, chosen, "those")
			return f.on(name, links), err
		}
	}
	return specs
}

// amongServers is a candidate that keeps servers apart. Where one may be replaced that
// is cut off from the others, it belongs to the failovers.
func amongServers(e Environment, c Candidate) Candidate {
	if e.elects() {
		c.Mix, c.Breaks = string(Failover), away(e)
	}
	return c
}

// divided are the links that a partition concerns.
func divided(t topologies.Topology, fault, target string) ([]topologies.Link, error) {
	apart, err := separation(t, fault, target)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", fault, err)
	}
	links := slices.DeleteFunc(slices.Clone(t.Links), func(l topologies.Link) bool { return !apart(l.From, l.To) })
	if len(links) == 0 {
		return nil, fmt.Errorf("%s: topology %s has no links between those", fault, t.Name)
	}
	for _, a := range t.Nodes {
		for _, b := range t.Nodes {
			if apart(a.Name, b.Name) && t.Unlinked(a.Name, b.Name) {
				return nil, fmt.Errorf("%s: %s and %s reach each other past lockchaos' proxies, and can't be kept apart", fault, a.Name, b.Name)
			}
		}
	}
	return links, nil
}

// separation reports of two parties whether the partition keeps them apart.
func separation(t topologies.Topology, fault, target string) (apart func(a, b string) bool, err error) {
	servers := slices.Concat(t.Servers(), t.Of(topologies.Sentinel))
	switch fault {
	case "partition":
		group := strings.Fields(strings.Trim(target, "{}"))
		if len(group) == 0 {
			return nil, errors.New("say in the target who is cut off from all others: redis-1, or several names with spaces between them")
		}
		for _, name := range group {
			if _, ok := t.Node(name); !ok {
				return nil, names.Unknown("party", name, nodeNames(t))
			}
		}
		return func(a, b string) bool { return slices.Contains(group, a) != slices.Contains(group, b) }, nil
	case "partition-halves", "partition-bridge":
		bridge := ""
		if fault == "partition-bridge" {
			if bridge = target; !slices.Contains(servers, bridge) {
				return nil, fmt.Errorf("the target is the bridge: %w", names.Unknown("server", bridge, servers))
			}
		}
		side := halves(t, bridge)
		return func(a, b string) bool { return a != bridge && b != bridge && side[a] != side[b] }, nil
	default:
		place := map[string]int{}
		for i, name := range servers {
			place[name] = i
		}
		n := len(servers)
		// Itself and so many to either side are a majority.
		reach := (n/2 + 1) / 2
		return func(a, b string) bool {
			i, isServer := place[a]
			j, isToo := place[b]
			distance := max(i-j, j-i)
			return isServer && isToo && min(distance, n-distance) > reach
		}, nil
	}
}

// halves is on which side each party is: the first of each kind, fewer than half,
// or the others. The bridge belongs to neither.
func halves(t topologies.Topology, bridge string) map[string]bool {
	first := map[string]bool{}
	for _, kind := range []topologies.Kind{t.ServerKind(), topologies.Sentinel} {
		of := slices.DeleteFunc(t.Of(kind), func(name string) bool { return name == bridge })
		for _, name := range of[:len(of)/2] {
			first[name] = true
		}
	}
	if zones := t.Of(topologies.Zone); len(zones) > 0 {
		first[zones[0]] = true
	}
	return first
}

func nodeNames(t topologies.Topology) []string {
	return names.Of(t.Nodes, func(n topologies.Node) string { return n.Name })
}

// onLinks makes a fault of the links that a step's target selects.
func onLinks(of func(s Step) linkFault) func(Site, Step) (inject, error) {
	return func(site Site, s Step) (inject, error) {
		links, err := selected(site, s)
		return of(s).on(s.Fault, links), err
	}
}

// selected are the links that a step's target selects.
func selected(site Site, s Step) ([]topologies.Proxy, error) {
	chosen, err := site.Deployment.Topology().Select(s.Target)
	if err != nil {
		return nil, err
	}
	return wires(site.Deployment, chosen, s.Target)
}

// wires are links that can be broken; none is an error, which says what they are.
func wires(d topologies.Deployment, links []topologies.Link, what string) (ws []topologies.Proxy, err error) {
	for _, l := range links {
		if w := d.Proxy(l.Name()); w != nil {
			ws = append(ws, w)
		}
	}
	if len(ws) == 0 {
		err = fmt.Errorf("nothing can be done to %s here", what)
	}
	return ws, err
}

const (
	// probeTimeout is how long the answer to a probe may take on a link that
	// ought to work.
	probeTimeout = 2 * time.Second
	// healTimeout is how long it may take on one whose fault was healed: data that was
	// late may still be on its way before it.
	healTimeout = 5 * time.Second
	// silence is how much longer than its last answer took a link must stay silent to
	// count as held.
	silence = 100 * time.Millisecond
)

// linkFault is a fault on several links at once: how to put it on one, and how to
// see that it is there.
type linkFault struct {
	put func(topologies.Proxy) (mend func(), err error)
	// seen fails unless the fault is on a link, which answered a probe in a time before it.
	seen  func(ctx context.Context, l topologies.Proxy, took time.Duration) error
	words string // what the links are: "refusing"
}

// on puts the fault on all links, and sees that it is on each that worked
// before. If none did, nothing can be seen, and it fails.
func (f linkFault) on(name string, links []topologies.Proxy) inject {
	return func(ctx context.Context) (Injection, error) {
		working, took := probed(ctx, links)
		if len(working) == 0 {
			return Injection{}, fmt.Errorf("%s shows no effect: no link answered before it", name)
		}
		var mends []func()
		mend := func() {
			for _, m := range mends {
				m()
			}
		}
		for _, l := range links {
			m, err := f.put(l)
			if err != nil {
				mend()
				return Injection{}, fmt.Errorf("%s %s: %w", name, l.Name(), err)
			}
			mends = append(mends, m)
		}
		group, seeing := errgroup.WithContext(ctx)
		for _, l := range working {
			group.Go(func() error { return f.seen(seeing, l, took[l]) })
		}
		if err := errors.Join(group.Wait(), ctx.Err()); err != nil {
			mend()
			return Injection{}, fmt.Errorf("%s took no effect: %w", name, err)
		}
		effect := say.Count(len(working), "link") + " " + f.words
		if len(working) < len(links) {
			effect = fmt.Sprintf("%d of %s %s", len(working), say.Count(len(links), "link"), f.words)
		}
		return Injection{Effect: effect, Heal: Once(func(ctx context.Context) (string, error) {
			mend()
			return mended(ctx, name, working)
		})}, nil
	}
}

// mended sees that links which worked before a fault do so again.
func mended(ctx context.Context, fault string, links []topologies.Proxy) (string, error) {
	again, err := answerAgain(ctx, fault, links)
	return say.Count(len(links), "link") + " mended, " + again, err
}

// answerAgain sees that no link is silent. One may refuse, when the server behind
// it is gone for reasons of its own.
func answerAgain(ctx context.Context, fault string, links []topologies.Proxy) (string, error) {
	var answer atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for _, l := range links {
		group.Go(func() error {
			_, err := works(ctx, l, healTimeout)
			if err == nil {
				answer.Add(1)
			} else if timedOut(err) {
				return fmt.Errorf("heal %s: %s is still silent: %w", fault, l.Name(), err)
			}
			return nil
		})
	}
	err := group.Wait()
	if n := int(answer.Load()); n < len(links) {
		return fmt.Sprintf("%d answering again", n), err
	}
	return "answering again", err
}

// probed are the links that answer, and how long each took.
func probed(ctx context.Context, links []topologies.Proxy) (working []topologies.Proxy, took map[topologies.Proxy]time.Duration) {
	answered := make([]time.Duration, len(links)) // 0 for no answer
	var all sync.WaitGroup
	for i, l := range links {
		all.Go(func() {
			if t, err := works(ctx, l, probeTimeout); err == nil {
				answered[i] = max(t, 1)
			}
		})
	}
	all.Wait()
	took = map[topologies.Proxy]time.Duration{}
	for i, l := range links {
		if answered[i] > 0 {
			working, took[l] = append(working, l), answered[i]
		}
	}
	return working, took
}

// works sees that a link answers, and how soon.
func works(ctx context.Context, l topologies.Proxy, within time.Duration) (took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return l.Probe(ctx)
}

func timedOut(err error) bool {
	var netErr net.Error
	return errors.As(err, &netErr) && netErr.Timeout()
}

// cutting resets all connections of links and refuses new ones.
func cutting() linkFault {
	return linkFault{
		words: "refusing",
		put:   func(l topologies.Proxy) (func(), error) { return l.Cut(), nil },
		seen: func(ctx context.Context, l topologies.Proxy, _ time.Duration) error {
			if _, err := works(ctx, l, probeTimeout); err == nil {
				return fmt.Errorf("%s still answers", l.Name())
			} else if timedOut(err) {
				return fmt.Errorf("%s is silent and does not refuse: %w", l.Name(), err)
			}
			return nil
		},
	}
}

// stalling stops the data of one stream of links, or of both, and keeps it
// until the heal: a partition, as TCP lives through one. On one stream it is a
// one-way cut.
func stalling(stream string) linkFault {
	words := "silent"
	if stream != topologies.Both {
		words = "silent " + stream
	}
	return linkFault{
		words: words,
		put:   func(l topologies.Proxy) (func(), error) { return l.Put(stream, topologies.Hold()) },
		seen: func(ctx context.Context, l topologies.Proxy, took time.Duration) error {
			switch _, err := works(ctx, l, took+silence); { // also beyond a latency that the link has already
			case err == nil:
				return fmt.Errorf("%s still answers", l.Name())
			case !timedOut(err):
				return fmt.Errorf("%s is not silent, it refuses: %w", l.Name(), err)
			}
			return nil
		},
	}
}

// takesLonger fails unless something on a link takes so long at the least.
func takesLonger(least, most time.Duration, do func(ctx context.Context, l topologies.Proxy) (time.Duration, error)) func(context.Context, topologies.Proxy, time.Duration) error {
	return func(ctx context.Context, l topologies.Proxy, _ time.Duration) error {
		ctx, cancel := context.WithTimeout(ctx, probeTimeout+most)
		defer cancel()
		took, err := do(ctx, l)
		if err == nil && took < least {
			err = fmt.Errorf("%s took %v, and not %v at the least", l.Name(), took, least)
		}
		return err
	}
}

// slowLinks delays the data of a stream of the links, give or take the jitter.
// Both count in whole milliseconds; the jitter is below the latency.
func slowLinks(s Step) linkFault {
	stream, latency, jitter := s.Params["stream"], millis(s, "latency"), millis(s, "jitter")
	way := stream
	if stream == topologies.Both {
		way = "both ways"
	}
	return linkFault{
		words: fmt.Sprintf("slower by %v ± %v %s", latency, jitter, way),
		put:   func(l topologies.Proxy) (func(), error) { return l.Put(stream, topologies.Latency(latency, jitter)) },
		seen:  takesLonger(latency-jitter, 2*(latency+jitter), func(ctx context.Context, l topologies.Proxy) (time.Duration, error) { return l.Probe(ctx) }),
	}
}

// burstTime is how long a burst must take on a link whose pace is limited.
const burstTime = 50 * time.Millisecond

// limitBandwidth limits a stream of the links, or both, to so many kilobytes a second. It
// is for links on which clients talk to servers.
func limitBandwidth(s Step) linkFault {
	stream, rate := s.Params["stream"], whole(s, "rate")
	size := rate * int(burstTime/time.Millisecond)
	return linkFault{
		words: fmt.Sprintf("limited to %d kB a second %s", rate, stream),
		put:   func(l topologies.Proxy) (func(), error) { return l.Put(stream, topologies.Rate(rate)) },
		seen: takesLonger(burstTime, 10*burstTime, func(ctx context.Context, l topologies.Proxy) (time.Duration, error) {
			return l.ProbeBandwidth(ctx, size)
		}),
	}
}

// slowClose passes the end of each connection of the links on so much later, so
// that one side takes it for open when the other has left.
func slowClose(s Step) linkFault {
	stream, by := s.Params["stream"], millis(s, "by")
	return linkFault{
		words: fmt.Sprintf("closing later by %v %s", by, stream),
		put:   func(l topologies.Proxy) (func(), error) { return l.Put(stream, topologies.SlowClose(by)) },
		seen:  takesLonger(by, 3*by, func(ctx context.Context, l topologies.Proxy) (time.Duration, error) { return l.ProbeClose(ctx) }),
	}
}

// reset resets every open connection of the links, once. It fails if no connection was open: then
// nothing was reset.
func reset(site Site, s Step) (inject, error) {
	links, err := selected(site, s)
	return func(context.Context) (Injection, error) {
		var hit []string
		total := 0
		for _, l := range links {
			if n := l.Reset(); n > 0 {
				hit = append(hit, l.Name())
				total += n
			}
		}
		if total == 0 {
			return Injection{}, errors.New("reset took no effect: no connection was open")
		}
		return Injection{Effect: say.Count(total, "connection") + " reset on " + strings.Join(hit, ", ")}, nil
	}, err
}

// flap cuts the links and mends them again, over and over. The first round is seen: they refuse, and
// answer again.
func flap(site Site, s Step) (inject, error) {
	links, err := selected(site, s)
	down, up := millis(s, "down"), millis(s, "up")
	return func(ctx context.Context) (Injection, error) {
		working, _ := probed(ctx, links)
		first, err := cutting().on(s.Fault, links)(ctx)
		if err != nil {
			return Injection{}, err
		}
		if _, err := first.Heal(ctx); err != nil {
			undo, cancel := undoing(ctx)
			defer cancel()
			_, again := first.Heal(undo)
			return Injection{}, errors.Join(err, again)
		}
		stop := takeTurns(ctx, func(context.Context) func() {
			var mends []func()
			for _, l := range links {
				mends = append(mends, l.Cut())
			}
			return func() {
				for _, mend := range mends {
					mend()
				}
			}
		}, down, up)
		return Injection{
			Effect: fmt.Sprintf("%s for %v, answering for %v, and so on", first.Effect, down, up),
			Heal: Once(func(ctx context.Context) (string, error) {
				stop()
				return mended(ctx, s.Fault, working)
			}),
		}, nil
	}, err
}
