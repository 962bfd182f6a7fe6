package reports

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
)

// A Cause is what several violations have in common as far as the record shows: the
// fault that was in effect while they arose and can explain them, or that there was none.
type Cause struct {
	// Title says it in a line: "split-brain, 19.100 s to 23.600 s: 87 double grants".
	Title string `json:"title"`
	// Fault and Target name the fault; empty without any.
	Fault  string `json:"fault,omitempty"`
	Target string `json:"target,omitempty"`
	// From and Until are when the first of the violations began and the last ended,
	// within the record.
	From  time.Duration `json:"from"`
	Until time.Duration `json:"until"`
	// Violations counts those that are listed, by kind.
	Violations map[string]int `json:"violations"`
	// Servers granted the holds that the violations are about, as far as it is known.
	Servers []string `json:"servers,omitempty"`
	// Impact says how long, how many, and how many requests had no known outcome.
	Impact string `json:"impact"`
	// Story is that of the gravest and longest violation, with its cures: where no fault
	// explains double grants, of one whose cause is known.
	Story Story  `json:"story"`
	Cures []Cure `json:"cures,omitempty"`
	// Sequence are the messages until that violation, and Why is what it followed
	// from, down to events.
	Sequence *Sequence `json:"sequence,omitempty"`
	Why      *Why      `json:"why,omitempty"`
}

// A group are the violations of a cause.
type group struct {
	Cause

	fault int // the index of the fault; -1 for none
	found []*checker.Violation
	told  *checker.Violation // that of the story
}

// causesOf groups the violations by what caused them: those that no fault explains
// first, then by how grave they are and how long they lasted.
func (m *model) causesOf() []*group {
	if m.grouped != nil {
		return m.grouped
	}
	byFault := map[int]*group{}
	causes := []*group{}
	origin := m.origins()
	m.originOf = origin
	for _, v := range m.distinct() {
		c := byFault[origin[v]]
		if c == nil {
			c = &group{fault: origin[v], Cause: Cause{Violations: map[string]int{}, From: m.since(v)}}
			byFault[c.fault] = c
			causes = append(causes, c)
		}
		c.found = append(c.found, v)
		c.Violations[v.Kind]++
		c.From, c.Until = min(c.From, m.since(v)), max(c.Until, m.since(v), min(v.Until, m.end))
	}
	for _, c := range causes {
		if c.fault >= 0 {
			c.Fault, c.Target = m.faults[c.fault].Name, m.faults[c.fault].Target
		}
		c.told = m.gravestOf(c.found)
	}
	slices.SortStableFunc(causes, func(a, b *group) int {
		x, y := a.told, b.told
		return cmp.Or(b2i(b.fault < 0)-b2i(a.fault < 0), cmp.Compare(severity(x.Kind), severity(y.Kind)),
			cmp.Compare(m.lasted(y), m.lasted(x)), cmp.Compare(a.From, b.From))
	})
	m.grouped = causes
	for _, c := range causes {
		if c.fault < 0 {
			c.told = m.clearestOf(c)
		}
	}
	return causes
}

// maxCompared bounds the violations that are compared to tell which explains most.
const maxCompared = 64

// clearestOf is of the violations without a fault the one to tell: a double grant of which
// a wrong answer is known, or a release that can have ended the first hold, rather than a
// longer one whose cause is not in the record.
func (m *model) clearestOf(c *group) *checker.Violation {
	if c.told.Kind != checker.DoubleGrant {
		return c.told
	}
	longest := slices.DeleteFunc(slices.Clone(c.found), func(v *checker.Violation) bool { return v.Kind != c.told.Kind })
	slices.SortStableFunc(longest, func(a, b *checker.Violation) int { return cmp.Compare(m.lasted(b), m.lasted(a)) })
	for _, v := range longest[:min(len(longest), maxCompared)] {
		if m.explained(v) && !m.unprompted(v.Lock) {
			return v
		}
	}
	for _, v := range longest[:min(len(longest), maxCompared)] {
		if holds := m.holdsOf(v); len(holds) > 1 {
			if _, ok := m.lateRelease(holds[0], holds[1], m.delayed(v)); ok {
				return v
			}
		}
	}
	return c.told
}

// explained reports whether a wrong answer of the service is known that made the second
// grant of a double grant possible.
func (m *model) explained(v *checker.Violation) bool {
	holds := m.holdsOf(v)
	if len(holds) < 2 {
		return false
	}
	if len(m.wrongAnswers(holds[0], holds[1].Start)) > 0 {
		return true
	}
	_, ended := m.follows(v)
	return ended != nil && !m.vote()
}

// unprompted reports whether two clients were granted a lock without a fault before the service
// gave any wrong answer that can have made room for the second: the defect is in the grant.
func (m *model) unprompted(lock string) bool {
	if known, ok := m.unprompt[lock]; ok {
		return known
	}
	if m.unprompt == nil {
		m.unprompt = map[string]bool{}
	}
	wrong := history.Never
	for _, v := range m.distinct() {
		if op, ok := m.answered(v); ok && v.Kind == checker.ForeignRelease && v.Lock == lock {
			wrong = min(wrong, op.Invoke.Time)
		}
	}
	compared := 0
	m.unprompt[lock] = wrong < history.Never && slices.ContainsFunc(m.distinct(), func(v *checker.Violation) bool {
		holds := m.holdsOf(v)
		if v.Kind != checker.DoubleGrant || v.Lock != lock || len(holds) < 2 || holds[1].Start >= wrong || compared == maxCompared || m.origin(v) >= 0 {
			return false
		}
		compared++
		_, ended := m.follows(v)
		_, late := m.lateRelease(holds[0], holds[1], 0)
		return ended == nil && !late
	})
	return m.unprompt[lock]
}

// causeOf is the fault that a violation is grouped under, or -1.
func (m *model) causeOf(v *checker.Violation) int {
	m.causesOf()
	if fault, known := m.originOf[v]; known {
		return fault
	}
	return m.origin(v)
}

// gravestOf is of the gravest kind the violation that lasted longest within the record,
// and the first of those; a request that was overtaken rather than one that asked later.
func (m *model) gravestOf(found []*checker.Violation) *checker.Violation {
	first := found[0]
	for _, v := range found[1:] {
		if cmp.Or(cmp.Compare(severity(v.Kind), severity(first.Kind)), b2i(m.placedAnew(v))-b2i(m.placedAnew(first)), cmp.Compare(m.lasted(first), m.lasted(v))) < 0 {
			first = v
		}
	}
	return first
}

// causes are those of the violations, each with its story; nil if there are none.
func (m *model) causes() []Cause {
	var all []Cause
	for _, c := range m.causesOf() {
		done := c.Cause
		told := c.told
		done.Title, done.Impact = m.causeTitle(c), m.impact(c)
		done.Servers = m.serversOf(c)
		done.Story = m.violationStory(told)
		done.Cures = m.curesOf(done.Story.Cures)
		if len(all) < maxToldCauses {
			done.Sequence, done.Why = m.sequence(told), m.why(told)
		}
		all = append(all, done)
	}
	return all
}

// causeTitle says what caused how much, and when.
func (m *model) causeTitle(c *group) string {
	if c.fault < 0 {
		if c.From == c.Until {
			return fmt.Sprintf("without any fault, at %s: %s", say.Instant(c.From), kindCounts(c.Violations))
		}
		return fmt.Sprintf("without any fault, %s to %s: %s", say.Instant(c.From), say.Instant(c.Until), kindCounts(c.Violations))
	}
	f := &m.faults[c.fault]
	return fmt.Sprintf("%s, %s to %s: %s", f.label(), say.Instant(f.Start), say.Instant(f.End), kindCounts(c.Violations))
}

// kindCounts are numbers of violations, the gravest kinds first: "87 double grants and 33
// lost updates".
func kindCounts(counts map[string]int) string {
	var kinds []string
	for kind := range counts {
		kinds = append(kinds, kind)
	}
	slices.SortFunc(kinds, func(a, b string) int {
		return cmp.Or(cmp.Compare(severity(a), severity(b)), strings.Compare(a, b))
	})
	for i, kind := range kinds {
		kinds[i] = say.Count(counts[kind], kindNoun(kind))
	}
	return say.List(kinds)
}

// kindNoun names a violation of a kind so that it can be counted.
func kindNoun(kind string) string {
	k, _ := checker.KindOf(kind)
	return cmp.Or(k.Noun, strings.ReplaceAll(kind, "-", " "), "violation")
}

// serversOf are the servers that granted what a cause's violations are about.
func (m *model) serversOf(c *group) []string {
	var servers []string
	for _, v := range c.found {
		for _, h := range m.holdsOf(v) {
			for _, node := range m.voters(h) {
				if !slices.Contains(servers, node) {
					servers = append(servers, node)
				}
			}
		}
	}
	slices.SortFunc(servers, say.Natural)
	return servers
}

// impact says how bad a cause was.
func (m *model) impact(c *group) string {
	from, until := c.From, c.Until
	if c.fault >= 0 {
		from, until = min(from, m.faults[c.fault].Start), max(until, m.faults[c.fault].End)
	}
	asked, unknown := 0, 0
	for i := range m.ops {
		if op := &m.ops[i]; op.Invoke.Op == history.Acquire && op.Invoke.Time <= until && op.Complete.Time >= from {
			asked++
			unknown += b2i(op.Unknown())
		}
	}
	words := fmt.Sprintf("%s within %s, in a record of %s", kindCounts(c.Violations), say.Span(c.Until-c.From), say.Length(m.end))
	if c.Until == c.From {
		words = fmt.Sprintf("%s at %s, in a record of %s", kindCounts(c.Violations), say.Instant(c.From), say.Length(m.end))
	}
	if lost := c.Violations[checker.LostUpdate]; lost > 0 { // each is proven, and more may be lost
		told := say.Count(lost, kindNoun(checker.LostUpdate))
		words = strings.Replace(words, told, "at least "+told, 1)
	}
	if n := len(c.found); n > 1 && c.Violations[checker.LostUpdate] > 0 && c.Violations[checker.LostUpdate] < n {
		words += ", with damage to what the lock protects"
	}
	when := "in that time"
	if from < c.From || until > c.Until {
		when = fmt.Sprintf("from %s to %s", say.Instant(from), say.Instant(until))
	}
	switch {
	case asked < 2 && unknown == 0:
		return words + "."
	case unknown == 0:
		return fmt.Sprintf("%s; all %s %s had a known outcome.", words, say.Count(asked, "request for a lock"), when)
	}
	return fmt.Sprintf("%s; %d of %s %s had no known outcome.", words, unknown, say.Count(asked, "request for a lock"), when)
}
