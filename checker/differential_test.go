package checker_test

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/checker/oracle"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/race"
)

// cases is how many random histories each differential test judges: a twentieth with the
// race detector or -short, and more where LOCKCHAOS_CASES says so.
func cases(t *testing.T, usual int) int {
	t.Helper()
	text := os.Getenv("LOCKCHAOS_CASES")
	switch {
	case text != "":
	case race.Enabled, testing.Short():
		return max(usual/20, 20)
	default:
		return usual
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	return n
}

func dump(h *history.History) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	for _, e := range h.Events {
		_ = enc.Encode(e)
	}
	return b.String()
}

// A tally counts the verdicts on which both engines agreed.
type tally struct{ valid, invalid, inexact int }

func (n *tally) compare(t *testing.T, seed uint64, h *history.History) {
	t.Helper()
	sweep, searched, exact := checker.Compare(t.Context(), h, "k")
	switch {
	case !exact:
		n.inexact++
	case searched != sweep:
		found := append(checker.MutualExclusion().Check(t.Context(), h).Violations,
			checker.Ownership().Check(t.Context(), h).Violations...)
		require.Failf(t, "the engines differ", "seed %d: the search says %s, the sweep %s: %+v\n%s",
			seed, searched, sweep, found, dump(h))
	case sweep == checker.Valid:
		n.valid++
	default:
		n.invalid++
	}
}

// show fails a test whose histories were all alike.
func (n *tally) show(t *testing.T) {
	t.Helper()
	t.Logf("valid %d, invalid %d, not compared %d", n.valid, n.invalid, n.inexact)
	all := n.valid + n.invalid + n.inexact
	require.Greater(t, n.valid, all/50, "too few valid histories")
	require.Greater(t, n.invalid, all/50, "too few invalid histories")
	require.Less(t, n.inexact, all/2, "too many histories that are not compared")
}

func source(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

// made is a small history of the oracle's generator, or one that a correct lock has made.
func made(seed uint64) *history.History {
	if rnd := source(seed); seed%3 == 0 {
		return simulate(rnd, 2+rnd.IntN(4), 20+rnd.IntN(60))
	}
	return oracle.NewGenerator(seed).Next()
}

func TestEnginesAgreeOnMutatedHistories(t *testing.T) {
	t.Parallel()
	var n tally
	for seed := range uint64(cases(t, 5_000)) {
		rnd := source(seed)
		h := simulate(rnd, 2+rnd.IntN(4), 10+rnd.IntN(40))
		mutate(rnd, h)
		n.compare(t, seed, h)
	}
	n.show(t)
}

// No correct lock may be rejected, by either engine.
func TestEnginesAcceptACorrectLock(t *testing.T) {
	t.Parallel()
	holds := 0
	for seed := range uint64(cases(t, 3_000)) {
		rnd := source(seed)
		h := simulate(rnd, 2+rnd.IntN(4), 20+rnd.IntN(60))
		sweep, searched, _ := checker.Compare(t.Context(), h, "k")
		if sweep != checker.Valid || searched != checker.Valid {
			found := append(checker.MutualExclusion().Check(t.Context(), h).Violations,
				checker.Ownership().Check(t.Context(), h).Violations...)
			require.Failf(t, "a correct lock was rejected", "seed %d: the search says %s, the sweep %s: %+v\n%s",
				seed, searched, sweep, found, dump(h))
		}
		holds += len(holding.Of(h))
	}
	require.Positive(t, holds)
}

// An order that explains a history is a proof: the search finds one, too. Of the
// histories of a correct lock, nearly all have the likeliest.
func TestALikelyOrderIsAProof(t *testing.T) {
	t.Parallel()
	likely, legal := 0, 0
	for seed := range uint64(cases(t, 2_000)) {
		h := made(seed)
		if h.Events[0].Lock != "k" {
			continue
		}
		found, searched := checker.Likely(t.Context(), h, "k")
		if found {
			require.Equal(t, checker.Valid, searched, "seed %d\n%s", seed, dump(h))
		}
		if searched == checker.Valid {
			legal++
			if found {
				likely++
			}
		}
	}
	t.Logf("%d of %d legal histories have the likeliest order", likely, legal)
	require.Greater(t, likely, legal*8/10)
}
