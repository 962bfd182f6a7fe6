package reports_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports"
)

func htmlOf(tb testing.TB, in reports.Input) string {
	tb.Helper()
	return string(written(tb, func(w io.Writer) error { return reports.WriteHTML(w, in) }))
}

// withoutCode is markup without its scripts and styles. (A regular expression
// takes longer for it than a report takes to be drawn.)
func withoutCode(markup string) string {
	for _, tag := range []string{"script>", "style>"} {
		for before, rest, is := strings.Cut(markup, "<"+tag); is; before, rest, is = strings.Cut(markup, "<"+tag) {
			_, after, _ := strings.Cut(rest, "</"+tag)
			markup = before + after
		}
	}
	return markup
}

// elements reads markup to its end, and counts its elements.
func elements(tb testing.TB, markup string, strict bool) map[string]int {
	tb.Helper()
	d := xml.NewDecoder(strings.NewReader(markup))
	if !strict {
		d.Strict, d.AutoClose, d.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	}
	counts, open := map[string]int{}, []string{}
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			require.Empty(tb, open)
			return counts
		}
		require.NoError(tb, err)
		switch e := token.(type) {
		case xml.StartElement:
			counts[e.Name.Local]++
			open = append(open, e.Name.Local)
		case xml.EndElement:
			require.Equal(tb, open[len(open)-1], e.Name.Local)
			open = open[:len(open)-1]
		}
	}
}

func TestHTMLStructure(t *testing.T) {
	for name, fixture := range fixtures() {
		t.Run(name, func(t *testing.T) {
			page := htmlOf(t, fixture())
			counts := elements(t, withoutCode(page), false)
			require.Equal(t, 1, counts["h1"])
			require.Contains(t, []int{3, 4}, counts["h2"], "one more where something helps")
			require.GreaterOrEqual(t, counts["svg"], 17) // the legend
			require.NotRegexp(t, `https?:|@import|<link|<iframe`, page, "it needs no network")
			ids := regexp.MustCompile(`id="[^"]*"`).FindAllString(page, -1)
			slices.Sort(ids)
			require.Equal(t, slices.Compact(slices.Clone(ids)), ids)
		})
	}
}

// sections must come in the order in which a reader asks.
func TestHTMLOrder(t *testing.T) {
	page := htmlOf(t, failover())
	at := 0
	for _, part := range []string{
		`class="banner invalid"`, "as this scenario expects", "1 double grant and 1 lost update",
		"What happened", "redis-2 was promoted to master", "In effect at the time", "lockchaos reproduce failover-double-grant",
		"Timeline", "What may prevent it", "What was checked", "mutual-exclusion", "Latency, holds and throughput", "p99.9", "Faults", "2 links refuse",
		"Environment", "redis 7.0.15", `href="history.jsonl"`,
	} {
		next := strings.Index(page[at:], part)
		require.GreaterOrEqual(t, next, 0, part)
		at += next
	}
}

// leaves tries to leave its place, whatever that is.
const leaves = `</text></svg></style><script>alert(1)</script><img src=x onerror=alert(2)>"'&` + "\x00\x1b[31m\xff\u2028"

// hostile is the failover with names that were chosen by somebody else, of which everything is drawn all the same.
func hostile(bad string) reports.Input {
	in := plotted(failover())
	in.Run.Plan = []history.PlannedStep{{Fault: "cut"}}
	in.Run.SkippedFaults, in.Run.Title, in.Run.Source, in.Run.Workload, in.Run.Faults = []string{"late"}, "a title", "a source", "contended", "network"
	poison(reflect.ValueOf(&in).Elem(), bad, "Kind", "What", "Mode", "Life", "Effects", "Backend", "Version", "Role")
	return in
}

// plotted is an input with so many requests for a lock more that there are plots.
func plotted(in reports.Input) reports.Input {
	s := &script{events: slices.Clone(in.History.Events)}
	end := float64(in.History.End()) / 1e6
	for i := range 30 {
		at := end + 1 + float64(3*i)
		s.acquire(90, "other", "c#1", "redis-2", at, at+1, 100)
		s.release(90, "other", "c#1", "redis-2", at+1.5, at+2)
	}
	in.History = &history.History{Events: s.events}
	for i := range in.History.Events {
		in.History.Events[i].Index = int64(i)
	}
	return in
}

// poisoned is the failover with something in every field that a report may show,
// and somebody else's words in each of them: whatever stands in a record, what
// means something to reports included. A field that is new is poisoned too.
func poisoned(bad string) reports.Input {
	in := plotted(failover())
	run := &in.Run
	run.AbortReason, run.Backend, run.Faults, run.Workload = "step 3", "process", "network", "contended"
	run.Topology.Options = map[string]string{"persistence": "always"}
	run.Plan = []history.PlannedStep{{Fault: "cut", Target: "client", Params: map[string]string{"stream": "both"}}}
	in.Missing = []string{"open results.json: no such file"}
	in.Report.Results[0].Met = map[string]int{"contention": 3}
	for i := range in.History.Events {
		e := &in.History.Events[i]
		if e.Fault != "" {
			e.Params = map[string]string{"stream": "both"}
			if e.Type == history.OK && e.Op == history.Heal || e.Type == history.OK && e.Fault == "kill" {
				e.Type, e.Error = history.Fail, "still there"
			}
		}
	}
	poison(reflect.ValueOf(&in).Elem(), bad)
	return in
}

// poison puts words in front of every text, but for those that must be one of a
// few for a history to be read at all, and those of some fields.
func poison(v reflect.Value, bad string, but ...string) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			poison(v.Elem(), bad, but...)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && !slices.Contains(but, f.Name) {
				poison(v.Field(i), bad, but...)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			poison(v.Index(i), bad, but...)
		}
	case reflect.Map:
		fresh := reflect.MakeMap(v.Type())
		for _, key := range v.MapKeys() {
			k, e := reflect.New(key.Type()).Elem(), reflect.New(v.Type().Elem()).Elem()
			k.Set(key)
			e.Set(v.MapIndex(key))
			poison(k, bad, but...)
			poison(e, bad, but...)
			fresh.SetMapIndex(k, e)
		}
		if !v.IsNil() {
			v.Set(fresh)
		}
	case reflect.String:
		switch v.Interface().(type) {
		case history.Type, history.Op, checker.Verdict:
		default:
			if v.Len() > 0 {
				v.SetString(bad + v.String())
			}
		}
	default:
	}
}

// unprintable has what a terminal obeys, what turns text around or hides in it, and
// what XML forbids.
const unprintable = "\x00\a\r\x1b[2J\x1b]0;title\a\x7f\u0085\u009b31m\u200b\u202e\u2066\u2028\ufeff\ufffe\uffff\U0001fffe\U000e0041"

func TestNothingIsWrittenThatDoesNotPrint(t *testing.T) {
	for name, in := range map[string]reports.Input{"names": hostile(unprintable), "all": poisoned(unprintable)} {
		t.Run(name, func(t *testing.T) {
			in.Missing = nil // else there are fewer files
			dir := t.TempDir()
			require.NoError(t, reports.WriteDir(dir, in))
			files, err := os.ReadDir(dir)
			require.NoError(t, err)
			out := map[string]string{}
			for _, f := range files {
				content, err := os.ReadFile(filepath.Join(dir, f.Name()))
				require.NoError(t, err)
				out[f.Name()] = string(content)
			}
			r, run := reports.Summarize(in), reports.Named{Name: unprintable, Input: in}
			out["terminal"] = string(written(t, func(w io.Writer) error { return reports.WriteText(w, r, reports.TextOptions{}) }))
			out["comparison"] = string(written(t, func(w io.Writer) error { return reports.WriteComparisonText(w, reports.Compare(run, run)) }))
			out["index"] = string(written(t, func(w io.Writer) error {
				return reports.WriteIndex(w, []reports.RunEntry{{Name: unprintable, JointRun: reports.JointRun{Headline: unprintable, Lock: unprintable}}}, nil)
			}))
			for file, content := range out {
				for _, r := range content {
					require.True(t, unicode.IsPrint(r) || unicode.In(r, unicode.Zs) || r == '\n', "%s has %U", file, r)
				}
				if strings.HasSuffix(file, ".svg") || strings.HasSuffix(file, ".xml") {
					counts := elements(t, content, true)
					require.Zero(t, counts["img"]+counts["script"], file)
				}
			}
			require.Contains(t, out["terminal"], `\u001b[2J`)
			back, err := reports.ReadJSON(strings.NewReader(out[reports.ResultsFile]))
			require.NoError(t, err)
			require.Equal(t, r.Lock, back.Lock, "JSON loses nothing")
		})
	}
}

// No name adds an element or an attribute to a page or a drawing.
func FuzzNames(f *testing.F) {
	for _, s := range []string{
		leaves, "", "orders", "]]>", "{{.}}", "-->", "<!--", "</script>", "</div><script>", "javascript:alert(1)", "a\nb", "`${x}`",
		"&lt;", "\xed\xa0\x80", strings.Repeat("x", 300), "|a|b|", "../../x",
	} {
		f.Add(s, false)
		f.Add(s, true)
	}
	known := elements(f, withoutCode(htmlOf(f, failover())+htmlOf(f, busy(6, 1500, 2))), false)
	errors := notPermitted()
	poison(reflect.ValueOf(&errors).Elem(), leaves)
	require.Contains(f, reports.Summarize(errors).Story.Headline, "alert(1)")
	require.Zero(f, elements(f, withoutCode(htmlOf(f, errors)), false)["img"])
	f.Fuzz(func(t *testing.T, bad string, everywhere bool) {
		if everywhere {
			addsNothing(t, poisoned(bad), known)
		} else {
			addsNothing(t, hostile(bad), known)
		}
	})
}

var tagOutsideOfCode = regexp.MustCompile(`(?m)^[^ \n].*<[a-zA-Z/!]`)

// addsNothing checks that a page has known elements only, and none that acts.
func addsNothing(t *testing.T, in reports.Input, known map[string]int) {
	t.Helper()
	page := string(written(t, func(w io.Writer) error { return reports.WriteHTML(w, in) }))
	require.Equal(t, 1, strings.Count(page, "<script"))
	require.Equal(t, 1, strings.Count(page, "</script"))
	require.Equal(t, 1, strings.Count(page, "<style"))
	d := xml.NewDecoder(strings.NewReader(withoutCode(page)))
	d.Strict, d.AutoClose, d.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		e, _ := token.(xml.StartElement)
		require.True(t, e.Name.Local == "" || known[e.Name.Local] > 0 || e.Name.Local == "pre" || e.Name.Local == "br", e.Name.Local)
		for _, a := range e.Attr {
			require.False(t, strings.HasPrefix(a.Name.Local, "on"), a.Name.Local)
			require.False(t, a.Name.Local == "href" && strings.Contains(strings.ToLower(a.Value), "script:"), a.Value)
		}
	}
	r := reports.Summarize(in)
	for _, write := range []func(io.Writer) error{
		func(w io.Writer) error { return reports.WriteMarkdown(w, r) },
		func(w io.Writer) error { return reports.WriteText(w, r, reports.TextOptions{}) },
	} {
		require.NotContains(t, string(written(t, write)), "\x1b")
	}
	markdown := string(written(t, func(w io.Writer) error { return reports.WriteMarkdown(w, r) }))
	require.NotRegexp(t, tagOutsideOfCode, markdown, "a tag outside of code")
	elements(t, string(written(t, func(w io.Writer) error { return reports.WriteJUnit(w, r) })), true)
}

// Every SVG is well-formed XML, and every report the same twice.
func TestSameInputSameBytes(t *testing.T) {
	inputs := map[string]func() reports.Input{"dense": func() reports.Input { return busy(6, 1500, 2) }}
	maps.Copy(inputs, fixtures())
	for name, fixture := range inputs {
		t.Run(name, func(t *testing.T) {
			first, second := t.TempDir(), t.TempDir()
			require.NoError(t, reports.WriteDir(first, fixture()))
			require.NoError(t, reports.WriteDir(second, fixture()))
			files, err := os.ReadDir(first)
			require.NoError(t, err)
			pictures := 0
			page, err := os.ReadFile(filepath.Join(first, reports.HTMLFile))
			require.NoError(t, err)
			for _, f := range files {
				if strings.HasPrefix(f.Name(), "porcupine-") {
					pictures++
					require.Contains(t, string(page), `href="`+f.Name()+`"`, "the report leads to it")
				}
			}
			plots := strings.Count(string(page), `href="latency.svg"`) + strings.Count(string(page), `href="holds.svg"`) + strings.Count(string(page), `href="throughput.svg"`)
			require.Len(t, files, 4+plots+pictures)
			for _, f := range files {
				a, err := os.ReadFile(filepath.Join(first, f.Name()))
				require.NoError(t, err)
				b, err := os.ReadFile(filepath.Join(second, f.Name()))
				require.NoError(t, err)
				require.True(t, bytes.Equal(a, b), f.Name())
				if strings.HasSuffix(f.Name(), ".svg") {
					require.NotZero(t, elements(t, string(a), true)["svg"])
				}
			}
		})
	}
}

// The page says what the run was told and ran on, and leads to the logs where there are some, but to none outside.
func TestEnvironment(t *testing.T) {
	in, dir := failover(), t.TempDir()
	in.Run.Settings, in.Run.Topology.Options = json.RawMessage(`{"clients":8,"new_<one>":3}`), map[string]string{"min-replicas": "1"}
	in.Run.Machine = &history.Machine{OS: "linux", Arch: "amd64", Kernel: "6.1.0-<13>", CPUs: 2, Go: "go1.26"}
	writeRun(t, dir, in)
	logs := filepath.Join(dir, history.LogsDir)
	require.NoError(t, os.Mkdir(logs, 0o755))
	for _, name := range []string{"redis-3.log", "sentinel <1.log", "notes.txt"} {
		require.NoError(t, os.WriteFile(filepath.Join(logs, name), nil, 0o600))
	}
	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(logs, "elsewhere.log")))
	require.NoError(t, reports.WriteDir(dir, in))
	b, err := os.ReadFile(filepath.Join(dir, reports.HTMLFile))
	require.NoError(t, err)
	page := string(b)
	for _, want := range []string{
		"<dt>Options</dt><dd>min-replicas 1</dd>", "&#34;clients&#34;: 8", "<dt>Machine</dt><dd>linux 6.1.0-&lt;13&gt;, amd64, 2 CPUs, built with go1.26</dd>",
		`<a href="./logs/redis-3.log">redis-3</a>`, `<a href="./logs/sentinel%20%3C1.log">sentinel &lt;1</a>`,
	} {
		require.Contains(t, page, want)
	}
	for _, not := range []string{"elsewhere", "notes", "new_<one>"} {
		require.NotContains(t, page, not)
	}
	page = htmlOf(t, valid())
	require.NotContains(t, page, "logs/")
	require.NotContains(t, page, "<dt>Machine", "a run.json of an earlier version")
}

// A million operations must stay small and quick to draw. `go test -bench
// Large ./reports` prints the figures.
func BenchmarkLarge(b *testing.B) {
	for _, n := range []int{100_000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			in := crowded(3, 8, n/3)
			in.Report.Record = checker.Check(b.Context(), in.History, checker.Ownership()).Record
			var out bytes.Buffer
			for b.Loop() {
				out.Reset()
				require.NoError(b, reports.WriteHTML(&out, in))
			}
			b.ReportMetric(float64(out.Len())/1e6, "MB")
			require.Less(b, out.Len(), 1_500_000)
		})
	}
}
