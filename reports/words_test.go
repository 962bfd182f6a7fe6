package reports

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/history"
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

func TestCount(t *testing.T) {
	require.Equal(t, "1 grant", say.Count(1, "grant"))
	require.Equal(t, "2,310 grants", say.Count(2310, "grant"))
	require.Equal(t, "2 properties", say.Count(2, "property"))
	require.Equal(t, "0 accesses", say.Count(0, "access"))
	require.Equal(t, "-1,234,567", say.Thousands(-1234567))
	require.Equal(t, "-123", say.Thousands(-123))
	require.Equal(t, "a, b and c", say.List([]string{"a", "b", "c"}))
}

func TestTargetWords(t *testing.T) {
	top := history.Topology{Links: []history.Link{
		{Name: "r2>r1", Kind: "replication", From: "r2", To: "r1"}, {Name: "r3>r1", Kind: "replication", From: "r3", To: "r1"},
	}}
	for _, tt := range []struct{ give, what, were string }{
		{"", "the deployment", "was"},
		{"redis-1", "redis-1", "was"},
		{"{redis-1 zone-a}", "redis-1 and zone-a", "were"},
		{"zone-a>redis-1", "the link zone-a>redis-1", "was"},
		{"replication", "the replication links r2>r1 and r3>r1", "were"},
	} {
		what, were := targetWords(tt.give, top)
		require.Equal(t, [2]string{tt.what, tt.were}, [2]string{what, were})
	}
}

func TestNatural(t *testing.T) {
	require.Negative(t, say.Natural("zone-a.3", "zone-a.12"))
	require.Negative(t, say.Natural("zone-a.12", "zone-b.1"))
	require.Zero(t, say.Natural("a", "a"))
}

func TestAdapt(t *testing.T) {
	for give, want := range map[string]string{
		"redis-1 forgot its 1 keys":                                  "redis-1 forgot its 1 key",
		"redis-1 is 1m0s ahead of the true time":                     "redis-1 is 60 s ahead of the true time",
		"the 6th EVALSHA on zone-b>redis-2 was held back for 1.358s": "the 6th EVALSHA on zone-b>redis-2 was held back for 1,358 ms",
		"10 links slower by 31ms ± 5ms both":                         "10 links slower by 31 ms ± 5 ms both",
		"refusing for 184ms, answering for 255ms, and so on":         "refusing for 184 ms, answering for 255 ms, and so on",
		"5 links limited to 12708 bytes a second downstream":         "5 links limited to 12,708 bytes a second downstream",
		"orders-5s and 3rd, 12 masters, v1m0s, 0.5.3s":               "orders-5s and 3rd, 12 masters, v1m0s, 0.5.3s",
		"99999999999999999999h ahead":                                "99999999999999999999h ahead",
		"":                                                           "",
	} {
		require.Equal(t, want, adapt(give))
		require.Equal(t, want, adapt(want), "twice is as good as once")
	}
}

func TestByName(t *testing.T) {
	require.Equal(t, "client zone-a.5 held, client b asked, p3 did not",
		byName("p203 (owner zone-a.5#93) held, p1 (owner b) asked, p3 did not"))
}

// A deployment that is cut in two is told with its halves.
func TestHalves(t *testing.T) {
	d := mapped()
	var halves history.Topology
	halves.Name = "independent"
	halves.Nodes = []history.Node{{Name: "zone-a", Kind: "zone"}, {Name: "zone-b", Kind: "zone"}, {Name: "redis-1", Kind: "redis", Role: "master"}, {Name: "redis-2", Kind: "redis", Role: "master"}}
	for _, l := range [][2]string{{"zone-a", "redis-1"}, {"zone-a", "redis-2"}, {"zone-b", "redis-1"}, {"zone-b", "redis-2"}} {
		halves.Links = append(halves.Links, history.Link{Name: l[0] + ">" + l[1], Kind: "client", From: l[0], To: l[1]})
	}
	f := Fault{Name: "partition-halves", OK: true, Effects: []history.Effect{history.Isolates, history.Cuts}}
	require.Regexp(t, `: redis-\d and zone-[ab] on one side, redis-\d and zone-[ab] on the other$`, f.happened(halves))
	f.Target = "redis-1"
	require.NotContains(t, f.happened(halves), "on one side")
	cut := Fault{Name: "cut", OK: true, Effects: []history.Effect{history.Cuts}}
	require.NotContains(t, cut.happened(d.Run.Topology), "on one side")
}
