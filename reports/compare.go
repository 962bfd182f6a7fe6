package reports

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/internal/say"
)

// A Named is a run with the name that a comparison calls it by.
type Named struct {
	Name string
	Input
}

// A Comparison is what differs between two runs, in words and in figures.
type Comparison struct {
	// Names are those of the two runs, Verdicts and Headlines their answers.
	Names     [2]string
	Verdicts  [2]checker.Verdict
	Headlines [2]string
	// Differences are the sentences, the weightiest first; empty for two runs
	// that agree in all that is compared.
	Differences []string
	// Worse are the sentences that say in what B was judged worse than A: its verdict, or
	// a property. Figures are none of it: the same run repeated differs in them.
	Worse []string
	// Rows are the figures of both side by side.
	Rows []ComparedRow
}

// A ComparedRow is one figure of two runs.
type ComparedRow struct {
	What   string
	Values [2]string
	// Change is how many times the first the second is: "1.8 ×"; empty where
	// that would say nothing.
	Change string
}

// leastSample is how many answers it takes before two runs' latencies or rates
// are compared in words.
const leastSample = 20

// leastFaults is how many faults of a kind both runs must have had before the slowest
// recoveries from them are set in relation.
const leastFaults = 5

// notable is the ratio from which two figures count as different. The same run
// repeated differs by less.
const notable = 1.25

// Compare says in what two runs differ: what was run, what was found, how fast
// the answers were, how long the locks took to recover.
func Compare(a, b Named) Comparison {
	return compareModels([2]string{a.Name, b.Name}, newModel(a.Input), newModel(b.Input))
}

func compareModels(names [2]string, a, b *model) Comparison {
	ra, rb := a.results(), b.results()
	c := Comparison{
		Names: names, Verdicts: [2]checker.Verdict{ra.Verdict, rb.Verdict},
		Headlines: [2]string{ra.Story.Headline, rb.Story.Headline},
	}
	c.verdicts(&ra, &rb)
	c.setup(a, b)
	c.rates(&ra, &rb)
	c.latencies(&ra, &rb)
	c.recoveries(&ra, &rb)
	return c
}

func (c *Comparison) say(format string, args ...any) {
	c.Differences = append(c.Differences, fmt.Sprintf(format, args...))
}

// verdicts tells which properties were judged differently.
func (c *Comparison) verdicts(a, b *Results) {
	if a.Verdict != b.Verdict {
		c.say("A is %s, B is %s.", a.Verdict, b.Verdict)
		if b.Verdict == checker.Worst(a.Verdict, b.Verdict) {
			c.Worse = append(c.Worse, c.Differences[len(c.Differences)-1])
		}
	}
	find := func(r *Results, name string) *checker.Result {
		i := slices.IndexFunc(r.Properties, func(p checker.Result) bool { return p.Name == name })
		if i < 0 {
			return nil
		}
		return &r.Properties[i]
	}
	words := func(p *checker.Result) string {
		switch {
		case p == nil:
			return "not checked"
		case p.Verdict == checker.Invalid:
			return "violated " + say.Count(max(p.Total, len(p.Violations)), "time")
		case p.Verdict == checker.Valid:
			return "held"
		default:
			return "not decided"
		}
	}
	for _, p := range append(slices.Clone(a.Properties), b.Properties...) {
		in, other := words(find(a, p.Name)), words(find(b, p.Name))
		row := ComparedRow{What: p.Name, Values: [2]string{in, other}}
		if slices.ContainsFunc(c.Rows, func(r ComparedRow) bool { return r.What == p.Name }) {
			continue
		}
		c.Rows = append(c.Rows, row)
		if in != other {
			c.say("The property %s: %s in A, %s in B.", p.Name, in, other)
			if worse(find(a, p.Name), find(b, p.Name)) {
				c.Worse = append(c.Worse, c.Differences[len(c.Differences)-1])
			}
		}
	}
}

// worse reports whether a property was judged worse the second time. One that was not
// checked was as good as not decided.
func worse(a, b *checker.Result) bool {
	verdict := func(p *checker.Result) checker.Verdict {
		if p == nil {
			return checker.Unknown
		}
		return p.Verdict
	}
	return verdict(a) != verdict(b) && verdict(b) == checker.Worst(verdict(a), verdict(b))
}

// setup tells what was run differently.
func (c *Comparison) setup(a, b *model) {
	setup := func(m *model) [][2]string {
		return [][2]string{
			{"scenario", m.Run.Scenario},
			{"topology", m.Run.Topology.Name},
			{"lock", m.Run.Lock},
			{"workload", m.Run.Workload},
			{"fault mix", m.Run.Faults},
			{"seed", fmt.Sprint(m.Run.Seed)},
			{"backend", m.Run.Backend},
			{"lockchaos", m.Run.Program},
			{"servers", strings.Join(versions(m.Run.Servers), ", ")},
			{"options of the topology", pairs(m.Run.Topology.Options)},
			{"command", m.Run.Command},
		}
	}
	sa, sb := setup(a), setup(b)
	differ := false
	for i, s := range sa {
		if s[1] == sb[i][1] || s[0] == "command" && differ {
			continue // what the command says was said
		}
		differ = true
		c.say("The %s differs: %s in A, %s in B.", s[0], cmp.Or(s[1], "none"), cmp.Or(sb[i][1], "none"))
	}
}

func versions(servers map[string]string) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		names = append(names, name+" "+servers[name])
	}
	return names
}

func pairs(options map[string]string) string {
	var all []string
	for _, k := range slices.Sorted(maps.Keys(options)) {
		all = append(all, k+" "+options[k])
	}
	return strings.Join(all, ", ")
}

// rates tells how often the locks were granted.
func (c *Comparison) rates(a, b *Results) {
	c.row("length", say.Length(a.Duration), say.Length(b.Duration), 0)
	if differs(ratio(float64(a.Duration), float64(b.Duration))) {
		c.say("A lasted %s, B %s.", say.Length(a.Duration), say.Length(b.Duration))
	}
	perSecond := func(r *Results, n int) float64 { return float64(n) / max(r.Duration.Seconds(), 1e-9) }
	oa, ob := a.Operations["acquire"], b.Operations["acquire"]
	c.row("requests for a lock", say.Thousands(int64(oa.Total())), say.Thousands(int64(ob.Total())), 0)
	c.row("granted", say.Thousands(int64(oa.OK)), say.Thousands(int64(ob.OK)), 0)
	c.row("refused", say.Thousands(int64(oa.Fail)), say.Thousands(int64(ob.Fail)), 0)
	c.row("without a known outcome", say.Thousands(int64(oa.Info)), say.Thousands(int64(ob.Info)), 0)
	ga, gb := perSecond(a, oa.OK), perSecond(b, ob.OK)
	c.row("grants per second", rate(ga), rate(gb), ratio(ga, gb))
	if min(oa.Total(), ob.Total()) < leastSample {
		return
	}
	if r := ratio(ga, gb); differs(r) {
		c.say("A granted %s a second, B granted %s: %s.", rate(ga), rate(gb), times(r))
	}
	share := func(n int, o Outcomes) float64 { return float64(n) / float64(max(o.Total(), 1)) }
	for _, kind := range []struct {
		what string
		a, b float64
	}{
		{"were refused", share(oa.Fail, oa), share(ob.Fail, ob)},
		{"had no known outcome", share(oa.Info, oa), share(ob.Info, ob)},
	} {
		if math.Abs(kind.a-kind.b) >= 0.05 {
			c.say("Of the requests %.0f %% %s in A, %.0f %% in B.", kind.a*100, kind.what, kind.b*100)
		}
	}
}

func rate(perSecond float64) string {
	if perSecond >= 100 {
		return say.Thousands(int64(math.Round(perSecond)))
	}
	return say.TrimZeros(fmt.Sprintf("%.1f", perSecond))
}

// latencies tells how fast the answers were.
func (c *Comparison) latencies(a, b *Results) {
	for _, op := range opNames() {
		la, lb := a.Latency[op], b.Latency[op]
		if la.Count == 0 || lb.Count == 0 {
			continue
		}
		as, bs := la.figures(), lb.figures()
		for i, name := range latencyNames() {
			in, other := la.cells()[i], lb.cells()[i]
			if in == none && other == none {
				continue
			}
			r := 0.0
			if in != none && other != none {
				r = ratio(float64(as[i]), float64(bs[i]))
			}
			c.row(op+" "+name, in, other, r)
			if (name == "p50" || name == "p99") && op == "acquire" && min(la.Count, lb.Count) >= leastSample && differs(r) {
				c.say("The %s of acquire is %s in A and %s in B: %s.", name, in, other, times(r))
			}
		}
	}
}

// recoveries tells how long the locks took to be granted again, after the
// faults that both runs had.
func (c *Comparison) recoveries(a, b *Results) {
	worst := func(r *Results, times map[string]int) (map[string]time.Duration, map[string]bool) {
		took, never := map[string]time.Duration{}, map[string]bool{}
		for i := range r.Faults {
			if f := &r.Faults[i]; f.OK {
				times[f.Name]++
				took[f.Name] = max(took[f.Name], f.Recovery)
				never[f.Name] = never[f.Name] || f.Interrupts && f.Recovery == 0
			}
		}
		return took, never
	}
	timesA, timesB := map[string]int{}, map[string]int{}
	ta, na := worst(a, timesA)
	tb, nb := worst(b, timesB)
	words := func(name string, took map[string]time.Duration, never map[string]bool) string {
		if _, had := took[name]; !had {
			return none
		}
		switch {
		case never[name]:
			return "no grant after it"
		case took[name] == 0:
			return none
		}
		return say.Span(took[name])
	}
	names := slices.Sorted(maps.Keys(ta))
	for _, name := range slices.Sorted(maps.Keys(tb)) {
		if _, both := ta[name]; !both {
			names = append(names, name)
		}
	}
	only := [2][]string{}
	for _, name := range names {
		_, inA := ta[name]
		_, inB := tb[name]
		if !inB {
			only[0] = append(only[0], name)
		} else if !inA {
			only[1] = append(only[1], name)
		}
		r := 0.0
		if !na[name] && !nb[name] && min(timesA[name], timesB[name]) >= leastFaults {
			r = ratio(float64(ta[name]), float64(tb[name]))
		}
		in, other := words(name, ta, na), words(name, tb, nb)
		if in != none || other != none {
			c.row("slowest recovery from "+name, in, other, r)
		}
		switch {
		case r != 0 && max(ta[name], tb[name]) >= 100*time.Millisecond && differs(r):
			c.say("After %s the slowest first grant took %s in A and %s in B: %s.", name, in, other, times(r))
		case inA && inB && in != other && (na[name] || nb[name]) && in != none && other != none:
			c.say("After %s: %s in A, %s in B.", name, in, other)
		}
	}
	for i, faults := range only {
		if len(faults) > 0 {
			c.say("Only in %c did these faults take effect: %s.", 'A'+i, say.List(faults))
		}
	}
}

func (c *Comparison) row(what, a, b string, r float64) {
	row := ComparedRow{What: what, Values: [2]string{a, b}}
	if r > 0 {
		row.Change = number(r) + " ×"
	}
	c.Rows = append(c.Rows, row)
}

// ratio is how many times a b is; 0 where one of them is nothing.
func ratio(a, b float64) float64 {
	if a <= 0 || b <= 0 {
		return 0
	}
	return b / a
}

func differs(r float64) bool { return r != 0 && (r >= notable || r <= 1/notable) }

func number(r float64) string {
	switch {
	case r >= 10:
		return say.Thousands(int64(math.Round(r)))
	case r >= 0.1:
		return say.TrimZeros(fmt.Sprintf("%.2f", r))
	default:
		return fmt.Sprintf("%.2g", r)
	}
}

// times says a ratio in words.
func times(r float64) string { return number(r) + " times as much" }

// WriteComparisonText writes a comparison for a terminal.
func WriteComparisonText(w io.Writer, c Comparison) error {
	var b strings.Builder
	for i, name := range []string{"A", "B"} {
		fmt.Fprintf(&b, "%s  %s %s  %s\n   %s\n", name, sign(c.Verdicts[i]), strings.ToUpper(string(c.Verdicts[i])), say.OneLine(c.Headlines[i]), say.OneLine(c.Names[i]))
	}
	b.WriteString("\n")
	for _, s := range c.Differences {
		fmt.Fprintf(&b, "- %s\n", say.OneLine(s))
	}
	if len(c.Differences) == 0 {
		b.WriteString("- They agree in all that is compared here.\n")
	}
	widths := [3]int{}
	cells := func(r ComparedRow) [3]string { return [3]string{say.OneLine(r.What), r.Values[0], r.Values[1]} }
	rows := append([]ComparedRow{{What: "", Values: [2]string{"A", "B"}}}, c.Rows...)
	for _, r := range rows {
		for i, cell := range cells(r) {
			widths[i] = max(widths[i], len([]rune(cell)))
		}
	}
	b.WriteString("\n")
	for _, r := range rows {
		c := cells(r)
		line := fmt.Sprintf("%-*s  %*s  %*s  %s", widths[0], c[0], widths[1], c[1], widths[2], c[2], r.Change)
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write comparison: %w", err)
	}
	return nil
}
