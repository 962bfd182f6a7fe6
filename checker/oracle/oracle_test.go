package oracle_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/lockchaos/lockchaos/checker/oracle"
	"github.com/lockchaos/lockchaos/history"
)

const (
	rw        = `{"time":0,"process":-1,"type":"ok","op":"declare","lock":"k","kind":"rw"}` + "\n"
	two       = `{"time":0,"process":-1,"type":"ok","op":"declare","lock":"k","kind":"semaphore","capacity":2}` + "\n"
	reentrant = `{"time":0,"process":-1,"type":"ok","op":"declare","lock":"k","kind":"mutex","reentrant":true}` + "\n"
)

// knownAnswers are histories whose answer follows from the documents by hand. A
// history is written as words: time, process, owner, what was asked, and the
// answer; see [events].
var knownAnswers = []struct {
	name   string
	lock   string
	events string
	answer string
}{
	{"a hand-over", "", `
		0 1 a acquire | 1 1 a ok | 2 1 a release | 2 2 b acquire | 3 1 a ok | 4 2 b ok`, "possible"},
	{"a grant beside a hold", "", `
		0 1 a acquire | 1 1 a ok | 2 2 b acquire | 3 2 b ok`, "impossible"},
	{"a grant at the end of a lease", "", `
		0 1 a acquire lease=3 | 1 1 a ok | 2 2 b acquire | 3 2 b ok`, "possible"},
	{"a grant before the end of a lease", "", `
		0 1 a acquire lease=4 | 1 1 a ok | 2 2 b acquire | 3 2 b ok`, "impossible"},
	{"a release that is confirmed though the lock went on", "", `
		0 1 a acquire lease=1 | 1 1 a ok | 2 2 b acquire | 3 2 b ok | 4 1 a release | 5 1 a ok`, "impossible"},
	{"a refusal within the lease", "", `
		0 1 a acquire lease=9 | 1 1 a ok | 2 1 a release | 3 1 a fail`, "impossible"},
	{"an unknown acquire that a release proves beside a hold", "", `
		0 1 a acquire | 1 1 a ok | 2 2 b acquire | 3 2 b info | 4 3 b release | 5 3 b ok | 6 1 a release | 7 1 a ok`, "unknown"},
	{"an unknown release that was sent too late", "", `
		0 1 a acquire | 1 1 a ok | 2 2 b acquire | 3 2 b ok | 4 1 a release | 5 1 a info`, "impossible"},
	{"a lost before a grant", "", `
		0 1 a acquire | 1 1 a ok | 2 9 a lost | 2 2 b acquire | 3 2 b ok`, "possible"},
	{"a crash without a lease", "", `
		0 1 a acquire | 1 1 a ok | 2 1 a crash | 2 2 b acquire | 3 2 b ok`, "possible"},
	{"a crash with a lease", "", `
		0 1 a acquire lease=9 | 1 1 a ok | 2 1 a crash | 2 2 b acquire | 3 2 b ok`, "impossible"},
	{"granted twice", "", `
		0 1 a acquire | 1 1 a ok | 2 1 a acquire | 3 1 a ok`, "impossible"},
	{"granted twice, and released twice", reentrant, `
		0 1 a acquire | 1 1 a ok | 2 1 a acquire | 3 1 a ok | 4 1 a release | 5 1 a ok | 6 1 a release | 7 1 a ok | 8 2 b acquire | 9 2 b ok`, "possible"},
	{"the crash of a process with an inner grant", reentrant, `
		0 1 a acquire | 1 1 a ok | 2 3 a acquire | 3 3 a ok | 4 3 a crash | 5 2 b acquire | 6 2 b ok`, "possible"},
	{"one of three releases overlaps another", reentrant, `
		0 1 a acquire | 1 1 a ok | 2 1 a release | 3 3 a release | 4 1 a ok | 5 3 a ok`, "unknown"},
	{"a writer beside a reader", rw, `
		0 1 a acquire mode=read | 1 1 a ok | 2 2 b acquire mode=write | 3 2 b ok`, "impossible"},
	{"an upgrade", rw, `
		0 1 a acquire mode=read | 1 1 a ok | 2 1 a acquire mode=write | 3 1 a ok`, "possible"},
	{"a reader after a downgrade that is not finished", rw, `
		0 1 a acquire mode=write | 1 1 a ok | 2 1 a acquire mode=read | 3 1 a ok | 4 2 b acquire mode=read | 5 2 b ok`, "impossible"},
	{"three permits of two", two, `
		0 1 a acquire mode=permit | 1 1 a ok | 2 2 b acquire mode=permit permits=2 | 3 2 b ok`, "impossible"},
	{"two grants given back together", two, `
		0 1 a acquire mode=permit | 1 1 a ok | 2 1 a acquire mode=permit | 3 1 a ok | 4 1 a release mode=permit permits=2 | 5 1 a ok
		| 6 2 b acquire mode=permit permits=2 | 7 2 b ok`, "possible"},
	{"two grants of which one is given back", two, `
		0 1 a acquire mode=permit | 1 1 a ok | 2 1 a acquire mode=permit | 3 1 a ok | 4 1 a release mode=permit | 5 1 a ok
		| 6 2 b acquire mode=permit permits=2 | 7 2 b ok`, "impossible"},
	{"more permits given back than there were", two, `
		0 1 a acquire mode=permit | 1 1 a ok | 2 1 a release mode=permit permits=2 | 3 1 a ok`, "impossible"},
	{"three permits refused to the owner of one", two, `
		0 1 a acquire mode=permit | 1 1 a ok | 2 1 a release mode=permit permits=3 | 3 1 a fail`, "possible"},
	{"one permit refused to the owner of another that ran out", two, `
		0 1 a acquire mode=permit lease=1 | 1 1 a ok | 2 1 a acquire mode=permit | 3 1 a ok | 4 1 a release mode=permit | 5 1 a fail`, "impossible"},
	{"operations of two owners at one stamp", "", `
		0 1 a acquire | 1 1 a ok | 1 2 b acquire | 2 2 b ok | 2 1 a release | 3 1 a ok`, "possible"},
}

// events writes a history from words. All operations are on the lock k, and the
// unit of time is a microsecond.
func events(t *testing.T, lock, words string) *history.History {
	t.Helper()
	asked := make(map[string]string)
	var b strings.Builder
	b.WriteString(lock)
	for event := range strings.SplitSeq(words, "|") {
		f := strings.Fields(event)
		at := strings.Replace(f[0]+"000", "0000", "0", 1)
		line := `{"time":` + at + `,"process":` + f[1] + `,"lock":"k","owner":"` + f[2] + `",`
		switch f[3] {
		case "ok", "fail", "info":
			line += `"type":"` + f[3] + `",` + asked[f[1]]
		case "lost":
			line += `"type":"ok","op":"lost"`
		case "crash":
			line = `{"time":` + at + `,"process":` + f[1] + `,"type":"info","op":"crash"`
		default:
			op := `"op":"` + f[3] + `"`
			for _, field := range f[4:] {
				name, value, _ := strings.Cut(field, "=")
				switch name {
				case "mode":
					value = `"` + value + `"`
				case "lease":
					value += "000"
				}
				op += `,"` + name + `":` + value
			}
			asked[f[1]] = op
			line += `"type":"invoke",` + op
		}
		b.WriteString(line + "}\n")
	}
	h, err := history.ReadAll(strings.NewReader(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestKnownAnswers(t *testing.T) {
	t.Parallel()
	for _, known := range knownAnswers {
		t.Run(known.name, func(t *testing.T) {
			t.Parallel()
			o := oracle.Judge(events(t, known.lock, known.events))
			if answer := o.Locks[0].Answer(); answer != known.answer {
				t.Errorf("%s, want %s", answer, known.answer)
			}
		})
	}
}

// TestCompareFindsWrongVerdicts gives the oracle reports that are wrong.
func TestCompareFindsWrongVerdicts(t *testing.T) {
	t.Parallel()
	report := func(verdict string, violations ...oracle.Violation) map[string]oracle.Finding {
		return map[string]oracle.Finding{
			"mutual-exclusion": {Verdict: verdict, Violations: violations},
			"ownership":        {Verdict: "valid"},
			"linearizability":  {Verdict: verdict, Violations: []oracle.Violation{{Kind: "not-linearizable", Lock: "k"}}[:min(1, len(violations))]},
		}
	}
	double := oracle.Violation{Kind: "double-grant", Lock: "k"}
	for _, c := range []struct {
		name   string
		wrong  bool
		known  int
		report map[string]oracle.Finding
	}{
		{"a possible history is valid", false, 0, report("valid")},
		{"a possible history is convicted", true, 0, report("invalid", double)},
		{"a possible history is unknown without a reason", true, 0, report("unknown")},
		{"an impossible history is convicted", false, 1, report("invalid", double)},
		{"an impossible history is valid", true, 1, report("valid")},
		{"an impossible history is unknown", true, 1, report("unknown")},
	} {
		o := oracle.Judge(events(t, knownAnswers[c.known].lock, knownAnswers[c.known].events))
		if found := o.Compare(c.report, false); len(found) > 0 != c.wrong {
			t.Errorf("%s: %v", c.name, found)
		}
	}
}

// TestGenerator asks that the random histories are of all kinds of locks, and
// that each kind has a good share of all answers; and that a reader accepts them.
func TestGenerator(t *testing.T) {
	t.Parallel()
	const number = 1000
	g, again := oracle.NewGenerator(5), oracle.NewGenerator(5)
	answers := make(map[string]map[string]int)
	for range number {
		h := g.Next()
		lines := oracle.Lines(h)
		if lines != oracle.Lines(again.Next()) {
			t.Fatal("the same seed makes another history")
		}
		if _, err := history.ReadAll(strings.NewReader(lines)); err != nil {
			t.Fatalf("%v\n%s", err, lines)
		}
		for _, l := range oracle.Judge(h).Locks {
			if answers[l.Mode] == nil {
				answers[l.Mode] = make(map[string]int)
			}
			answers[l.Mode][l.Answer()]++
		}
	}
	modes := []string{"fair", "fenced", "mutex", "permits", "re-entrant", "read-write"}
	if got := slices.Sorted(maps.Keys(answers)); !slices.Equal(got, modes) {
		t.Errorf("modes %v, want %v", got, modes)
	}
	for mode, of := range answers {
		t.Log(mode, of)
		for answer, least := range map[string]int{"possible": 20, "impossible": 10, "unknown": 1} {
			if 100*of[answer] < least*(of["possible"]+of["impossible"]+of["unknown"]) {
				t.Errorf("%s: too few %s: %v", mode, answer, of)
			}
		}
	}
}

// TestShrink makes a history with a second grant as small as it gets.
func TestShrink(t *testing.T) {
	t.Parallel()
	g := oracle.NewGenerator(3)
	impossible := func(h *history.History) bool {
		return slices.ContainsFunc(oracle.Judge(h).Locks, func(l *oracle.Lock) bool { return l.Mode == "mutex" && l.Answer() == "impossible" })
	}
	for range 5 {
		h := g.Next()
		for !impossible(h) {
			h = g.Next()
		}
		small := oracle.Shrink(h, impossible)
		if !impossible(small) || len(small.Events) > 8 {
			t.Errorf("%s", oracle.Lines(small))
		}
	}
}

// mistakes are what the documents refuse. Each changes an event of a history, and tells whether it could.
var mistakes = map[string]func(h *history.History, at int) bool{
	"another lock":             completion(func(e *history.Event) { e.Lock += "x" }),
	"another owner":            completion(func(e *history.Event) { e.Owner += "x" }),
	"another mode":             completion(func(e *history.Event) { e.Mode, e.Permits = other(e.Mode), 0 }),
	"another lease":            completion(func(e *history.Event) { e.Lease = 77; e.Expires = 0 }),
	"another op":               completion(func(e *history.Event) { e.Op = history.Inject }),
	"an end of an info":        completion(func(e *history.Event) { e.Type, e.Expires = history.Info, 77 }),
	"a token of an info":       completion(func(e *history.Event) { e.Op, e.Type, e.Token = history.Acquire, history.Info, 77 }),
	"a negative token":         completion(func(e *history.Event) { e.Op, e.Type, e.Token = history.Acquire, history.OK, -1 }),
	"an unknown kind":          declaration(func(e *history.Event) { e.Kind = "semaphor" }),
	"a capacity from the past": declaration(func(e *history.Event) { e.From = 1 }),
	"a second declare": func(h *history.History, at int) bool {
		if h.Events[at].Op != history.Declare {
			return false
		}
		h.Events = slices.Insert(h.Events, at, h.Events[at])
		return true
	},
}

func other(m history.Mode) history.Mode {
	if m == history.Read {
		return history.Write
	}
	return history.Read
}

func completion(change func(e *history.Event)) func(*history.History, int) bool {
	return func(h *history.History, at int) bool {
		e := &h.Events[at]
		if e.Process < 0 || e.Type == history.Invoke || e.Op == history.Lost || e.Op == history.Crash {
			return false
		}
		before := *e
		change(e)
		return before.Resource != "" || e.Resource == "" || before.Op == history.Access
	}
}

func declaration(change func(e *history.Event)) func(*history.History, int) bool {
	return func(h *history.History, at int) bool {
		if h.Events[at].Op != history.Declare {
			return false
		}
		change(&h.Events[at])
		return true
	}
}

// TestMistakesAreRefused makes one mistake in a history that a reader accepts.
func TestMistakesAreRefused(t *testing.T) {
	t.Parallel()
	g := oracle.NewGenerator(11)
	for name, mistake := range mistakes {
		for made := 0; made < 10; {
			h := g.Next()
			for at := range h.Events {
				wrong := &history.History{Events: slices.Clone(h.Events)}
				if !mistake(wrong, at) {
					continue
				}
				made++
				if _, err := history.ReadAll(strings.NewReader(oracle.Lines(wrong))); err == nil {
					t.Errorf("%s is accepted:\n%s", name, oracle.Lines(wrong))
				}
				break
			}
		}
	}
}
