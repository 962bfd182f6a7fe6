package story

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/reports/internal/facts"
	"github.com/lockchaos/lockchaos/topologies"
)

// A Sequence is what parties said to each other until a violation, in order of time.
type Sequence struct {
	Actors []Actor `json:"actors"`
	Steps  []Step  `json:"steps"`
}

// An Actor is a party of a sequence.
type Actor struct {
	Name string `json:"name"`
	Kind string `json:"kind"` // client, server, sentinels, resource
}

// A Step is a message between two parties, or a note beside one or more.
type Step struct {
	At   time.Duration `json:"at"`
	Kind string        `json:"kind"`
	From string        `json:"from,omitempty"`
	To   string        `json:"to,omitempty"` // of a note over several the last
	Text string        `json:"text"`
	// Over are the parties that a fault concerns; absent where it is one, or all.
	Over []string `json:"over,omitempty"`
	// Event is the index of the event that it was drawn from; absent where there is none.
	Event *int64 `json:"event,omitempty"`
}

// The kinds of steps of a [Sequence].
const (
	StepRequest   = "request"
	StepReply     = "reply"
	StepRefusal   = "refusal"   // a reply
	StepLost      = "lost"      // a message that did not arrive, as far as the record shows
	StepNote      = "note"      // what happened to a party
	StepFault     = "fault"     // a note
	StepViolation = "violation" // a note
)

// The kinds of actors, in the order in which they stand.
const (
	ActorClient    = "client"
	ActorServer    = "server"
	ActorSentinels = "sentinels" // also its name: they stand for several
	ActorResource  = "resource"
)

// maxSteps bounds a sequence, so that it is read in a minute.
const maxSteps = 36

// A sequencer makes a sequence.
type sequencer struct {
	*telling

	until  time.Duration // the last event of the story
	begun  time.Duration // the first
	steps  []Step
	actors map[string]string // kind by name
	seen   map[int]bool      // operations that are drawn, by ordinal
}

// Messages are what led to a violation, of which the story has been told; nil where no two parties are known.
func Messages(r *facts.Facts, v *checker.Violation, told Story) *Sequence {
	s := &sequencer{telling: tellingOf(r, v), actors: map[string]string{}, seen: map[int]bool{}, begun: r.Since(v), until: r.Since(v)}
	violated := s.begun
	for _, e := range told.Events {
		s.begun, s.until = min(s.begun, e.At), max(s.until, min(e.At, r.End))
		if e.Kind == EventViolation {
			violated = e.At
		}
	}
	const mostHolds = 4
	for _, h := range s.holds[:min(len(s.holds), mostHolds)] {
		s.grant(h)
	}
	if v.Kind == checker.Stuck {
		for _, op := range r.GivenUp(v.Lock, s.begun, v.From) {
			s.operation(op)
		}
	}
	for _, index := range v.Events {
		if op, ok := r.Operation(index); ok {
			s.operation(op)
		} else if e, ok := r.Event(index); ok && e.Op == history.Lost {
			s.add(StepNote, e.Time, s.actor(cmp.Or(r.ClientOf(e), "?"), ActorClient), "", "is told that "+e.Lock+" is lost", e)
		}
	}
	s.damage()
	s.promotions()
	s.faults()
	for _, l := range r.Looks(v.Lock) {
		if s.actors[l.Server] != "" && l.At >= s.begun && l.At <= s.until+facts.OneLook {
			s.add(StepNote, l.At, l.Server, "", cmp.Or(strings.TrimSuffix("key of "+facts.Client(l.Owner), "key of "), "no key"), nil)
		}
	}
	s.add(StepViolation, violated, "", "", Mark(r, v), nil)
	return s.finish()
}

func (s *sequencer) actor(name, kind string) string {
	if s.actors[name] == "" {
		s.actors[name] = kind
	}
	return name
}

func (s *sequencer) add(kind string, at time.Duration, from, to, text string, e *history.Event) {
	step := Step{At: at, Kind: kind, From: from, To: to, Text: text}
	if e != nil {
		step.Event = &e.Index
	}
	s.steps = append(s.steps, step)
}

// grant draws how a hold began and ended.
func (s *sequencer) grant(h *holding.Hold) {
	servers, _ := s.r.Granters(h)
	s.exchange(&h.Acquire, servers, h)
	who := facts.Client(h.Owner)
	if end := facts.Entitled(h); (end < h.End || h.Ended == holding.EndExpired) && min(end, h.End) <= s.until {
		s.add(StepNote, min(end, h.End), who, "", "its lease is over", nil)
	}
	if h.Release != nil && h.Release.Complete.Time <= s.until {
		s.operation(h.Release)
	}
}

// operation draws a request of a client and its answer.
func (s *sequencer) operation(op *history.Operation) {
	if op.Invoke.Op == history.Access {
		s.access(op)
		return
	}
	var servers []string
	if h := s.r.HoldBefore(op.Invoke.Lock, op.Invoke.LockOwner(), op.Invoke.Time); h != nil && op.Invoke.Op != history.Acquire && op.Complete.Node == "" {
		if servers, _ = s.r.Granters(h); len(servers) > 1 {
			servers = nil
		}
	}
	s.exchange(op, servers, nil)
}

// exchange draws a request to servers, or to the one that it went to as far as that is known, and what they answered.
// Without an answer it may have been granted, as is known from later.
func (s *sequencer) exchange(op *history.Operation, servers []string, granted *holding.Hold) {
	if s.seen[op.Ordinal()] {
		return
	}
	s.seen[op.Ordinal()] = true
	e, answer := op.Invoke, op.Complete
	if len(servers) == 0 {
		to := cmp.Or(answer.Node, s.r.MasterOf(e.Owner, e.Time), "servers")
		if all := s.r.Servers(); answer.Node == "" && len(all) == 1 {
			to = all[0]
		}
		servers = []string{to}
	}
	who := s.actor(cmp.Or(s.r.ClientOf(e), fmt.Sprintf("process %d", e.Process)), ActorClient)
	for _, server := range servers {
		s.add(StepRequest, e.Time, who, s.actor(server, ActorServer), string(e.Op)+" "+e.Lock+InMode(e.Mode, e.Permits), e)
	}
	kind, text := StepReply, "ok"
	switch {
	case answer.Time > max(s.until, s.r.Since(s.v)) && granted == nil:
		return
	case op.OK() && e.Op == history.Acquire:
		text = "granted"
		if answer.Token != 0 {
			text += fmt.Sprintf(", token %d", answer.Token)
		}
	case op.Failed():
		kind, text = StepRefusal, cmp.Or(say.Shorten(answer.Error, 70), "refused")
	case op.Unknown() && granted != nil:
		kind, text = StepLost, "no answer: it was granted, as is known from later"
	case op.Unknown():
		kind, text = StepLost, "no answer"
	}
	for _, server := range servers {
		s.add(kind, answer.Time, server, who, text, answer)
	}
}

func (s *sequencer) access(op *history.Operation) {
	if s.seen[op.Ordinal()] {
		return
	}
	s.seen[op.Ordinal()] = true
	who := s.actor(cmp.Or(s.r.ClientOf(op.Invoke), fmt.Sprintf("process %d", op.Invoke.Process)), ActorClient)
	if facts.GaveUp(op) {
		s.add(StepNote, op.Complete.Time, who, "", "gives up its access: its lease is over, or about to end", op.Complete)
		return
	}
	resource := s.actor(cmp.Or(facts.Resource(op), "the resource"), ActorResource)
	value := strings.Replace(op.Complete.Value, ">", " → ", 1)
	switch {
	case op.OK() && facts.Took(op) > (s.until-s.begun)/20:
		s.add(StepRequest, op.Invoke.Time, who, resource, "begins to use it", op.Invoke)
		s.add(StepReply, op.Complete.Time, resource, who, cmp.Or(value, "done"), op.Complete)
	case op.OK():
		s.add(StepRequest, op.Complete.Time, who, resource, cmp.Or(value, "used"), op.Complete)
	case op.Failed():
		s.add(StepRequest, op.Invoke.Time, who, resource, "access", op.Invoke)
		s.add(StepRefusal, op.Complete.Time, resource, who, cmp.Or(say.Shorten(op.Complete.Error, 70), "refused"), op.Complete)
	default:
		s.add(StepLost, op.Complete.Time, resource, who, "no answer", op.Complete)
	}
}

// damage draws the accesses of two holders while both held the lock.
func (s *sequencer) damage() {
	for _, h := range s.holds[:min(2, len(s.holds))] {
		l := s.r.LaneOf(h.Lock, facts.Client(h.Owner))
		if s.v.Kind != checker.DoubleGrant || l == nil {
			continue
		}
		for _, op := range l.Uses {
			mine := op.Invoke.Owner == h.Owner || op.Invoke.Owner == "" && op.Invoke.Process == h.Process
			if mine && op.Complete.Time >= s.v.From && op.Invoke.Time <= s.v.Until && len(s.seen) < maxSteps {
				s.access(op)
			}
		}
	}
}

func (s *sequencer) promotions() {
	watched := slices.ContainsFunc(s.r.Run.Topology.Nodes, func(n history.Node) bool { return n.Kind == string(topologies.Sentinel) })
	for _, c := range s.r.Roles {
		switch {
		case c.At == 0 || c.Was == "" || c.At < s.begun || c.At > s.until:
		case c.Role == facts.Master && watched:
			s.add(StepRequest, c.At, s.actor(ActorSentinels, ActorSentinels), s.actor(c.Node, ActorServer), "promotion to master", c.Event)
		default:
			s.add(StepNote, c.At, s.actor(c.Node, ActorServer), "", Became(c.Role), c.Event)
		}
	}
}

// faults are notes over the parties that they concern; those of one name that came together are one.
func (s *sequencer) faults() {
	var notes []Step
	var names []string
	for i := range s.r.Faults {
		f := &s.r.Faults[i]
		if !f.OK || f.At() > s.until || f.End < s.begun {
			continue
		}
		if slices.ContainsFunc(s.r.Run.Topology.Nodes, func(n history.Node) bool { return facts.IsServer(n) && n.Name == f.Target }) {
			s.add(StepFault, f.At(), s.actor(f.Target, ActorServer), "", say.Shorten(f.Label(), 60), nil)
			continue
		}
		over, n := s.concerned(f), len(notes)-1
		between := func(step Step) bool { return step.At > notes[n].At && step.At < f.At() }
		switch {
		case len(over) == 0:
		case n >= 0 && names[n] == f.Name && f.At()-notes[n].At <= facts.OneLook && !slices.ContainsFunc(s.steps, between):
			notes[n].Text, notes[n].Over = notes[n].Text+" "+f.Target, append(notes[n].Over, over...)
		default:
			notes, names = append(notes, Step{At: f.At(), Kind: StepFault, Text: f.Label(), Over: over}), append(names, f.Name)
		}
	}
	for _, note := range notes {
		slices.SortFunc(note.Over, say.Natural)
		note.Text = say.Shorten(note.Text, 90)
		if note.Over = slices.Compact(note.Over); len(note.Over) == len(s.actors) {
			note.Over = nil
		}
		s.steps = append(s.steps, note)
	}
}

// concerned are the parties of the sequence that a fault touches: those that it names, else the ends of its links,
// else all. A client whose zone is not known may be any.
func (s *sequencer) concerned(f *facts.Fault) []string {
	const resource = ">resource" // the links to it are in no topology
	ends, kinds := map[string]bool{}, map[string]bool{}
	for _, n := range s.r.Run.Topology.Nodes {
		ends[n.Name] = f.Hits(n.Name)
	}
	if !slices.Contains(slices.Collect(maps.Values(ends)), true) {
		for _, l := range f.Links(s.r.Run.Topology) {
			ends[l.From], ends[l.To] = true, true
		}
		for target := range strings.FieldsSeq(f.Target) {
			if from, found := strings.CutSuffix(target, resource); found {
				ends[from], kinds[ActorResource] = true, true
			}
		}
	}
	for _, n := range s.r.Run.Topology.Nodes {
		kinds[n.Kind] = kinds[n.Kind] || ends[n.Name]
	}
	all := !slices.Contains(slices.Collect(maps.Values(kinds)), true)
	var parties []string
	for name, kind := range s.actors {
		hit := all || ends[name]
		switch zone := s.r.ZoneOf(name); kind {
		case ActorClient:
			hit = hit || ends[zone] || !s.r.IsZone(zone) && kinds[string(topologies.Zone)]
		case ActorSentinels:
			hit = hit || kinds[string(topologies.Sentinel)]
		case ActorResource:
			hit = hit || kinds[ActorResource]
		}
		if hit {
			parties = append(parties, name)
		}
	}
	return parties
}

// finish orders the parties and the steps, and leaves out what is too much.
func (s *sequencer) finish() *Sequence {
	if len(s.actors) < 2 {
		return nil
	}
	slices.SortStableFunc(s.steps, func(a, b Step) int { return cmp.Compare(a.At, b.At) })
	for _, drop := range []string{StepNote, StepFault, StepRefusal, StepReply, StepRequest} {
		for at := len(s.steps) - 1; at >= 0 && len(s.steps) > maxSteps; at-- {
			if s.steps[at].Kind == drop {
				s.steps = slices.Delete(s.steps, at, at+1)
			}
		}
	}
	seq := &Sequence{Steps: s.steps}
	for name, kind := range s.actors {
		seq.Actors = append(seq.Actors, Actor{Name: name, Kind: kind})
	}
	order := []string{ActorClient, ActorServer, ActorSentinels, ActorResource}
	slices.SortFunc(seq.Actors, func(a, b Actor) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.Kind), slices.Index(order, b.Kind)), say.Natural(a.Name, b.Name))
	})
	return seq
}
