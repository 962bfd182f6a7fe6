package reports

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/reports/internal/draw"
	"github.com/lockchaos/lockchaos/reports/internal/facts"
)

// A Named is a run with the name that a comparison calls it by.
type Named struct {
	Name string
	Input
}

// A Comparison is what differs between two runs, or between two folders of runs, in words and in figures.
type Comparison struct {
	// Names are those of the two, Verdicts and Headlines their answers.
	Names     [2]string
	Verdicts  [2]checker.Verdict
	Headlines [2]string
	// Differences are the sentences, the weightiest first; empty where both
	// agree in all that is compared.
	Differences []string
	// Worse are the sentences that say in what B was judged worse than A: its verdict, or
	// a property; of folders a run. Figures are none of it: the same run repeated differs in them.
	Worse []string
	// Rows are the figures of both side by side.
	Rows []ComparedRow
}

// A ComparedRow is one figure of both.
type ComparedRow struct {
	What   string
	Values [2]string
	// Change is how many times the first the second is: "1.8 ×"; empty where
	// that would say nothing.
	Change string
}

const (
	// leastSample is how many answers it takes before two runs' latencies or rates are compared in words, and
	// leastFaults how many faults of a kind before the slowest recoveries from them are.
	leastSample, leastFaults = 20, 5
	// notable is the ratio from which two figures count as different. The same run repeated differs by less.
	notable = 1.25
)

// Compare says in what two runs differ: what was run, what was found, how fast
// the answers were, how long the locks took to recover.
func Compare(a, b Named) Comparison {
	return compare([2]string{a.Name, b.Name}, newModel(a.Input), newModel(b.Input))
}

func compare(names [2]string, a, b *model) Comparison {
	c := Comparison{Names: names, Verdicts: [2]checker.Verdict{a.Verdict, b.Verdict}, Headlines: [2]string{a.Story.Headline, b.Story.Headline}}
	c.verdicts(&a.Results, &b.Results)
	c.setup(a, b)
	c.rates(&a.Results, &b.Results)
	c.latencies(&a.Results, &b.Results)
	c.recoveries(&a.Results, &b.Results)
	return c
}

func (c *Comparison) say(worse bool, format string, args ...any) {
	c.Differences = append(c.Differences, fmt.Sprintf(format, args...))
	if worse {
		c.Worse = append(c.Worse, c.Differences[len(c.Differences)-1])
	}
}

// isWorse reports whether the second verdict is worse than the first.
func isWorse(a, b checker.Verdict) bool { return a != b && b == checker.Worst(a, b) }

// verdicts tells which properties were judged differently. One that was not checked was as good as not decided.
func (c *Comparison) verdicts(a, b *Results) {
	if a.Verdict != b.Verdict {
		c.say(isWorse(a.Verdict, b.Verdict), "A is %s, B is %s.", a.Verdict, b.Verdict)
	}
	judged := func(r *Results, name string) (checker.Verdict, string) {
		i := slices.IndexFunc(r.Properties, func(p checker.Result) bool { return p.Name == name })
		switch {
		case i < 0:
			return checker.Unknown, "not checked"
		case r.Properties[i].Verdict == checker.Invalid:
			return checker.Invalid, "violated " + say.Count(max(r.Properties[i].Total, len(r.Properties[i].Violations)), "time")
		case r.Properties[i].Verdict == checker.Valid:
			return checker.Valid, "held"
		default:
			return checker.Unknown, "not decided"
		}
	}
	seen := map[string]bool{}
	for _, p := range append(slices.Clone(a.Properties), b.Properties...) {
		if seen[p.Name] {
			continue
		}
		seen[p.Name] = true
		was, in := judged(a, p.Name)
		is, other := judged(b, p.Name)
		c.row(p.Name, in, other, 0)
		if in != other {
			c.say(isWorse(was, is), "The property %s: %s in A, %s in B.", p.Name, in, other)
		}
	}
}

// setup tells what was run differently.
func (c *Comparison) setup(a, b *model) {
	setup := func(m *model) [][2]string {
		run := m.in.Run
		return [][2]string{
			{"scenario", run.Scenario},
			{"topology", run.Topology.Name},
			{"lock", run.Lock},
			{"workload", run.Workload},
			{"fault mix", run.Faults},
			{"seed", fmt.Sprint(run.Seed)},
			{"backend", run.Backend},
			{"lockchaos", run.Program},
			{"servers", strings.Join(pairs(run.Servers), ", ")},
			{"options of the topology", strings.Join(pairs(run.Topology.Options), ", ")},
			{"command", run.Command},
		}
	}
	sb, differ := setup(b), false
	for i, s := range setup(a) {
		if s[1] == sb[i][1] || s[0] == "command" && differ {
			continue // what the command says was said
		}
		differ = true
		c.say(false, "The %s differs: %s in A, %s in B.", s[0], cmp.Or(s[1], "none"), cmp.Or(sb[i][1], "none"))
	}
}

// rates tells how often the locks were granted.
func (c *Comparison) rates(a, b *Results) {
	c.row("length", say.Length(a.Duration), say.Length(b.Duration), 0)
	if differs(ratio(float64(a.Duration), float64(b.Duration))) {
		c.say(false, "A lasted %s, B %s.", say.Length(a.Duration), say.Length(b.Duration))
	}
	oa, ob := a.Operations[string(history.Acquire)], b.Operations[string(history.Acquire)]
	for _, row := range []struct {
		what string
		a, b int
	}{{"requests for a lock", oa.Total(), ob.Total()}, {"granted", oa.OK, ob.OK}, {"refused", oa.Fail, ob.Fail}, {"without a known outcome", oa.Info, ob.Info}} {
		c.row(row.what, say.Thousands(int64(row.a)), say.Thousands(int64(row.b)), 0)
	}
	perSecond := func(r *Results, n int) float64 { return float64(n) / max(r.Duration.Seconds(), 1e-9) }
	ga, gb := perSecond(a, oa.OK), perSecond(b, ob.OK)
	r := ratio(ga, gb)
	c.row("grants per second", number(ga), number(gb), r)
	if min(oa.Total(), ob.Total()) < leastSample {
		return
	}
	if differs(r) {
		c.say(false, "A granted %s a second, B granted %s: %s times as much.", number(ga), number(gb), number(r))
	}
	percent := func(n int, o Outcomes) float64 { return 100 * float64(n) / float64(max(o.Total(), 1)) }
	for _, kind := range []struct {
		what string
		a, b float64
	}{
		{"were refused", percent(oa.Fail, oa), percent(ob.Fail, ob)},
		{"had no known outcome", percent(oa.Info, oa), percent(ob.Info, ob)},
	} {
		if math.Abs(kind.a-kind.b) >= 5 {
			c.say(false, "Of the requests %.0f %% %s in A, %.0f %% in B.", kind.a, kind.what, kind.b)
		}
	}
}

// latencies tells how fast the answers were.
func (c *Comparison) latencies(a, b *Results) {
	for _, op := range facts.Operations() {
		la, lb := a.Latency[op], b.Latency[op]
		for i, name := range facts.LatencyNames() {
			in, other := la.Cells()[i], lb.Cells()[i]
			if la.Count == 0 || lb.Count == 0 || in == facts.None && other == facts.None {
				continue
			}
			r := 0.0
			if in != facts.None && other != facts.None {
				r = ratio(float64(la.Figures()[i]), float64(lb.Figures()[i]))
			}
			c.row(op+" "+name, in, other, r)
			if (name == "p50" || name == "p99") && op == string(history.Acquire) && min(la.Count, lb.Count) >= leastSample && differs(r) {
				c.say(false, "The %s of acquire is %s in A and %s in B: %s times as much.", name, in, other, number(r))
			}
		}
	}
}

// recoveries tells how long the locks took to be granted again, after the
// faults that both runs had.
func (c *Comparison) recoveries(a, b *Results) {
	type slowest struct {
		times int
		took  time.Duration
		never bool
	}
	worst := func(r *Results) map[string]slowest {
		of := map[string]slowest{}
		for i := range r.Faults {
			if f := &r.Faults[i]; f.OK {
				s := of[f.Name]
				of[f.Name] = slowest{s.times + 1, max(s.took, f.Recovery), s.never || f.Interrupts && f.Recovery == 0}
			}
		}
		return of
	}
	words := func(s slowest) string {
		switch {
		case s.never:
			return "no grant after it"
		case s.took == 0:
			return facts.None
		}
		return say.Span(s.took)
	}
	wa, wb := worst(a), worst(b)
	both := maps.Clone(wa)
	maps.Copy(both, wb)
	var only [2][]string
	for _, name := range slices.Sorted(maps.Keys(both)) {
		sa, sb := wa[name], wb[name]
		switch {
		case sb.times == 0:
			only[0] = append(only[0], name)
		case sa.times == 0:
			only[1] = append(only[1], name)
		}
		in, other, r := words(sa), words(sb), 0.0
		if !sa.never && !sb.never && min(sa.times, sb.times) >= leastFaults {
			r = ratio(float64(sa.took), float64(sb.took))
		}
		if in != facts.None || other != facts.None {
			c.row("slowest recovery from "+name, in, other, r)
		}
		switch {
		case differs(r) && max(sa.took, sb.took) >= 100*time.Millisecond:
			c.say(false, "After %s the slowest first grant took %s in A and %s in B: %s times as much.", name, in, other, number(r))
		case in != other && (sa.never || sb.never) && in != facts.None && other != facts.None:
			c.say(false, "After %s: %s in A, %s in B.", name, in, other)
		}
	}
	for i, names := range only {
		if len(names) > 0 {
			c.say(false, "Only in %c did these faults take effect: %s.", 'A'+i, say.List(names))
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
	case r >= 100:
		return say.Thousands(int64(math.Round(r)))
	case r >= 10:
		return say.TrimZeros(fmt.Sprintf("%.1f", r))
	case r >= 0.1 || r == 0:
		return say.TrimZeros(fmt.Sprintf("%.2f", r))
	default:
		return fmt.Sprintf("%.2g", r)
	}
}

// CompareFolders says in what two folders of runs differ, such as those of two nights: in how many runs of each kind
// a verdict was not as it must be, and which runs of the same kind and seed were judged otherwise.
func CompareFolders(a, b string) (Comparison, error) {
	c := Comparison{Names: [2]string{a, b}}
	var kinds []string
	var runs [2]map[string][]JointRun
	for i, dir := range c.Names {
		all, err := readMany(dir)
		if err != nil {
			return c, err
		}
		joint := newJoint(all, len(all))
		c.Verdicts[i], c.Headlines[i] = joint.Verdict, joint.Story.Headline
		runs[i] = map[string][]JointRun{}
		for _, r := range all {
			of := r.kind()
			kind := strings.Join(strings.Fields(strings.Join(of[:], " ")), " ")
			runs[i][kind] = append(runs[i][kind], r)
			kinds = append(kinds, kind)
		}
	}
	slices.Sort(kinds)
	for _, kind := range slices.Compact(kinds) {
		var rates [2]Rate
		var words [2]string
		for i := range runs {
			missed := len(slices.DeleteFunc(slices.Clone(runs[i][kind]), JointRun.met))
			rates[i], words[i] = rateOf(kind, missed, len(runs[i][kind])), "not run"
			if rates[i].Of > 0 {
				words[i] = rates[i].String()
			}
		}
		c.row("not as it must be: "+kind, words[0], words[1], 0)
		if rates[0].Interval[1] < rates[1].Interval[0] || rates[1].Interval[1] < rates[0].Interval[0] {
			c.say(rates[0].Seen*rates[1].Of < rates[1].Seen*rates[0].Of, "%s: %s runs are not as they must be in A, %s in B.", kind, words[0], words[1])
		}
		for _, r := range runs[0][kind] {
			at := slices.IndexFunc(runs[1][kind], func(o JointRun) bool { return o.Seed == r.Seed })
			if at < 0 {
				continue
			}
			if o := runs[1][kind][at]; o.Tone() != r.Tone() {
				c.say(isWorse(r.Tone(), o.Tone()), "%s: %s in A, %s in B: %s", r.name(), r.Verdict, o.Verdict, cmp.Or(o.Headline, r.Headline))
			}
		}
	}
	return c, nil
}

// readMany are the runs of a folder: those of its joint results, or else of its run directories.
func readMany(dir string) ([]JointRun, error) {
	if j := readJoint(dir); j != nil {
		return j.Runs, nil
	}
	entries, err := ReadRuns(dir)
	if err == nil && len(entries) == 0 {
		err = fmt.Errorf("%s has no run directories", dir)
	}
	var runs []JointRun
	for _, e := range entries {
		runs = append(runs, JointRun{Verdict: e.Verdict, Expect: e.Expect, Scenario: e.Scenario, Topology: e.Topology, Lock: e.Lock, Seed: e.Seed, Headline: e.Headline, Dir: e.Name})
	}
	return runs, err
}

// WriteComparisonText writes a comparison for a terminal.
func WriteComparisonText(w io.Writer, c Comparison) error {
	var b bytes.Buffer
	for i, name := range []string{"A", "B"} {
		fmt.Fprintf(&b, "%s  %s %s  %s\n   %s\n", name, sign(c.Verdicts[i]), strings.ToUpper(string(c.Verdicts[i])), say.OneLine(c.Headlines[i]), say.OneLine(c.Names[i]))
	}
	for _, s := range c.Differences {
		fmt.Fprintf(&b, "\n- %s", say.OneLine(s))
	}
	if len(c.Differences) == 0 {
		b.WriteString("\n- They agree in all that is compared here.")
	}
	b.WriteString("\n\n")
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, r := range append([]ComparedRow{{Values: [2]string{"A", "B"}}}, c.Rows...) {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", say.OneLine(r.What), r.Values[0], r.Values[1], r.Change)
	}
	_ = t.Flush() // into memory
	var text strings.Builder
	for line := range strings.Lines(b.String()) {
		text.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return write(w, "comparison", text.String(), nil)
}

// WriteComparison writes a comparison of two runs as one HTML file that needs no network:
// the differences in words, the plots of both runs on the same axes, and their
// figures side by side.
func WriteComparison(w io.Writer, a, b Named) error {
	models := [2]*model{newModel(a.Input), newModel(b.Input)}
	var plots []*draw.Plot
	fa, fb := models[0].facts, models[1].facts
	latency := draw.ScaleOf(fa, fa.Requests()).Both(draw.ScaleOf(fb, fb.Requests()))
	rates := draw.RateScale(fa, latency.Window).Both(draw.RateScale(fb, latency.Window))
	enough := true
	for i, m := range models {
		enough = enough && m.Operations[string(history.Acquire)].Total() >= minPlot
		plots = append(plots, draw.Latency(m.facts, fmt.Sprintf("%c: latency", 'A'+i), m.facts.Requests(), latency, requestWords))
	}
	for i, m := range models {
		plots = append(plots, draw.Throughput(m.facts, fmt.Sprintf("%c: per %s", 'A'+i, say.Span(draw.RateStep(rates.Window))), rates))
	}
	if !enough {
		plots = nil
	}
	drawn, err := drawAll(make([]string, len(plots)), plots)
	if err != nil {
		return fmt.Errorf("write comparison: %w", err)
	}
	c := compare([2]string{a.Name, b.Name}, models[0], models[1])
	return writePage(w, "compare.html", map[string]any{"C": c, "Runs": []Results{models[0].Results, models[1].Results}, "Letters": []string{"A", "B"}, "Plots": drawn})
}

// A Curve is a distribution of times, in the order of its shares.
type Curve = draw.Curve

// A CurvePoint says that a share of all, of 0 up to but not 1, took no longer than
// this many microseconds.
type CurvePoint = draw.CurvePoint

// DrawCurves draws distributions on the same axes as an SVG element: to the right the
// share that took longer gets smaller, upwards the time longer. It is empty when no
// curve has two points.
func DrawCurves(title string, curves []Curve) (string, error) { return draw.DrawCurves(title, curves) }
