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
	c.figures(&a.Results, &b.Results)
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

// A figure is one of a run, by which it is compared.
type figure struct {
	what, value string
	number      float64 // by which a ratio is told; 0: none is
	sample      int     // that it rests on: of fewer than leastSample no difference is told in words
	told        bool    // in words, where it differs
	share       bool    // it is a part of a hundred, and differs by so many of them
}

// figuresOf are how often the locks were granted, how fast the answers were, and the slowest recoveries.
func figuresOf(r *Results) []figure {
	const everyTime = leastSample // a sample is large enough
	o := r.Operations[string(history.Acquire)]
	perSecond, all := float64(o.OK)/max(r.Duration.Seconds(), 1e-9), float64(max(o.Total(), 1))
	figures := []figure{
		{"length", say.Length(r.Duration), float64(r.Duration), everyTime, true, false},
		{what: "requests for a lock", value: say.Thousands(int64(o.Total()))},
		{what: "granted", value: say.Thousands(int64(o.OK))},
		{"refused", say.Thousands(int64(o.Fail)), 100 * float64(o.Fail) / all, o.Total(), true, true},
		{"without a known outcome", say.Thousands(int64(o.Info)), 100 * float64(o.Info) / all, o.Total(), true, true},
		{"grants per second", number(perSecond), perSecond, o.Total(), true, false},
	}
	for _, op := range facts.Operations() {
		l := r.Latency[op]
		for i, name := range facts.LatencyNames() {
			told := (name == "p50" || name == "p99") && op == string(history.Acquire)
			if cell := l.Cells()[i]; l.Count > 0 && cell != facts.None {
				figures = append(figures, figure{op + " " + name, cell, float64(l.Figures()[i]), l.Count, told, false})
			}
		}
	}
	times, slowest, never := map[string]int{}, map[string]time.Duration{}, map[string]bool{}
	for i := range r.Faults {
		if f := &r.Faults[i]; f.OK && f.Interrupts {
			times[f.Name]++
			slowest[f.Name], never[f.Name] = max(slowest[f.Name], f.Recovery), never[f.Name] || f.Recovery == 0
		}
	}
	for _, name := range slices.Sorted(maps.Keys(times)) {
		f := figure{what: "slowest recovery from " + name, value: say.Span(slowest[name]), told: true}
		switch {
		case never[name]:
			f.value = "no grant after it"
		case times[name] >= leastFaults: // of one fault against one nothing follows
			f.number, f.sample = float64(slowest[name]), everyTime
		}
		figures = append(figures, f)
	}
	return figures
}

// figures tells in what figures the runs differ: by a quarter, or five parts of a hundred.
func (c *Comparison) figures(a, b *Results) {
	fa, fb := figuresOf(a), figuresOf(b)
	find := func(all []figure, what string) figure {
		if i := slices.IndexFunc(all, func(f figure) bool { return f.what == what }); i >= 0 {
			return all[i]
		}
		return figure{what: what, value: facts.None}
	}
	seen := map[string]bool{}
	for _, f := range append(slices.Clone(fa), fb...) {
		if seen[f.what] {
			continue
		}
		seen[f.what] = true
		in, other := find(fa, f.what), find(fb, f.what)
		r := ratio(in.number, other.number)
		if f.share {
			r = 0
		}
		c.row(f.what, in.value, other.value, r)
		switch {
		case !f.told || min(in.sample, other.sample) < leastSample:
		case f.share && math.Abs(in.number-other.number) >= 5:
			c.say(false, "Of the requests %.0f %% were %s in A, %.0f %% in B.", in.number, f.what, other.number)
		case differs(r):
			c.say(false, "The %s is %s in A and %s in B: %s times as much.", f.what, in.value, other.value, number(r))
		}
	}
	took := func(r *Results) (names []string) {
		for i := range r.Faults {
			if f := &r.Faults[i]; f.OK && !slices.Contains(names, f.Name) {
				names = append(names, f.Name)
			}
		}
		return names
	}
	ta, tb := took(a), took(b)
	for i, only := range [2][]string{
		slices.DeleteFunc(slices.Clone(ta), func(name string) bool { return slices.Contains(tb, name) }),
		slices.DeleteFunc(slices.Clone(tb), func(name string) bool { return slices.Contains(ta, name) }),
	} {
		if slices.Sort(only); len(only) > 0 {
			c.say(false, "Only in %c did these faults take effect: %s.", 'A'+i, say.List(only))
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
		runs = append(runs, e.JointRun)
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
	var plots []plotted
	if draw.Plots != nil && models[0].enough() && models[1].enough() {
		var err error
		if plots, err = onPage(draw.Plots.Compare(models[0].facts, models[1].facts)); err != nil {
			return fmt.Errorf("write comparison: %w", err)
		}
	}
	c := compare([2]string{a.Name, b.Name}, models[0], models[1])
	return writePage(w, "compare.html", map[string]any{"C": c, "Runs": []Results{models[0].Results, models[1].Results}, "Letters": []string{"A", "B"}, "Plots": plots})
}

// A Curve is a distribution of times, in the order of its shares.
type Curve = draw.Curve

// A CurvePoint says that a share of all, of 0 up to but not 1, took no longer than
// this many microseconds.
type CurvePoint = draw.CurvePoint

// DrawCurves draws distributions on the same axes as an SVG element: to the right the
// share that took longer gets smaller, upwards the time longer. It is empty when no
// curve has two points, and in a program that does not import package reports/plots.
func DrawCurves(title string, curves []Curve) (string, error) {
	if draw.Plots == nil {
		return "", nil
	}
	return draw.Plots.Curves(title, curves)
}
