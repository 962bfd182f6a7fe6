package reports

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
)

// minComplaints is how many operations it takes for an error that most of them
// met to be the run's, and not theirs.
const minComplaints = 3

// dominantError says which error most operations of a kind met, if most met the
// same: of several kinds, that which most operations met. It is empty if none
// did. That a lock is held by another client is no such error.
func (m *model) dominantError() string {
	type tally struct {
		count   int
		example string
	}
	totals := map[history.Op]int{}
	errors := map[history.Op]map[string]*tally{}
	for i := range m.ops {
		op := &m.ops[i]
		kind, text := op.Invoke.Op, op.Complete.Error
		totals[kind]++
		if op.OK() || text == "" || op.Failed() && refusal(text) {
			continue
		}
		if errors[kind] == nil {
			errors[kind] = map[string]*tally{}
		}
		alike := withoutFigures(text)
		if errors[kind][alike] == nil {
			errors[kind][alike] = &tally{example: text}
		}
		errors[kind][alike].count++
	}
	most, words := 0, ""
	for _, name := range opNames() {
		kind := history.Op(name)
		for _, t := range errors[kind] {
			if t.count < minComplaints || 2*t.count <= totals[kind] || t.count <= most {
				continue
			}
			most = t.count
			words = fmt.Sprintf("%s of %s ended with the error “%s”", say.Thousands(int64(t.count)), say.Count(totals[kind], operationNoun(kind)), say.Shorten(say.OneLine(t.example), 120))
		}
	}
	return words
}

// redisError is how Redis begins an error: NOPERM, OOM, READONLY.
var redisError = regexp.MustCompile(`\b[A-Z]{3,}\b`)

// refusal reports whether an error is what a lock says by design.
func refusal(text string) bool {
	return !redisError.MatchString(text) && (strings.Contains(text, "not acquired") || strings.Contains(text, "not held"))
}

// withoutFigures makes errors alike that differ in their addresses and times
// only.
func withoutFigures(text string) string {
	var b strings.Builder
	figure := false
	for _, r := range text {
		if r >= '0' && r <= '9' {
			if !figure {
				b.WriteByte('#')
			}
			figure = true
			continue
		}
		figure = false
		b.WriteRune(r)
	}
	return b.String()
}

// operationNoun names an operation that is counted.
func operationNoun(op history.Op) string {
	switch op {
	case history.Acquire:
		return "request for a lock"
	case history.Extend:
		return "extension"
	default:
		return string(op)
	}
}
