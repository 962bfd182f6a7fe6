package reports_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports"
)

// marksOf are the titles of the marks above a drawing of a whole run.
func marksOf(page string) []string {
	var titles []string
	for _, m := range regexp.MustCompile(`class="t-bad-mark" d="[^"]*"><title>([^<]*)`).FindAllStringSubmatch(page, -1) {
		titles = append(titles, m[1])
	}
	return titles
}

// The violations of a property come after all those of another, and are marked all the
// same. Those too close to be told apart share a mark with their number.
func TestEveryViolationIsMarked(t *testing.T) {
	marks := marksOf(htmlOf(t, twoCauses()))
	require.NotEmpty(t, marks)
	require.Regexp(t, `[Pp]remature.loss(es)? at 0\.62|violations from 0\.62`, marks[0], "the failover comes first")
	shared := 0
	for _, m := range marks {
		if n, _, several := strings.Cut(m, " violations from "); several {
			number, err := strconv.Atoi(n)
			require.NoError(t, err)
			shared = max(shared, number)
		}
	}
	require.Greater(t, shared, 1, marks)
}

// busyLanes is a run with a client that asks often, and one that does not.
func busyLanes() reports.Input {
	s := &script{}
	for i := range 200 {
		at := 10 * float64(i)
		s.acquire(1, "orders", fmt.Sprintf("zone-a.1#%d", i), "redis-1", at, at+4, 300)
		s.release(1, "orders", fmt.Sprintf("zone-a.1#%d", i), "redis-1", at+7, at+8)
		if i%10 == 0 {
			s.attempt(2, history.Acquire, "orders", fmt.Sprintf("zone-b.1#%d", i), at+4.5, at+6, history.Fail, "lock: not acquired")
			s.attempt(1, history.Acquire, "orders", fmt.Sprintf("zone-a.1#r%d", i), at+8.5, at+9, history.Fail, "lock: not acquired")
		}
	}
	s.acquire(2, "orders", "zone-b.1#h", "redis-1", 2100, 2104, 300)
	s.release(2, "orders", "zone-b.1#h", "redis-1", 2200, 2201)
	return judged(run(), s.history())
}

// A busy lane shows its refusals as others do, and all lanes are drawn by one rule.
func TestBusyLanesShowRefusals(t *testing.T) {
	_, drawing, found := strings.Cut(withoutCode(htmlOf(t, busyLanes())), "Timeline of the whole run")
	require.True(t, found)
	drawing, _, _ = strings.Cut(drawing, "</svg>")
	require.True(t, strings.Contains(drawing, "t-hold t-d4"), "shares are drawn")
	require.Equal(t, 2, strings.Count(drawing, `class="t-fail"`), "both lanes show their refusals")
	require.Equal(t, 2, strings.Count(drawing, `class="t-wait"`), "and how long they waited")
	require.False(t, strings.Contains(drawing, `class="t-hold" x=`), "no lane is drawn hold by hold beside one that is not")
}

// Marks that mean different things differ in their form, and not in their colour alone: a
// refusal and a violation, an access and one that proves a violation.
func TestMarksDifferInForm(t *testing.T) {
	s := &script{}
	s.declare("orders")
	s.acquire(1, "orders", "a#1", "redis-1", 10, 11, 1000)
	s.acquire(2, "orders", "b#1", "redis-1", 20, 21, 1000)
	s.access(1, "orders", "a#1", "stock", "40>41", 30, 31)
	s.access(1, "orders", "a#1", "stock", "41>42", 40, 41)
	s.access(2, "orders", "b#1", "stock", "41>42", 50, 51)
	s.attempt(3, history.Acquire, "orders", "c#1", 60, 70, history.Fail, "not acquired")
	s.observe(30000, "redis-1", history.ObserveEpoch, "1")
	in := judged(run(), s.history())
	page := withoutCode(htmlOf(t, in))
	forms := func(class string) map[string]bool {
		found := map[string]bool{}
		for _, m := range regexp.MustCompile(`<path class="`+class+`"[^>]* d="([^"]+)"`).FindAllStringSubmatch(page, -1) {
			found[regexp.MustCompile(`[-\d. ]+`).ReplaceAllString(m[1], "")] = true
		}
		require.NotEmpty(t, found, class)
		return found
	}
	for _, pair := range [][2]string{{"t-fail", "t-bad-mark"}, {"t-access", "t-access t-bad"}} {
		other := forms(pair[1])
		for form := range forms(pair[0]) {
			require.NotContains(t, other, form, "%v", pair)
		}
	}
	require.Contains(t, page, "access that proves a violation")
}

// A fault that begins close to the one before shares its label above the plots: no number is
// left out.
func TestPlotsNumberEveryFault(t *testing.T) {
	numbers := func(times ...float64) []string {
		s := &script{}
		s.declare("orders")
		for i := range 40 {
			at := 5000 * float64(i)
			s.acquire(1, "orders", fmt.Sprintf("a#%d", i), "redis-1", at, at+1, 300)
			s.release(1, "orders", fmt.Sprintf("a#%d", i), "redis-1", at+3, at+4)
		}
		for _, at := range times {
			s.fault(history.Inject, "reset", "zone-a>redis-1", at, at+1, history.OK, "1 connection reset", "")
		}
		_, plot, found := strings.Cut(htmlOf(t, judged(run(), s.history())), `>Latency</text>`)
		require.True(t, found)
		plot, _, _ = strings.Cut(plot, "</svg>")
		var all []string
		for _, m := range regexp.MustCompile(`class="t-tick(?:-left| end)" [^>]*>(\d[^<]*)</text>`).FindAllStringSubmatch(plot, -1) {
			if !strings.HasSuffix(m[1], " s") {
				all = append(all, strings.ReplaceAll(m[1], "&gt;", ">"))
			}
		}
		return all
	}
	require.Equal(t, []string{"1, 2", "3 reset zone-a>redis-1"}, numbers(20000, 20200, 90000))
	require.Equal(t, []string{"1–4", "5 reset zone-a>redis-1"}, numbers(20000, 20200, 20400, 20600, 90000))
	require.Equal(t, []string{"1 reset zone-a>redis-1", "2, 3"}, numbers(20000, 194000, 194500), "also at the right edge")
}
