package locktests

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lockchaos/lockchaos/lock/redistest"
)

// rwModel is what a read-write lock should be.
type rwModel struct {
	grants, places map[string]bool // "read:<request>:<owner>"; true: not over
	marks          map[string]bool // of requests
	answers        map[string]int  // to releases, in the marks
}

// live counts the grants or places that are not over, of a side, an owner, or
// of all others than that.
func (m rwModel) live(of map[string]bool, side, owner string, others bool) int {
	n := 0
	for field, alive := range of {
		parts := strings.Split(field, ":")
		if alive && (side == "" || parts[0] == side) && (owner == "" || (parts[2] == owner) != others) {
			n++
		}
	}
	return n
}

// open tells whether a reader, and a writer, that holds nothing would get in.
func (m rwModel) open() (reader, writer bool) {
	writes := m.live(m.grants, "write", "", false)
	return writes+m.live(m.places, "", "", false) == 0, m.live(m.grants, "", "", false) == 0
}

// acquire is the answer to a request, and what it changes.
func (m rwModel) acquire(side, request, owner string, place bool) (code, holds int) {
	field := side + ":" + request + ":" + owner
	own := func(side string) int { return m.live(m.grants, side, owner, false) }
	others := func(side string) int { return m.live(m.grants, side, owner, true) }
	may := false
	switch {
	case m.marks[request]:
		return 0, 0
	case m.grants[field]:
		may = true
	case side == "read":
		may = own("") > 0 || others("write")+m.live(m.places, "", "", false) == 0
	case own("write") == 0 && own("read") > 0:
		return -1, 0
	default:
		may = others("") == 0
	}
	switch {
	case may:
		m.grants[field] = true
		delete(m.places, "wait:"+request+":"+owner)
		return 1, own(side)
	case place:
		m.places["wait:"+request+":"+owner] = true
	}
	return 0, 0
}

// release is the answer to a release, and what it changes.
func (m rwModel) release(side, request, owner string, withdraw bool) int {
	if m.marks[request] {
		return m.answers[request]
	}
	field := side + ":" + request + ":" + owner
	held := m.grants[field]
	m.marks[request] = held || withdraw
	delete(m.grants, field)
	if side == "write" {
		delete(m.places, "wait:"+request+":"+owner)
	}
	if held {
		m.answers[request] = 1
	}
	return m.answers[request]
}

// rwBase is what the score of a grant or place is above its end.
func rwBase(member string) int64 {
	kind, _, _ := strings.Cut(member, ":")
	return map[string]int64{"write": 2e15, "wait": 4e15}[kind]
}

// Random requests, also repeated, late and out of order, while leases end at
// random: each is answered as the model says, changes no end but its own, and
// wakes those who could go on after it and couldn't before.
func TestReadWriteLockIsLikeItsModel(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	ctx := t.Context()
	acquire, extend, release := script(t, "rw_acquire"), script(t, "rw_extend"), script(t, "rw_release")
	force, inspect := script(t, "rw_force"), script(t, "rw_inspect")
	sub := rdb.PSubscribe(ctx, "*")
	defer func() { require.NoError(t, sub.Close()) }()
	_, err := sub.Receive(ctx)
	require.NoError(t, err)
	// messages are those published since it was called last.
	messages := func() (all map[string]string) {
		require.NoError(t, rdb.Publish(ctx, "end", "").Err())
		all = map[string]string{}
		for {
			m, err := sub.ReceiveMessage(ctx)
			require.NoError(t, err)
			if m.Channel == "end" {
				return all
			}
			all[m.Channel] = m.Payload
		}
	}
	const key = "lock:{orders}"
	minute := long.Milliseconds()
	mark := func(request string) string { return key + ":released:" + request }
	type id struct{ side, request, owner string }
	rapid.Check(t, func(t *rapid.T) {
		require.NoError(t, rdb.FlushAll(ctx).Err())
		messages()
		m := rwModel{map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]int{}}
		var requests []id
		old := func(t *rapid.T) id {
			if len(requests) == 0 {
				t.Skip("nothing was asked for")
			}
			return rapid.SampledFrom(requests).Draw(t, "request")
		}
		// ends are the grants and places that aren't over.
		ends := func() map[string]int64 {
			all := map[string]int64{}
			for _, z := range rdb.ZRangeWithScores(ctx, key, 0, -1).Val() {
				member, _ := z.Member.(string)
				if n := int64(z.Score) - rwBase(member); n > 1 {
					all[member] = n
				}
			}
			return all
		}
		// step does something, and checks what it changed beyond those fields and
		// whom it woke.
		step := func(t *rapid.T, do func(), own ...string) {
			before := ends()
			reader, writer := m.open()
			do()
			after := ends()
			for _, f := range own {
				delete(before, f)
				delete(after, f)
			}
			if !maps.Equal(before, after) {
				t.Fatalf("the ends were %v and are %v", before, after)
			}
			woken := messages()
			readerNow, writerNow := m.open()
			check := func(who, message string, was, is bool) {
				got, ok := woken[key+":"+who]
				if (is && !was && !ok) || (ok && !is) || (ok && got != message) {
					t.Fatalf("%s may go on: %v, and before: %v; the message was %q", who, is, was, got)
				}
			}
			check("readers", "all", reader, readerNow)
			check("writers", "1", writer, writerNow)
		}
		ask := func(t *rapid.T, r id) {
			place := r.side == "write" && rapid.Bool().Draw(t, "preferred")
			stay := int64(0)
			if place {
				stay = minute
			}
			step(t, func() {
				// What is in the way of a request that is refused, and for how long.
				last, before := int64(0), rdb.Time(ctx).Val().UnixMilli()
				for member, n := range ends() {
					parts := strings.Split(member, ":")
					if parts[0] == "wait" && r.side == "write" || parts[0] == "read" && r.side == "read" || parts[0] != "wait" && parts[2] == r.owner {
						continue
					}
					last = max(last, n)
				}
				reply, err := acquire.Run(ctx, rdb, []string{key, mark(r.request)}, r.side, r.request, r.owner, minute, stay).Int64Slice()
				require.NoError(t, err)
				code, holds := m.acquire(r.side, r.request, r.owner, place)
				if int(reply[0]) != code || (code == 1 && int(reply[1]) != holds) {
					t.Fatalf("the answer to %v is %v; want %d, %d", r, reply, code, holds)
				}
				after := rdb.Time(ctx).Val().UnixMilli()
				if code == 0 && !m.marks[r.request] && (reply[1] < last-after || reply[1] > last-before) {
					t.Fatalf("a client is in the way of %v for %d ms; want %d to %d", r, reply[1], last-after, last-before)
				}
			}, r.side+":"+r.request+":"+r.owner, "wait:"+r.request+":"+r.owner)
		}
		t.Repeat(map[string]func(*rapid.T){
			"ask": func(t *rapid.T) {
				r := id{
					rapid.SampledFrom([]string{"read", "write"}).Draw(t, "side"), strconv.Itoa(len(requests)),
					rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "owner"),
				}
				requests = append(requests, r)
				ask(t, r)
			},
			"ask again": func(t *rapid.T) { ask(t, old(t)) },
			"extend": func(t *rapid.T) {
				r := old(t)
				field := r.side + ":" + r.request + ":" + r.owner
				d := rapid.SampledFrom([]int64{minute / 2, minute, 2 * minute}).Draw(t, "by")
				step(t, func() {
					was := ends()[field]
					ok, err := extend.Run(ctx, rdb, []string{key}, field, d).Bool()
					require.NoError(t, err)
					if ok != m.grants[field] {
						t.Fatalf("extend %v: %v", r, ok)
					}
					now := rdb.Time(ctx).Val().UnixMilli()
					if is := ends()[field]; ok && (is > max(now+d, was) || is < was || is < now+d/2) {
						t.Fatalf("extend by %d at %d: from %d to %d", d, now, was, is)
					}
				}, field)
			},
			"release": func(t *rapid.T) {
				r := old(t)
				withdraw := rapid.Bool().Draw(t, "withdraw")
				step(t, func() {
					n, err := release.Run(ctx, rdb, []string{key, mark(r.request)},
						r.side, r.request, r.owner, minute, key+":readers", key+":writers", intOf(withdraw)).Int()
					require.NoError(t, err)
					if want := m.release(r.side, r.request, r.owner, withdraw); n != want {
						t.Fatalf("release %v: %d; want %d", r, n, want)
					}
				}, r.side+":"+r.request+":"+r.owner, "wait:"+r.request+":"+r.owner)
			},
			"a lease ends": func(t *rapid.T) {
				members := slices.Sorted(maps.Keys(ends()))
				if len(members) == 0 {
					t.Skip("there is none")
				}
				field := rapid.SampledFrom(members).Draw(t, "member")
				require.NoError(t, rdb.ZAdd(ctx, key, redis.Z{Member: field, Score: float64(rwBase(field) + 1)}).Err())
				for _, of := range []map[string]bool{m.grants, m.places} {
					if of[field] {
						of[field] = false
					}
				}
			},
			"force": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "once in ten") > 0 {
					t.Skip("not now")
				}
				step(t, func() {
					was, err := force.Run(ctx, rdb, []string{key}, key+":readers", key+":writers").Bool()
					require.NoError(t, err)
					if was != (m.live(m.grants, "", "", false) > 0) {
						t.Fatalf("forced: %v", was)
					}
					clear(m.grants)
				}, slices.Collect(maps.Keys(m.grants))...)
			},
			"": func(t *rapid.T) {
				all := ends()
				var want []string
				for _, of := range []map[string]bool{m.grants, m.places} {
					for f, alive := range of {
						if alive {
							want = append(want, f)
						}
					}
				}
				slices.Sort(want)
				if got := slices.Sorted(maps.Keys(all)); !slices.Equal(got, want) {
					t.Fatalf("the lock has %v; want %v", got, want)
				}
				last := int64(0)
				for _, n := range all {
					last = max(last, n)
				}
				if end := rdb.PExpireTime(ctx, key).Val().Milliseconds(); end == -1 || end < last {
					t.Fatalf("the key ends at %d, and the last of it at %d", end, last)
				}
				reads := map[string]int64{}
				for _, z := range rdb.ZRangeWithScores(ctx, key, 0, -1).Val() {
					member, _ := z.Member.(string)
					if owner, isCount := strings.CutPrefix(member, "reads:"); isCount {
						reads[owner] += int64(z.Score)
					} else if parts := strings.Split(member, ":"); parts[0] == "read" {
						reads[parts[2]]++
					}
				}
				for owner, n := range reads {
					if n != 0 {
						t.Fatalf("%s has %d reads more than are counted", owner, n)
					}
				}
				owners := map[string]bool{}
				for f, alive := range m.grants {
					if parts := strings.Split(f, ":"); alive && parts[0] == "read" {
						owners[parts[2]] = true
					}
				}
				for _, owner := range []string{"a", "b", "c"} {
					n, err := inspect.Run(ctx, rdb, []string{key}, owner).Int64Slice()
					require.NoError(t, err)
					count := func(side, owner string) int64 { return int64(m.live(m.grants, side, owner, false)) }
					got := []int64{int64(len(owners)), count("write", ""), count("read", owner), count("write", owner)}
					if !slices.Equal(n[:4], got) || (n[4] > 0) != (count("", "") > 0) {
						t.Fatalf("the lock tells of %s %v; want %v", owner, n, got)
					}
				}
			},
		})
	})
}
