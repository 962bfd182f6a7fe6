package story

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
	"github.com/lockchaos/lockchaos/reports/internal/facts"
)

// A Sequence is what parties said to each other until a violation, in order of time.
type Sequence struct {
	Actors []Actor
	Steps  []Step
}

// An Actor is a party of a sequence: a client, a server or a resource.
type Actor struct{ Name, Kind string }

// A Step is a message between two parties, or a note beside one, or beside none.
type Step struct {
	At                   time.Duration
	Kind, From, To, Text string // To is empty of a note
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
	ActorClient   = "client"
	ActorServer   = "server"
	ActorResource = "resource"
)

// maxDamage and maxFaults bound what a sequence has beside the events of the story, so that it is read in a minute.
const maxDamage, maxFaults = 4, 8

// A sequencer makes a sequence.
type sequencer struct {
	*telling

	steps  []Step
	actors map[string]string // kind by name
}

// Messages are what led to a violation; nil where there is none, or no two parties are known.
func Messages(r *facts.Facts, v *checker.Violation, told Story) *Sequence {
	if v == nil {
		return nil
	}
	s := &sequencer{telling: tellingOf(r, v), actors: map[string]string{}}
	events := slices.Clone(told.Events)
	for _, h := range s.holds[:min(2, len(s.holds))] {
		events = append(events, s.damageUnder(h)...)
	}
	from, until, violated := r.Since(v), r.Since(v), r.Since(v)
	for _, e := range told.Events {
		from, until = min(from, e.At), max(until, min(e.At, r.End))
		if e.Kind == EventViolation {
			violated = e.At
		}
	}
	seen := map[*holding.Op]bool{}
	slices.SortStableFunc(events, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	for _, e := range events {
		switch {
		case e.op != nil && seen[e.op]:
			continue
		case e.op != nil && e.op.Verb == holding.Access:
			s.access(e.op, until-from)
		case e.op != nil:
			s.exchange(e.op, e.servers, until)
		case e.Kind == EventServer:
			for _, server := range e.servers {
				s.add(StepNote, e.At, s.actor(server, ActorServer), "", joined(" ", e.Verb, e.Object))
			}
		case e.Kind == EventLock && e.client != "":
			s.add(StepNote, e.At, s.actor(e.client, ActorClient), "", joined(" ", e.Verb, e.Object))
		}
		if e.op != nil {
			seen[e.op] = true
		}
	}
	faults := 0
	for i := range r.Faults {
		f, over := &r.Faults[i], ""
		if !f.OK || f.At() > until || f.End < from || faults == maxFaults {
			continue
		}
		faults++
		if slices.Contains(r.Servers(), f.Target) {
			over = s.actor(f.Target, ActorServer)
		}
		s.add(StepFault, f.At(), over, "", say.Shorten(f.Label(), 90))
	}
	s.add(StepViolation, violated, "", "", Mark(r, v))
	return s.finish()
}

// damageUnder are the accesses of the holder of a double grant while both held the lock.
func (t *telling) damageUnder(h *holding.Grant) (events []Event) {
	l := t.r.LaneOf(t.r.Lock(h.Acquire), t.r.Holder(h))
	if t.v.Kind != checker.DoubleGrant || l == nil {
		return nil
	}
	for _, op := range l.Uses {
		if l.HoldAt(op) == h && op.Complete.Time >= t.v.From && op.Invoke.Time <= t.v.Until && len(events) < maxDamage {
			events = append(events, accessEvent(t.r, op))
		}
	}
	return events
}

func (s *sequencer) actor(name, kind string) string {
	s.actors[name] = cmp.Or(s.actors[name], kind)
	return name
}

func (s *sequencer) add(kind string, at time.Duration, from, to, text string) {
	s.steps = append(s.steps, Step{at, kind, from, to, text})
}

// answered is how an operation ended, and what was said then.
func (s *sequencer) answered(op *holding.Op, ok string) (kind, text string) {
	switch {
	case op.OK():
		return StepReply, ok
	case op.Failed():
		return StepRefusal, cmp.Or(say.Shorten(s.r.Answer(op).Error, 70), "refused")
	default:
		return StepLost, "no answer"
	}
}

// client is the actor of an operation.
func (s *sequencer) client(op *holding.Op) string {
	return s.actor(cmp.Or(s.r.ClientOf(s.r.Asked(op)), fmt.Sprintf("process %d", op.Process)), ActorClient)
}

// exchange draws a request to the servers that granted it, or to the one that it went to as far as that is known, and
// what they answered.
func (s *sequencer) exchange(op *holding.Op, servers []string, until time.Duration) {
	e, answer, who := s.r.Asked(op), s.r.Answer(op), s.client(op)
	if h := s.r.HoldBefore(e.Lock, e.LockOwner(), e.Time); h != nil && e.Op != history.Acquire && answer.Node == "" {
		servers, _ = s.r.Granters(h)
	}
	if all := s.r.Servers(); len(servers) != 1 && (e.Op != history.Acquire || len(servers) == 0) {
		servers = []string{cmp.Or(answer.Node, s.r.MasterOf(e.Owner, e.Time), "servers")}
		if answer.Node == "" && len(all) == 1 {
			servers = all
		}
	}
	ok := "ok"
	if e.Op == history.Acquire {
		ok = "granted"
		if answer.Token != 0 {
			ok += fmt.Sprintf(", token %d", answer.Token)
		}
	}
	kind, text := s.answered(op, ok)
	for _, server := range servers {
		s.add(StepRequest, e.Time, who, s.actor(server, ActorServer), string(e.Op)+" "+e.Lock+InMode(e.Mode, e.Permits))
		if answer.Time <= max(until, s.r.Since(s.v)) {
			s.add(kind, answer.Time, server, who, text)
		}
	}
}

func (s *sequencer) access(op *holding.Op, long time.Duration) {
	who := s.client(op)
	if facts.GaveUp(op) {
		s.add(StepNote, op.Complete.Time, who, "", "gives up its access: its lease is over, or about to end")
		return
	}
	resource := s.actor(cmp.Or(s.r.Resource(op), "the resource"), ActorResource)
	kind, text := s.answered(op, cmp.Or(strings.Replace(s.r.Answer(op).Value, ">", " → ", 1), "used"))
	if op.OK() && facts.Took(op) <= long/20 {
		s.add(StepRequest, op.Complete.Time, who, resource, text)
		return
	}
	s.add(kind, op.Complete.Time, resource, who, text)
	s.add(StepRequest, op.Invoke.Time, who, resource, "begins to use it")
}

// finish orders the parties and the steps.
func (s *sequencer) finish() *Sequence {
	if len(s.actors) < 2 {
		return nil
	}
	slices.SortStableFunc(s.steps, func(a, b Step) int { return cmp.Compare(a.At, b.At) })
	seq := &Sequence{Steps: s.steps}
	for name, kind := range s.actors {
		seq.Actors = append(seq.Actors, Actor{Name: name, Kind: kind})
	}
	order := []string{ActorClient, ActorServer, ActorResource}
	slices.SortFunc(seq.Actors, func(a, b Actor) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.Kind), slices.Index(order, b.Kind)), say.Natural(a.Name, b.Name))
	})
	return seq
}
