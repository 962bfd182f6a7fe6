package reports

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/reports/internal/chart"
)

// A Sequence is what parties said to each other until a violation, in order of time.
type Sequence = chart.Sequence

// maxSteps bounds a sequence, so that it is read in a minute.
const maxSteps = 36

// The parties of a sequence that stand for several, or for one that is not known.
const (
	actorServers   = "servers"
	actorSentinels = "sentinels"
)

// A sequencer makes a sequence.
type sequencer struct {
	*model
	v      *checker.Violation
	win    window
	steps  []chart.Step
	actors map[string]string // kind by name
	seen   map[int]bool      // operations that are drawn, by ordinal
}

// sequence is what led to a violation; nil where no two parties are known.
func (m *model) sequence(v *checker.Violation) *Sequence {
	s := &sequencer{model: m, v: v, actors: map[string]string{}, seen: map[int]bool{}, win: window{from: m.since(v), to: m.since(v)}}
	for _, ev := range m.violationStory(v).Events {
		s.win.from, s.win.to = min(s.win.from, ev.At), max(s.win.to, min(ev.At, m.end))
	}
	s.holds()
	s.evidence()
	if v.Kind == checker.DoubleGrant {
		s.damage()
	}
	s.promotions()
	s.faults()
	s.looks()
	s.note(chart.StepViolation, m.violatedAt(v), "", nil, m.markWords(v))
	return s.finish()
}

// violatedAt is the instant that the story of a violation marks.
func (m *model) violatedAt(v *checker.Violation) time.Duration {
	for _, ev := range m.violationStory(v).Events {
		if ev.Kind == EventViolation {
			return ev.At
		}
	}
	return m.since(v)
}

func (s *sequencer) actor(name, kind string) string {
	if s.actors[name] == "" {
		s.actors[name] = kind
	}
	return name
}

func (s *sequencer) add(kind string, at time.Duration, from, to, text string, e *history.Event) {
	step := chart.Step{At: at, Kind: kind, From: from, To: to, Text: text}
	if e != nil {
		step.Event = &e.Index
	}
	s.steps = append(s.steps, step)
}

// note adds a note over the parties; none of them is all clients.
func (s *sequencer) note(kind string, at time.Duration, party string, e *history.Event, text string) {
	s.add(kind, at, party, "", text, e)
}

// maxSequenceHolds bounds the holds that a sequence draws.
const maxSequenceHolds = 4

// holds draws the grants of the evidence: of a stuck lock the one before it.
func (s *sequencer) holds() {
	holds := s.model.evidence(s.v)
	if h := s.lastGrant(s.v.Lock, s.v.From); s.v.Kind == checker.Stuck && h != nil {
		holds = append(holds, h)
		for _, op := range s.givenUp(s.v.Lock, h.Start, s.v.From) {
			s.operation(op)
		}
	}
	for _, h := range holds[:min(len(holds), maxSequenceHolds)] {
		s.grant(h)
	}
}

func (s *sequencer) grant(h *holding.Hold) {
	if s.seen[h.Acquire.Ordinal()] {
		return
	}
	s.seen[h.Acquire.Ordinal()] = true
	voters := s.voters(h)
	if len(voters) == 0 {
		voters = []string{s.whereTo(&h.Acquire)}
	}
	who := s.actor(client(h.Owner), "client")
	for _, server := range voters {
		s.actor(server, "server")
		s.add(chart.StepRequest, h.Acquire.Invoke.Time, who, server, "acquire "+h.Lock+inMode(h.Mode, h.Permits), h.Acquire.Invoke)
	}
	for _, server := range voters {
		text := "granted"
		if h.Token != 0 {
			text += fmt.Sprintf(", token %d", h.Token)
		}
		if h.Acquire.OK() {
			s.add(chart.StepReply, h.Acquire.Complete.Time, server, who, text, h.Acquire.Complete)
		} else {
			s.add(chart.StepLost, h.Acquire.Complete.Time, server, who, "no answer: it was granted, as is known from later", h.Acquire.Complete)
		}
	}
	if end := believes(h); end < h.End && end <= s.win.to || h.Ended == holding.EndExpired && h.End <= s.win.to {
		s.note(chart.StepNote, min(end, h.End), who, nil, "its lease is over")
	}
	if h.Release != nil && h.Release.Complete.Time <= s.win.to {
		s.operation(h.Release)
	}
}

// whereTo is the server that an operation went to, as far as it is known.
func (s *sequencer) whereTo(op *history.Operation) string {
	if node := op.Complete.Node; node != "" {
		return node
	}
	if op.Invoke.Op != history.Acquire {
		if h := s.holdBefore(op.Invoke.Lock, op.Invoke.LockOwner(), op.Invoke.Time); h != nil {
			if voters := s.voters(h); len(voters) == 1 {
				return voters[0]
			}
		}
	}
	if servers := s.servers(); len(servers) == 1 {
		return servers[0]
	}
	return cmp.Or(s.masterOf(op.Invoke.Owner, op.Invoke.Time), actorServers)
}

// operation draws a request of a client and its answer, once.
func (s *sequencer) operation(op *history.Operation) {
	if s.seen[op.Ordinal()] {
		return
	}
	s.seen[op.Ordinal()] = true
	e := op.Invoke
	who := s.actor(strings.TrimPrefix(s.whoOf(e), "client "), "client")
	if e.Op == history.Access {
		s.access(who, op)
		return
	}
	to := s.actor(s.whereTo(op), "server")
	s.add(chart.StepRequest, e.Time, who, to, string(e.Op)+" "+e.Lock+inMode(e.Mode, e.Permits), e)
	answer := op.Complete
	switch {
	case answer.Time > s.win.to && answer.Time > s.since(s.v):
	case op.OK():
		text := "ok"
		if e.Op == history.Acquire {
			text = "granted"
		}
		s.add(chart.StepReply, answer.Time, to, who, text, answer)
	case op.Failed():
		s.add(chart.StepRefusal, answer.Time, to, who, cmp.Or(say.Shorten(answer.Error, 70), "refused"), answer)
	default:
		s.add(chart.StepLost, answer.Time, to, who, "no answer", answer)
	}
}

func (s *sequencer) access(who string, op *history.Operation) {
	if gaveUp(op) {
		s.note(chart.StepNote, op.Complete.Time, who, op.Complete, "gives up its access: its lease is over, or about to end")
		return
	}
	resource := s.actor(resourceOf(op), "resource")
	value := strings.Replace(op.Complete.Value, ">", " → ", 1)
	long := took(op) > s.win.length()/20
	switch {
	case op.OK() && long:
		s.add(chart.StepRequest, op.Invoke.Time, who, resource, "begins to use it", op.Invoke)
		s.add(chart.StepReply, op.Complete.Time, resource, who, cmp.Or(value, "done"), op.Complete)
	case op.OK() && value != "":
		s.add(chart.StepRequest, op.Complete.Time, who, resource, value, op.Complete)
	case op.OK():
		s.add(chart.StepRequest, op.Complete.Time, who, resource, "used", op.Complete)
	case op.Failed():
		s.add(chart.StepRequest, op.Invoke.Time, who, resource, "access", op.Invoke)
		s.add(chart.StepRefusal, op.Complete.Time, resource, who, cmp.Or(say.Shorten(op.Complete.Error, 70), "refused"), op.Complete)
	default:
		s.add(chart.StepLost, op.Complete.Time, resource, who, "no answer", op.Complete)
	}
}

// evidence draws the operations that the evidence names.
func (s *sequencer) evidence() {
	for _, index := range s.v.Events {
		op, ok := s.model.operation(index)
		if !ok {
			if e, ok := s.event(index); ok && e.Op == history.Lost {
				s.note(chart.StepNote, e.Time, s.actor(strings.TrimPrefix(s.whoOf(e), "client "), "client"), e, "is told that "+e.Lock+" is lost")
			}
			continue
		}
		s.operation(op)
	}
}

// damage draws the accesses of the two holders while both held the lock.
func (s *sequencer) damage() {
	holds := s.holdsOf(s.v)
	for _, lane := range s.lanes() {
		for _, op := range lane.uses {
			mine := lane.lock == s.v.Lock && slices.ContainsFunc(holds[:min(2, len(holds))], func(h *holding.Hold) bool {
				return op.Invoke.Owner == h.Owner || op.Invoke.Owner == "" && op.Invoke.Process == h.Process
			})
			if mine && op.Complete.Time >= s.v.From && op.Invoke.Time <= s.v.Until && len(s.seen) < maxSteps {
				s.operation(op)
			}
		}
	}
}

func (s *sequencer) promotions() {
	for _, c := range s.roles {
		if c.at == 0 || c.was == "" || c.at < s.win.from || c.at > s.win.to {
			continue
		}
		e := s.roleEvent(c)
		s.actor(c.node, "server")
		switch {
		case c.role != "master":
			s.note(chart.StepNote, c.at, c.node, e, became(c.role))
		case slices.ContainsFunc(s.Run.Topology.Nodes, func(n history.Node) bool { return n.Kind == "sentinel" }):
			s.add(chart.StepRequest, c.at, s.actor(actorSentinels, "sentinels"), c.node, "promotion to master", e)
		default:
			s.note(chart.StepNote, c.at, c.node, e, "was promoted to master")
		}
	}
}

// roleEvent is the observation of a role.
func (m *model) roleEvent(c roleChange) *history.Event {
	for _, e := range m.notes {
		if e.Op == history.Observe && e.What == history.ObserveRole && e.Node == c.node && e.Time == c.at {
			return e
		}
	}
	return nil
}

// injection is the event with which a fault hit.
func (m *model) injection(f *Fault) *history.Event {
	for _, e := range m.notes {
		if e.Op == history.Inject && e.Fault == f.Name && e.Target == f.Target && e.Time == f.at() {
			return e
		}
	}
	return nil
}

func (s *sequencer) faults() {
	inView := func(f *Fault) bool { return f.OK && f.at() <= s.win.to && f.End >= s.win.from }
	for i := range s.model.faults { // first those that make parties of their own
		f := &s.model.faults[i]
		if party := s.faultParty(f); inView(f) && party != "" {
			s.note(chart.StepFault, f.at(), s.actor(party, "server"), s.injection(f), say.Shorten(f.label(), 60))
		}
	}
	var cuts []*Fault // several at once are one note
	end := func() {
		if len(cuts) == 0 {
			return
		}
		f := *cuts[0]
		var targets, over []string
		for _, f := range cuts {
			targets = append(targets, f.Target)
			over = append(over, s.concerned(f)...)
		}
		f.Target = strings.Join(targets, " ")
		s.note(chart.StepFault, f.at(), "", s.injection(cuts[0]), say.Shorten(f.label(), 90))
		slices.SortFunc(over, say.Natural)
		if over = slices.Compact(over); len(over) < len(s.actors) {
			s.steps[len(s.steps)-1].Over = over
		}
		cuts = nil
	}
	for i := range s.model.faults {
		f := &s.model.faults[i]
		if !inView(f) || s.faultParty(f) != "" || len(s.concerned(f)) == 0 {
			continue
		}
		if len(cuts) > 0 && (cuts[0].Name != f.Name || f.at()-cuts[0].at() > chart.OneLook || s.happened(cuts[0].at(), f.at())) {
			end()
		}
		cuts = append(cuts, f)
	}
	end()
}

// happened reports whether the diagram has anything between two instants.
func (s *sequencer) happened(from, to time.Duration) bool {
	return slices.ContainsFunc(s.steps, func(step chart.Step) bool { return step.At > from && step.At < to })
}

// concerned are the parties of the sequence that a fault touches: those that it names, else
// the ends of its links, else all. A client whose zone is not known may be any.
func (s *sequencer) concerned(f *Fault) []string {
	ends, named := map[string]bool{}, map[string]bool{}
	for _, n := range s.Run.Topology.Nodes {
		if !strings.Contains(f.Target, ">") && f.hits(n.Name) {
			named[n.Name] = true
		}
	}
	for _, l := range f.links(s.Run.Topology) {
		ends[l.From], ends[l.To] = true, true
	}
	for target := range strings.FieldsSeq(f.Target) { // the links to it are in no topology
		if from, found := strings.CutSuffix(target, ">resource"); found {
			ends[from], ends["resource"] = true, true
		}
	}
	if len(named) > 0 {
		ends = named
	}
	touched := func(kind string) bool {
		return slices.ContainsFunc(s.Run.Topology.Nodes, func(n history.Node) bool { return n.Kind == kind && ends[n.Name] })
	}
	var parties []string
	for name, kind := range s.actors {
		hit := len(ends) == 0
		switch kind {
		case "client":
			zone := s.zoneOf(name)
			hit = hit || ends[zone] || !s.isZone(zone) && touched("zone")
		case actorSentinels:
			hit = hit || touched("sentinel")
		case "resource":
			hit = hit || ends["resource"]
		default:
			hit = hit || ends[name] || name == actorServers
		}
		if hit {
			parties = append(parties, name)
		}
	}
	return parties
}

// faultParty is the server beside which a fault is written: the one that it hit.
func (s *sequencer) faultParty(f *Fault) string {
	for _, n := range s.Run.Topology.Nodes {
		if n.Kind == "redis" && f.Target == n.Name {
			return n.Name
		}
	}
	return ""
}

// looks are notes of what servers were seen to have.
func (s *sequencer) looks() {
	if s.v.Lock == "" {
		return
	}
	for _, l := range s.looksAt(s.v.Lock) {
		if s.actors[l.server] == "" || l.at < s.win.from || l.at > s.win.to+chart.OneLook {
			continue
		}
		text := "no key"
		if l.owner != "" {
			text = "key of " + client(l.owner)
		}
		s.note(chart.StepNote, l.at, l.server, nil, text)
	}
}

// finish orders the parties and the steps.
func (s *sequencer) finish() *Sequence {
	if len(s.actors) < 2 {
		return nil
	}
	slices.SortStableFunc(s.steps, func(a, b chart.Step) int { return cmp.Compare(a.At, b.At) })
	for _, drop := range []string{chart.StepNote, chart.StepFault, chart.StepRefusal, chart.StepReply, chart.StepRequest} {
		for at := len(s.steps) - 1; at >= 0 && len(s.steps) > maxSteps; at-- {
			if s.steps[at].Kind == drop {
				s.steps = slices.Delete(s.steps, at, at+1)
			}
		}
	}
	seq := &Sequence{Steps: s.steps}
	order := []string{"client", "server", "sentinels", "resource"}
	for name, kind := range s.actors {
		seq.Actors = append(seq.Actors, chart.Actor{Name: name, Kind: kind})
	}
	slices.SortFunc(seq.Actors, func(a, b chart.Actor) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.Kind), slices.Index(order, b.Kind)), say.Natural(a.Name, b.Name))
	})
	return seq
}
