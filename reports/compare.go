package reports

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/internal/say"
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

// leastFaults is how many faults of a kind it takes before the slowest recoveries from them are compared by a ratio.
const leastFaults = 5

// Compare says in what two runs differ: what was run, what was found, how fast
// the answers were, how long the locks took to recover.
func Compare(a, b Named) Comparison {
	of := [2]*model{newModel(a.Input), newModel(b.Input)}
	c := Comparison{Names: [2]string{a.Name, b.Name}}
	for i, m := range of {
		c.Verdicts[i], c.Headlines[i] = m.Verdict, m.Story.Headline
	}
	if c.Verdicts[0] != c.Verdicts[1] {
		c.say(isWorse(c.Verdicts[0], c.Verdicts[1]), "A is %s, B is %s.", c.Verdicts[0], c.Verdicts[1])
	}
	c.properties(&of[0].Results, &of[1].Results)
	c.setup(&of[0].in.Run, &of[1].in.Run)
	c.figures(&of[0].Results, &of[1].Results)
	for i := range of {
		only := slices.DeleteFunc(of[i].tookEffect(), func(name string) bool { return slices.Contains(of[1-i].tookEffect(), name) })
		if len(only) > 0 {
			c.say(false, "Only in %c did these faults take effect: %s.", 'A'+i, say.List(only))
		}
	}
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

// properties tells which were judged differently. One that was not checked was as good as not decided.
func (c *Comparison) properties(a, b *Results) {
	judged := func(r *Results, name string) (words string, verdict checker.Verdict) {
		i := slices.IndexFunc(r.Properties, func(p checker.Result) bool { return p.Name == name })
		if i < 0 {
			return "not checked", checker.Unknown
		}
		p := &r.Properties[i]
		return map[checker.Verdict]string{
			checker.Valid: "held", checker.Unknown: "not decided", checker.Invalid: "violated " + say.Count(max(p.Total, len(p.Violations)), "time"),
		}[p.Verdict], p.Verdict
	}
	for _, name := range facts.Distinct(names.Of(slices.Concat(a.Properties, b.Properties), func(p checker.Result) string { return p.Name })) {
		in, was := judged(a, name)
		other, is := judged(b, name)
		c.row(name, in, other, 0)
		if in != other {
			c.say(isWorse(was, is), "The property %s: %s in A, %s in B.", name, in, other)
		}
	}
}

// setup tells what was run differently.
func (c *Comparison) setup(a, b *history.Run) {
	setup := func(run *history.Run) [][2]string {
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

// tookEffect are the names of the faults that took effect.
func (r *Results) tookEffect() []string {
	names := map[string]bool{}
	for i := range r.Faults {
		if f := &r.Faults[i]; f.OK {
			names[f.Name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// A figure is one of a run.
type figure struct {
	what, value string
	number      float64 // by which a ratio is told; 0: none is
}

// figuresOf are how often the locks were granted, how fast the answers were, and the slowest recoveries.
func figuresOf(r *Results) []figure {
	o := r.Operations[string(history.Acquire)]
	perSecond := float64(o.OK) / max(r.Duration.Seconds(), 1e-9)
	figures := []figure{
		{"length", say.Length(r.Duration), float64(r.Duration)},
		{what: "requests for a lock", value: say.Thousands(int64(o.Total()))},
		{what: "granted", value: say.Thousands(int64(o.OK))},
		{what: "refused", value: say.Thousands(int64(o.Fail))},
		{what: "without a known outcome", value: say.Thousands(int64(o.Info))},
		{"grants per second", number(perSecond), perSecond},
	}
	for _, op := range facts.Operations() {
		l := r.Latency[op]
		for i, name := range facts.LatencyNames() {
			if value := l.Cells()[i]; l.Count > 0 && value != facts.None {
				figures = append(figures, figure{op + " " + name, value, float64(l.Figures()[i])})
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
		f := figure{what: "slowest recovery from " + name, value: say.Span(slowest[name])}
		switch {
		case never[name]:
			f.value = "no grant after it"
		case times[name] >= leastFaults: // of one fault against one nothing follows
			f.number = float64(slowest[name])
		}
		figures = append(figures, f)
	}
	return figures
}

// figures puts the figures of both side by side.
func (c *Comparison) figures(a, b *Results) {
	var names [2][]string
	of := [2]map[string]figure{{}, {}}
	for i, r := range []*Results{a, b} {
		for _, f := range figuresOf(r) {
			names[i], of[i][f.what] = append(names[i], f.what), f
		}
	}
	for _, what := range facts.Distinct(append(names[0], names[1]...)) {
		in, other, r := of[0][what], of[1][what], 0.0
		if in.number > 0 {
			r = other.number / in.number
		}
		c.row(what, cmp.Or(in.value, facts.None), cmp.Or(other.value, facts.None), r)
	}
}

func (c *Comparison) row(what, a, b string, r float64) {
	row := ComparedRow{What: what, Values: [2]string{a, b}}
	if r > 0 {
		row.Change = number(r) + " ×"
	}
	c.Rows = append(c.Rows, row)
}

func number(r float64) string {
	switch {
	case r >= 100:
		return say.Thousands(int64(math.Round(r)))
	case r >= 10:
		return strconv.FormatFloat(math.Round(r*10)/10, 'f', -1, 64)
	case r >= 0.1 || r == 0:
		return strconv.FormatFloat(math.Round(r*100)/100, 'f', -1, 64)
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
		joint, err := readMany(dir)
		if err != nil {
			return c, err
		}
		c.Verdicts[i], c.Headlines[i] = joint.Verdict, joint.Story.Headline
		if joint.Interrupted {
			c.say(i == 1 && isWorse(c.Verdicts[0], joint.Verdict), "%c was interrupted: %d of %d planned runs were played.", 'A'+i, len(joint.Runs), joint.Planned)
		}
		runs[i] = map[string][]JointRun{}
		for _, r := range joint.Runs {
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
func readMany(dir string) (Joint, error) {
	if j := readJoint(dir); j != nil {
		return newJoint(j.Runs, j.Planned), nil
	}
	entries, err := ReadRuns(dir)
	if err == nil && len(entries) == 0 {
		err = fmt.Errorf("%s has no run directories", dir)
	}
	var runs []JointRun
	for _, e := range entries {
		runs = append(runs, e.JointRun)
	}
	return newJoint(runs, len(runs)), err
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
	switch {
	case len(c.Differences) > 0:
	case c.Verdicts[0] != c.Verdicts[1]: // of folders, whose shares are compared
		b.WriteString("\n- Their verdicts differ. All else that is compared here differs by no more than chance explains.")
	default:
		b.WriteString("\n- They agree in what was run and found; below are the figures of both.")
	}
	rows := [][]string{{"", "A", "B", ""}}
	for _, r := range c.Rows {
		rows = append(rows, []string{say.OneLine(r.What), r.Values[0], r.Values[1], r.Change})
	}
	return write(w, "comparison", b.String()+"\n\n"+say.Aligned(rows), nil)
}
