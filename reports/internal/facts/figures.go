package facts

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
)

// Operations are those of clients, in the order in which reports list them.
func Operations() []string {
	return []string{string(history.Acquire), string(history.Extend), string(history.Release), string(history.Access)}
}

// Outcomes counts how the operations of one kind ended.
type Outcomes struct {
	OK   int `json:"ok"`   // happened
	Fail int `json:"fail"` // definitely did not happen
	Info int `json:"info"` // may have happened
}

// Total is the number of operations.
func (o Outcomes) Total() int { return o.OK + o.Fail + o.Info }

// A Latency is the distribution of the time from the invocation to the ok, of
// the operations of one kind that were answered ok. The percentiles are exact:
// the nearest rank, not interpolated. One that lies above all but a single sample, so that
// it would be no more than the maximum, is 0: p95 of fewer than 20, p99 of fewer than 100,
// p99.9 of fewer than 1,000; and so is the median of fewer than 5.
type Latency struct {
	Count int           `json:"count"`
	Mean  time.Duration `json:"mean_ns"`
	Min   time.Duration `json:"min_ns"`
	P50   time.Duration `json:"p50_ns,omitempty"`
	P95   time.Duration `json:"p95_ns,omitempty"`
	P99   time.Duration `json:"p99_ns,omitempty"`
	P999  time.Duration `json:"p99_9_ns,omitempty"`
	Max   time.Duration `json:"max_ns"`
}

// count counts the operations, and measures them.
func (r *Facts) count() {
	var counts [holding.Lost]Outcomes // the last verb, which is no operation
	var samples [holding.Lost][]time.Duration
	for _, op := range r.Ops {
		switch c := &counts[op.Verb]; {
		case op.OK():
			c.OK++
			samples[op.Verb] = append(samples[op.Verb], Took(op))
		case op.Failed():
			c.Fail++
		default:
			c.Info++
		}
	}
	for verb := range holding.Lost {
		if counts[verb].Total() > 0 {
			r.Operations[verb.String()] = counts[verb]
		}
		if len(samples[verb]) > 0 {
			r.Latency[verb.String()] = LatencyOf(samples[verb])
		}
	}
}

// Took is how long an operation took.
func Took(op *holding.Op) time.Duration { return op.Complete.Time - op.Invoke.Time }

// LatencyOf sorts the sample, which is not empty, and takes its figures.
func LatencyOf(sample []time.Duration) Latency {
	slices.Sort(sample)
	var sum time.Duration
	for _, s := range sample {
		sum += s
	}
	return Latency{
		Count: len(sample), Mean: sum / time.Duration(len(sample)), Min: sample[0], Max: sample[len(sample)-1],
		P50: Rank(sample, 500), P95: Rank(sample, 950), P99: Rank(sample, 990), P999: Rank(sample, 999),
	}
}

// Rank is the nearest-rank percentile of a sorted sample, in permille; 0 if the sample has too few above it for it to be
// more than one of the extremes.
func Rank(sorted []time.Duration, permille int) time.Duration {
	n := len(sorted)
	if n < 5 || n*(1000-permille) < 1000 {
		return 0
	}
	return sorted[max(0, (n*permille+999)/1000-1)]
}

// None stands in a table where there is no figure.
const None = "–"

// LatencyNames are the names of the figures of a latency, in the order of its cells.
func LatencyNames() []string { return []string{"avg", "min", "p50", "p95", "p99", "p99.9", "max"} }

// Figures are in the order of their names.
func (l Latency) Figures() []time.Duration {
	return []time.Duration{l.Mean, l.Min, l.P50, l.P95, l.P99, l.P999, l.Max}
}

// Cells are the figures as they are shown: of a single sample there is only that one.
func (l Latency) Cells() []string {
	cells := make([]string, len(LatencyNames()))
	for i, figure := range l.Figures() {
		carried := l.Count > 1 || l.Count == 1 && i == len(cells)-1
		if i >= 2 && i <= 5 {
			carried = figure > 0
		}
		cells[i] = None
		if carried {
			cells[i] = say.Span(figure)
		}
	}
	return cells
}

// Durations are lengths of time, each with the instant at which it ended: most of them, those that were cut short,
// and those of which the end is unknown.
type Durations struct{ Most, Short, Open []Duration }

// A Duration is one of them.
type Duration struct{ At, Took time.Duration }

// Requests are how long each request for a lock took to be answered.
func (r *Facts) Requests() Durations {
	var d Durations
	for _, op := range r.Ops {
		if op.Verb != holding.Acquire {
			continue
		}
		switch one := (Duration{op.Complete.Time, Took(op)}); {
		case op.OK():
			d.Most = append(d.Most, one)
		case op.Failed():
			d.Short = append(d.Short, one)
		default:
			d.Open = append(d.Open, one)
		}
	}
	return d
}

// HeldFor are the lengths of the holds that ended within the record. The end of a random run may have ended those that
// were released after the last request for a lock, when the clients had stopped: they are left out.
func (r *Facts) HeldFor() Durations {
	var d Durations
	asked := history.Never
	if r.Run.Scenario == "" {
		asked = 0
		for _, op := range slices.Backward(r.Ops) {
			if op.Verb == holding.Acquire {
				asked = op.Invoke.Time
				break
			}
		}
	}
	for _, h := range r.Holds {
		one := Duration{h.End, h.End - h.Start}
		switch {
		case h.End > r.End || h.Ended == holding.EndUnknown && h.End == r.End || h.Ended == holding.EndReleased && h.End > asked:
		case h.Ended == holding.EndReleased:
			d.Most = append(d.Most, one)
		case h.Ended == holding.EndExpired, h.Ended == holding.EndLost:
			d.Short = append(d.Short, one)
		case h.Ended == holding.EndUnknown:
			d.Open = append(d.Open, one)
		}
	}
	return d
}

// Counts says how many violations there are: the one figure that all reports have.
type Counts struct {
	// Total is the sum of Kinds. What two engines found in the same events counts once.
	Total int            `json:"total"`
	Kinds map[string]int `json:"kinds,omitempty"`
	// First and Last are when the first and the last of them were there.
	First time.Duration `json:"first,omitempty"`
	Last  time.Duration `json:"last,omitempty"`
	// More is set where a property has more violations than are listed, and counted here.
	More bool `json:"more,omitempty"`
}

// Counts are those of the run.
func (r *Facts) Counts() Counts {
	c := Counts{Total: len(r.Violations)}
	for i, v := range r.Violations {
		if i == 0 {
			c.Kinds, c.First = map[string]int{}, r.Since(v)
		}
		c.Kinds[v.Kind]++
		c.Last = max(c.Last, r.Since(v))
	}
	c.More = slices.ContainsFunc(r.Results, func(p checker.Result) bool { return p.Verdict == checker.Invalid && p.Total > len(p.Violations) })
	return c
}

// String says the counts and the time: "28 lost updates and 3 double grants, from 27.7 s to 29.9 s".
func (c Counts) String() string {
	if c.Total == 0 {
		return ""
	}
	words := KindCounts(c.Kinds)
	if c.More {
		words = "at least " + words
	}
	if say.Instant(c.First) == say.Instant(c.Last) {
		return words + ", at " + say.Instant(c.First)
	}
	return words + ", from " + say.Instant(c.First) + " to " + say.Instant(c.Last)
}

// KindCounts are numbers of violations, the gravest kinds first: "87 double grants and 33 lost updates".
func KindCounts(counts map[string]int) string {
	kinds := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(Severity(a), Severity(b)), strings.Compare(a, b))
	})
	for i, kind := range kinds {
		k, _ := checker.KindOf(kind)
		kinds[i] = say.Count(counts[kind], cmp.Or(k.Noun, strings.ReplaceAll(kind, "-", " "), "violation"))
	}
	return say.List(kinds)
}

// Covered says in one line what a history met, as far as a property counted it: "contention 93 · refusals 12". What
// was met most comes first.
func Covered(met map[string]int) string {
	names := slices.SortedFunc(maps.Keys(met), func(a, b string) int { return cmp.Or(met[b]-met[a], strings.Compare(a, b)) })
	var parts []string
	for _, name := range names {
		if met[name] > 0 {
			words := say.OneLine(name)
			if name == history.MetShared { // which of a lock that one may hold are its violations
				words = "holds beside another"
			}
			parts = append(parts, words+" "+say.Thousands(int64(met[name])))
		}
	}
	return strings.Join(parts, " · ")
}

// Coverage is the line of the property that counted; empty if none did.
func Coverage(properties []checker.Result) string {
	for i := range properties {
		if line := Covered(properties[i].Met); line != "" {
			return line
		}
	}
	return ""
}

// minComplaints is how many operations it takes for an error that most of them met to be the run's, and not theirs.
const minComplaints = 3

// figure is what differs in errors that are alike: addresses and times.
var figure = regexp.MustCompile(`[0-9]+`)

// DominantError says which error most operations of a kind met, if most met the same: of several kinds, that which
// most operations met. It is empty if none did. A definite refusal is what a lock is for, so that refusals count only
// where nothing was ever granted.
func (r *Facts) DominantError() string {
	counts, texts, examples := map[[2]string]int{}, map[[2]string]int{}, map[[2]string]string{}
	for _, op := range r.Ops {
		if op.OK() || op.Open() || op.Failed() && r.Operations[op.Verb.String()].OK > 0 {
			continue
		}
		if text := r.Answer(op).Error; text != "" {
			alike := [2]string{op.Verb.String(), figure.ReplaceAllString(text, "#")}
			counts[alike]++
			if verb := alike[0]; texts[[2]string{verb, text}] >= texts[[2]string{verb, examples[alike]}] { // the most frequent
				examples[alike] = text
			}
			texts[[2]string{alike[0], text}]++
		}
	}
	most, words := minComplaints-1, ""
	for _, alike := range slices.SortedFunc(maps.Keys(counts), func(a, b [2]string) int { return strings.Compare(a[0]+a[1], b[0]+b[1]) }) {
		n, total := counts[alike], r.Operations[alike[0]].Total()
		if n <= most || 2*n <= total {
			continue
		}
		noun := cmp.Or(map[string]string{"acquire": "request for a lock", "extend": "extension"}[alike[0]], alike[0])
		most, words = n, fmt.Sprintf("%s of %s ended with the error “%s”", say.Thousands(int64(n)), say.Count(total, noun), say.Shorten(say.OneLine(examples[alike]), 120))
	}
	return words
}
