package reports

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The intervals are those of published tables; none leaves 0 to 1, and none says that
// what was not seen can't be. Runs of one kind have an interval; of different kinds there is no common share.
func TestRates(t *testing.T) {
	for _, c := range []struct {
		seen, of  int
		low, high float64
	}{{0, 10, 0, 0.2775}, {1, 10, 0.0179, 0.4042}, {5, 10, 0.2366, 0.7634}, {10, 10, 0.7225, 1}, {29, 200, 0.1029, 0.2005}, {0, 0, 0, 1}} {
		r := Interval(c.seen, c.of)
		require.InDelta(t, c.low, r[0], 0.0005, "%v", r)
		require.InDelta(t, c.high, r[1], 0.0005, "%v", r)
	}
	run := JointRun{Topology: "single", Lock: "mutex", Kinds: []string{"double-grant"}}
	other := run
	other.Kinds = nil
	require.Equal(t, "1 of 2 (9 to 91 %)", ratesOf([]JointRun{run, other})[0].String())
	other.Lock = "redlock"
	require.Equal(t, "1 of 2", ratesOf([]JointRun{run, other})[0].String())
}

func TestFileName(t *testing.T) {
	require.Equal(t, "lock-1.a", fileName("lock-1.a"))
	for _, name := range []string{"shop/orders:7", "../../etc", "<b>\x00ä", strings.Repeat("x", 1000)} {
		require.Regexp(t, `^[A-Za-z0-9._-]{1,120}$`, fileName(name))
		require.NotEqual(t, fileName(name), fileName(name+"/"))
	}
}
