package checker_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/checker/oracle"
	"github.com/lockchaos/lockchaos/history"
)

// TestOracle compares the judge with the exhaustive search of package oracle,
// which is written from the documents and shares nothing with the judge, on
// random small histories of all kinds of locks. LOCKCHAOS_ORACLE is how many, and
// LOCKCHAOS_ORACLE_SEED, which is printed, makes the same ones again.
func TestOracle(t *testing.T) {
	t.Parallel()
	number, seed := fromEnv(t, "LOCKCHAOS_ORACLE", cases(t, 20_000)), fromEnv(t, "LOCKCHAOS_ORACLE_SEED", 1+rand.IntN(1<<20))
	t.Logf("LOCKCHAOS_ORACLE_SEED=%d", seed)
	var (
		mu     sync.Mutex
		wg     sync.WaitGroup
		counts = make(map[string]int)
		kinds  = make(map[string]int)
		least  = make(map[string]*history.History)
	)
	// The histories are the same on a machine with more cores.
	const batch = 500
	next := 0
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for {
				mu.Lock()
				from := next
				next += batch
				mu.Unlock()
				if from >= number {
					return
				}
				g := oracle.NewGenerator(uint64(seed)<<32 + uint64(from))
				for range min(batch, number-from) {
					h := g.Next()
					o := oracle.Judge(h)
					found := againstOracle(t.Context(), o, h)
					mu.Lock()
					for _, l := range o.Locks {
						counts[l.Mode+": "+l.Answer()]++
						if l.Answer() == "possible" && len(l.Doubts) == 0 {
							counts[l.Mode+": possible, and to be called valid"]++
						}
					}
					for _, d := range found {
						kind := d.Property + ": " + d.Text
						kinds[kind]++
						if least[kind] == nil || len(least[kind].Events) > len(h.Events) {
							least[kind] = h
						}
					}
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	for _, answer := range slices.Sorted(maps.Keys(counts)) {
		t.Logf("%6d %s", counts[answer], answer)
	}
	t.Logf("%6d histories, %d kinds of disagreements", number, len(kinds))
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		small := oracle.Shrink(least[kind], func(h *history.History) bool {
			o := oracle.Judge(h)
			return slices.ContainsFunc(againstOracle(t.Context(), o, h), func(d oracle.Difference) bool {
				return d.Property+": "+d.Text == kind
			})
		})
		t.Errorf("%d times: %s\n%s%s", kinds[kind], kind, oracle.Lines(small), verdictLines(t.Context(), small))
	}
}

// TestOracleOnTheCorpus_NoRace compares the two on the corpus as well.
func TestOracleOnTheCorpus_NoRace(t *testing.T) {
	t.Parallel()
	for _, file := range corpusFiles(t) {
		if strings.Contains(file, "-unit") || strings.Contains(file, "duration") || strings.Contains(file, "milliseconds") {
			continue // of which the oracle knows nothing: times are what they say
		}
		h := corpusHistory(t, file)
		o := oracle.Judge(h)
		for _, d := range againstOracle(t.Context(), o, h) {
			t.Errorf("%s: %s: %s", file, d.Property, d.Text)
		}
	}
}

func corpusFiles(t *testing.T) []string {
	t.Helper()
	var files []string
	for _, verdict := range []string{"valid", "invalid", "unknown"} {
		entries, err := os.ReadDir("testdata/" + verdict)
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries {
			files = append(files, "testdata/"+verdict+"/"+entry.Name())
		}
	}
	return files
}

func corpusHistory(t *testing.T, file string) *history.History {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h, err := history.ReadAll(f)
	if err != nil {
		t.Fatal(file, err)
	}
	return h
}

// againstOracle is what a report on the history says otherwise than the oracle.
func againstOracle(ctx context.Context, o *oracle.Opinion, h *history.History) []oracle.Difference {
	findings := findingsOf(checker.Check(ctx, h))
	differences := o.Compare(findings, false)
	if _, differ := findings["engines-agree"]; differ {
		differences = append(differences, oracle.Difference{Property: "engines-agree", Text: "the engines differ"})
	}
	return differences
}

// verdictLines is the report on a history, in lines.
func verdictLines(ctx context.Context, h *history.History) string {
	var b strings.Builder
	for _, result := range checker.Check(ctx, h).Results {
		fmt.Fprintf(&b, "  %s: %s: %s\n", result.Name, result.Verdict, result.Summary)
	}
	return b.String()
}

// fromEnv is the number in an environment variable.
func fromEnv(tb testing.TB, name string, otherwise int) int {
	tb.Helper()
	value := os.Getenv(name)
	if value == "" {
		return otherwise
	}
	n, err := strconv.Atoi(value)
	if err != nil {
		tb.Fatalf("%s: %v", name, err)
	}
	return n
}
