package reports

import (
	"cmp"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
)

// An Input is everything that a report is made of.
type Input struct {
	Run     history.Run
	History *history.History
	Report  checker.Report
	// Missing says of each part of a stored run that could not be read what is
	// wrong with it. Empty: nothing.
	Missing []string
}

// A model is an input with what all reports derive from it, derived once.
type model struct {
	Input
	notes  []*history.Event // what is no client's: declarations, faults, observations
	crash  []*history.Event // of clients
	ops    []history.Operation
	holds  []holding.Hold // in order of their start
	faults []Fault
	heals  []time.Duration // of each fault, when its heal was asked for: its end if that is not known
	roles  []roleChange
	end    time.Duration // of the record

	lastAsked time.Duration // when the last request for a lock was sent

	logs     []string // the servers with a log in the run directory
	logLines []logLine

	maxDetail int // how many operations the page's timeline has one by one

	granters map[int]string // who granted what did not say so, by the ordinal of the acquire

	distincts []*checker.Violation // found when the first report asks

	searched bool
	first    *checker.Violation // once it was searched for
	told     *Story             // once it was asked for
	stories  map[*checker.Violation]Story
	refused  []*history.Operation            // for their tokens; found when a cure asks
	named    *proof                          // found when the first violation is told
	indexed  *holdIndex                      // found when a violation is told
	accessed map[string][]*history.Operation // by resource, once it was asked for
	looks    map[string][]look               // at the keys of a lock, once they were asked for
	allLanes []*lane                         // found when the first timeline asks
	laneIs   map[[2]string]*lane             // the same, by lock and client
	guards   map[string][]string             // the locks of each resource, once they were asked for
	drawn    []plotted                       // once they were drawn
	pictures []picture                       // drawn when the first page asks
}

func newModel(in Input) *model {
	if in.History == nil {
		in.History = &history.History{}
	}
	in.Report.Results = named(in.Report.Results)
	in.Report.Verdict = checker.RunVerdict(in.Run, in.Report.Verdict, len(in.Missing) == 0)
	d := &model{Input: in, ops: in.History.Operations(), end: in.History.End(), maxDetail: maxDetail}
	for i := range d.ops {
		if e := d.ops[i].Invoke; e.Op == history.Acquire {
			d.lastAsked = max(d.lastAsked, e.Time)
		}
	}
	d.holds = holding.Of(in.History)
	d.notes, d.crash = notes(in.History), eventsOf(in.History, history.Crash)
	d.faults = faultsOf(d.notes, d.end)
	for i := range d.faults {
		d.heals = append(d.heals, d.healAsked(&d.faults[i]))
	}
	d.roles = roleChanges(in.Run.Topology, d.notes)
	d.locateGrants()
	d.measureRecovery()
	return d
}

// named are results that call the clients as the stories do.
func named(results []checker.Result) []checker.Result {
	results = slices.Clone(results)
	for i := range results {
		r := &results[i]
		r.Summary, r.Violations = byName(r.Summary), slices.Clone(r.Violations)
		for j := range r.Violations {
			r.Violations[j].Explanation = byName(r.Violations[j].Explanation)
		}
	}
	return results
}

// notes are the events that are no client's, which are few.
func notes(h *history.History) []*history.Event {
	return eventsOf(h, history.Declare, history.Inject, history.Heal, history.Observe)
}

// eventsOf are the events of some operations.
func eventsOf(h *history.History, ops ...history.Op) []*history.Event {
	var found []*history.Event
	for i := range h.Events {
		if e := &h.Events[i]; slices.Contains(ops, e.Op) {
			found = append(found, e)
		}
	}
	return found
}

// violation is the one that the story tells; nil if there is none.
func (m *model) violation() *checker.Violation {
	if !m.searched {
		m.searched, m.first = true, m.findViolation()
	}
	return m.first
}

// findViolation is the first violation with damage, which is that of the grants by which a change of a
// resource was lost; without any damage the first of the kind that explains most. In a chain of overlaps it is
// the first overlap: the release of a hold that overlaps with one before it is rightful.
func (m *model) findViolation() *checker.Violation {
	all := m.distinct()
	if len(all) == 0 {
		return nil
	}
	among := all
	if i := slices.IndexFunc(all, func(v *checker.Violation) bool { return isDamage(v.Kind) }); i >= 0 {
		made := m.telling(all[i])
		among = slices.DeleteFunc(slices.Clone(all), func(v *checker.Violation) bool { return v != all[i] && !made.shares(m.evidence(v)) })
	}
	first := among[0]
	for _, v := range among {
		if severity(v.Kind) < severity(first.Kind) {
			first = v
		}
	}
	for before := first; before != nil && first.Kind == checker.DoubleGrant; {
		first, before = before, m.overlapBefore(before)
	}
	return first
}

// overlapBefore is the double grant whose second hold is the first of another; nil if there is none.
func (m *model) overlapBefore(v *checker.Violation) *checker.Violation {
	holds := m.holdsOf(v)
	if len(holds) < 2 {
		return nil
	}
	for _, u := range m.distinct() {
		if both := m.holdsOf(u); u.Kind == checker.DoubleGrant && len(both) > 1 && both[1] == holds[0] && both[0].Start < both[1].Start {
			return u
		}
	}
	return nil
}

// distinct are all violations that are listed, in order of time. What two engines found
// in the same events, or of one lock in the very same time, is one of them: that which
// explains most.
func (m *model) distinct() []*checker.Violation {
	if m.distincts != nil {
		return m.distincts
	}
	type place struct {
		lock        string
		from, until time.Duration
	}
	all := []*checker.Violation{}
	for i := range m.Report.Results {
		for j := range m.Report.Results[i].Violations {
			if m.Report.Results[i].Verdict != checker.Invalid {
				break
			}
			if v := &m.Report.Results[i].Violations[j]; !m.repeats(v) {
				all = append(all, v)
			}
		}
	}
	// The order of the results, and of violations of one time, is none.
	graver := func(a, b *checker.Violation) int {
		return cmp.Or(cmp.Compare(severity(a.Kind), severity(b.Kind)), say.Natural(a.Lock, b.Lock), slices.Compare(a.Events, b.Events))
	}
	slices.SortStableFunc(all, graver)
	seen := map[place]bool{}
	all = slices.DeleteFunc(all, func(v *checker.Violation) bool {
		at := place{v.Lock, v.From, v.Until}
		again := seen[at]
		seen[at] = true
		return again
	})
	slices.SortStableFunc(all, func(a, b *checker.Violation) int {
		return cmp.Or(cmp.Compare(m.since(a), m.since(b)), cmp.Compare(a.Until, b.Until), graver(a, b))
	})
	m.distincts = all
	return all
}

// since is when a violation was there: one that is in an answer at that answer, a lost
// update when both writes were answered, any other as soon as it began.
func (m *model) since(v *checker.Violation) time.Duration {
	if kind, _ := checker.KindOf(v.Kind); kind.InAnswer {
		return max(v.From, min(v.Until, m.end))
	}
	return v.From
}

// lasted is how long a violation lasted within the record.
func (m *model) lasted(v *checker.Violation) time.Duration { return min(v.Until, m.end) - v.From }

// severity is the place of a kind among all; one that is not known comes last.
func severity(kind string) int {
	_, place := checker.KindOf(kind)
	return place
}

// event is the event of that index, if the history has it.
func (m *model) event(index int64) (*history.Event, bool) {
	if index < 0 || index >= int64(len(m.History.Events)) {
		return nil, false
	}
	return &m.History.Events[index], true
}

// A proof is what the evidence of all violations names, by index of event.
type proof struct {
	holds map[int64][]int // into the model's holds
	ops   map[int64]int   // into its operations
}

// evidenceIndex finds what the evidence names in one pass.
func (m *model) evidenceIndex() *proof {
	if m.named != nil {
		return m.named
	}
	m.named = &proof{holds: map[int64][]int{}, ops: map[int64]int{}}
	events := map[int64]bool{}
	for _, r := range m.Report.Results {
		for _, v := range r.Violations {
			for _, index := range v.Events {
				events[index] = true
			}
		}
	}
	if len(events) == 0 {
		return m.named
	}
	for i := range m.holds {
		for _, op := range []*history.Operation{&m.holds[i].Acquire, &m.holds[i].Proof} {
			for _, index := range []int64{op.Invoke.Index, op.Complete.Index} {
				if events[index] {
					m.named.holds[index] = append(m.named.holds[index], i)
				}
			}
		}
	}
	for i := range m.ops {
		for _, index := range []int64{m.ops[i].Invoke.Index, m.ops[i].Complete.Index} {
			if events[index] {
				m.named.ops[index] = i
			}
		}
	}
	return m.named
}

// holdsOf are the holds that the evidence names, in order of their start.
func (m *model) holdsOf(v *checker.Violation) []*holding.Hold {
	var at []int
	for _, index := range v.Events {
		at = append(at, m.evidenceIndex().holds[index]...)
	}
	slices.Sort(at)
	var found []*holding.Hold
	for _, i := range slices.Compact(at) {
		found = append(found, &m.holds[i])
	}
	return found
}

// holdBefore is the last hold of an owner that began before an instant.
func (m *model) holdBefore(lock, owner string, at time.Duration) *holding.Hold {
	return last(m.holdIndex().owner[owner], lock, at)
}

// A holdIndex finds holds by who made them, in order of their start.
type holdIndex struct {
	owner   map[string][]*holding.Hold
	process map[int][]*holding.Hold
}

func (m *model) holdIndex() *holdIndex {
	if m.indexed == nil {
		m.indexed = &holdIndex{map[string][]*holding.Hold{}, map[int][]*holding.Hold{}}
		for i := range m.holds {
			h := &m.holds[i]
			m.indexed.owner[h.Owner] = append(m.indexed.owner[h.Owner], h)
			m.indexed.process[h.Process] = append(m.indexed.process[h.Process], h)
		}
	}
	return m.indexed
}

// last is of some holds, in order of their start, the last of a lock that began before an
// instant; of any lock if none is named.
func last(holds []*holding.Hold, lock string, at time.Duration) *holding.Hold {
	i := sort.Search(len(holds), func(i int) bool { return holds[i].Start > at })
	for i--; i >= 0; i-- {
		if lock == "" || holds[i].Lock == lock {
			return holds[i]
		}
	}
	return nil
}

// operation is the operation that an event of the evidence is one end of.
func (m *model) operation(index int64) (*history.Operation, bool) {
	i, ok := m.evidenceIndex().ops[index]
	if !ok {
		return nil, false
	}
	return &m.ops[i], true
}

// client is whose hold it is: the owner without the number of the attempt.
func client(owner string) string {
	name, _, _ := strings.Cut(owner, "#")
	if name == "" {
		return owner
	}
	return name
}

// A roleChange is a server that was seen in a role that it did not have.
type roleChange struct {
	at        time.Duration
	node      string
	role, was string // was is empty for the role at the start
}

// roleReplica is that of a Redis server that copies another.
const roleReplica = "replica"

// The roles of the members of a consensus store: at boot, and those that they are seen in.
const (
	roleMember   = "member"
	roleLeader   = "leader"
	roleFollower = "follower"
)

// became says that a server was seen in a role, and in another before.
func became(role string) string {
	switch role {
	case roleLeader:
		return "became the leader"
	case "master":
		return "was promoted to master"
	}
	return "became a " + role
}

// roleChanges are the roles at the start, at instant 0, and every change that
// was observed.
func roleChanges(t history.Topology, notes []*history.Event) []roleChange {
	var changes []roleChange
	current := map[string]string{}
	for _, n := range t.Nodes {
		if n.Role != "" {
			current[n.Name] = n.Role
			changes = append(changes, roleChange{node: n.Name, role: n.Role})
		}
	}
	boot := len(changes)
	for _, e := range notes {
		if e.Op != history.Observe || e.What != history.ObserveRole || e.Value == current[e.Node] {
			continue
		}
		if current[e.Node] == roleMember { // what it is first seen to be, it was from the start
			for i := range changes[:boot] {
				if changes[i].node == e.Node {
					changes[i].role = e.Value
				}
			}
			current[e.Node] = e.Value
			continue
		}
		changes = append(changes, roleChange{at: e.Time, node: e.Node, role: e.Value, was: current[e.Node]})
		current[e.Node] = e.Value
	}
	return changes
}
