package say_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/internal/say"
)

func TestSpan(t *testing.T) {
	for _, tt := range []struct {
		give time.Duration
		want string
	}{
		{0, "0 ms"},
		{740, "740 ns"},
		{840 * time.Microsecond, "840 µs"},
		{3140 * time.Microsecond, "3.1 ms"},
		{9960 * time.Microsecond, "9.9 ms"},
		{415 * time.Millisecond, "415 ms"},
		{1240 * time.Millisecond, "1,240 ms"},
		{28698 * time.Millisecond, "28.698 s"},
		{30 * time.Second, "30 s"},
		{-5 * time.Millisecond, "-5 ms"},
		{math.MinInt64, "-9223372036.854 s"},
	} {
		require.Equal(t, tt.want, say.Span(tt.give))
	}
	require.Equal(t, "2 s", say.Length(2*time.Second))
	require.Equal(t, "1.716 s", say.Instant(1716*time.Millisecond))
	require.Equal(t, "22.629 s", say.Instant(22_629_800*time.Microsecond), "rounded down, as by the checker")
	require.Equal(t, "1,453 ms", say.Span(1_453_900*time.Microsecond))
}

func TestNumbersAndNames(t *testing.T) {
	require.Equal(t, "1 grant", say.Count(1, "grant"))
	require.Equal(t, "2,310 grants", say.Count(2310, "grant"))
	require.Equal(t, "2 properties", say.Count(2, "property"))
	require.Equal(t, "0 accesses", say.Count(0, "access"))
	require.Equal(t, "-1,234,567", say.Thousands(-1234567))
	require.Equal(t, "-123", say.Thousands(-123))
	require.Equal(t, "a, b and c", say.List([]string{"a", "b", "c"}))
	require.Negative(t, say.Natural("zone-a.3", "zone-a.12"))
	require.Negative(t, say.Natural("zone-a.12", "zone-b.1"))
	require.Zero(t, say.Natural("a", "a"))
}

func TestTables(t *testing.T) {
	t.Parallel()
	require.Equal(t, "A     B\nlong  b\nc\n", say.Aligned([][]string{{"A", "B"}, {"long", "b"}, {"c", ""}}))
	require.Equal(t, "| a | b\\|c |\n", say.Row("a", "b|c"))
}
