package locktests

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/memory"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

func multi(t *testing.T, members ...lock.Member) *lock.MultiLock {
	t.Helper()
	m, err := lock.NewMultiLock(members...)
	require.NoError(t, err)
	return m
}

// asOne is a MultiLock as a lock, which has one name.
func asOne(t *testing.T, members ...lock.Member) lock.Locker {
	t.Helper()
	m := multi(t, members...)
	return lock.LockerFunc(func(ctx context.Context, _ string, o lock.Options) (*lock.Hold, error) { return m.Acquire(ctx, o) })
}

// named are members of one Locker.
func named(l lock.Locker, names ...string) []lock.Member {
	var members []lock.Member
	for _, name := range names {
		members = append(members, lock.Member{Locker: l, Name: name})
	}
	return members
}

func TestMultiLockOfMembersThatDoNotSuit(t *testing.T) {
	l := memory.New()
	tests := []struct {
		name string
		give []lock.Member
		want string
	}{
		{"none", nil, "give at least one"},
		{"no locker", []lock.Member{{Name: "a"}}, `member "a" has no Locker`},
		{"no name", named(l, "a", ""), "a member without a name"},
		{"one twice", named(l, "a", "b", "a"), `member "a" is there twice`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := lock.NewMultiLock(tt.give...)
			require.ErrorContains(t, err, tt.want)
		})
	}
	m := multi(t, named(l, "b", "a")...)
	require.Equal(t, "a+b", m.Name())
	for _, o := range []lock.Options{{Lease: -1}, {Wait: -1}} {
		_, err := m.Acquire(t.Context(), o)
		require.Error(t, err)
		require.NotErrorIs(t, err, lock.ErrNotAcquired)
	}
}

// A caller that lists the same locks in another order doesn't wait in a circle
// (redisson #467, #1160: its MultiLock takes them in the order given).
func TestMultiLocksInAnyOrderDoNotDeadlock(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	orders := [][]string{{"a", "b", "c"}, {"c", "b", "a"}, {"b", "c", "a"}, {"c", "a"}, {"b", "a"}}
	errs := make([]error, len(orders))
	var callers sync.WaitGroup
	for i, names := range orders {
		m := multi(t, named(open(t, s, lock.Config{}), names...)...)
		callers.Go(func() {
			for range 20 {
				h, err := m.Acquire(t.Context(), within(lock.Forever, lock.Options{Lease: long}))
				if err != nil {
					errs[i] = err
					return
				}
				errs[i] = errors.Join(errs[i], h.Release(t.Context()))
			}
		})
	}
	callers.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	require.Empty(t, keysLeft(t, s.Client(t, nil)))
}

// In virtual time, with locks in memory: their leases have no margin.
func TestMultiLockInTime(t *testing.T) {
	const second = time.Second
	type bubble struct {
		*testing.T

		l     *memory.Locker
		begin time.Time
	}
	hold := func(t bubble, name string, lease time.Duration) *lock.Hold {
		h, err := t.l.Acquire(t.Context(), name, lock.Options{Owner: "other", Lease: lease})
		require.NoError(t, err)
		return h
	}
	tests := map[string]func(bubble){
		"the age of the first counts": func(t bubble) {
			hold(t, "b", 4*second)
			h, err := multi(t.T, named(t.l, "a", "b")...).Acquire(t.Context(), within(lock.Forever, lock.Options{Lease: 10 * second}))
			require.NoError(t, err)
			require.Equal(t, 4*second, time.Since(t.begin))
			require.Equal(t, 10*second, h.Lease().Expires.Sub(t.begin))
			require.Equal(t, 6*second, lostAfter(t.T, h))
		},
		"a lease that runs out on the way is asked for anew": func(t bubble) {
			hold(t, "b", 25*second)
			h, err := multi(t.T, named(t.l, "a", "b")...).Acquire(t.Context(), within(lock.Forever, lock.Options{Lease: 10 * second}))
			require.NoError(t, err)
			require.Equal(t, 25*second, time.Since(t.begin))
			require.Equal(t, 30*second, h.Lease().Expires.Sub(t.begin), "of the third round, which began at 20s")
			require.NoError(t, h.Release(t.Context()))
		},
		"one wait for all": func(t bubble) {
			hold(t, "a", 4*second)
			hold(t, "b", 8*second)
			_, err := multi(t.T, named(t.l, "a", "b")...).Acquire(t.Context(), within(7*second, lock.Options{Lease: 10 * second}))
			require.ErrorIs(t, err, lock.ErrNotAcquired)
			require.Equal(t, 7*second, time.Since(t.begin))
			require.NoError(t, hold(t, "a", second).Release(t.Context()), "it was given back")
		},
		"nothing is kept longer than the lease while another is waited for": func(t bubble) {
			hold(t, "b", time.Hour)
			asked := []time.Duration{}
			seen := lock.LockerFunc(func(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
				asked = append(asked, o.Lease)
				return t.l.Acquire(ctx, name, o)
			})
			_, err := multi(t.T, named(seen, "a", "b")...).Acquire(t.Context(), within(25*second, lock.Options{Lease: 10 * second}))
			require.ErrorIs(t, err, lock.ErrNotAcquired)
			require.Equal(t, 25*second, time.Since(t.begin))
			require.LessOrEqual(t, slices.Max(asked), 10*second, "no member is taken for longer than was asked")
			require.NoError(t, hold(t, "a", second).Release(t.Context()), "it was given back")
		},
		"a first lease that ends before the last grant arrives": func(t bubble) {
			slow := lock.LockerFunc(func(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
				time.Sleep(12 * second)
				return t.l.Acquire(ctx, name, o)
			})
			m := multi(t.T, lock.Member{Locker: t.l, Name: "a"}, lock.Member{Locker: slow, Name: "b"})
			_, err := m.Acquire(t.Context(), lock.Options{Lease: 10 * second})
			require.ErrorIs(t, err, lock.ErrNotAcquired)
			require.ErrorContains(t, err, "ran out")
			require.NoError(t, hold(t, "b", second).Release(t.Context()), "it was given back")
		},
		"the sooner end counts": func(t bubble) {
			h, err := multi(t.T, named(t.l, "a", "b")...).Acquire(t.Context(), within(lock.Forever, lock.Options{Lease: 10 * second}))
			require.NoError(t, err)
			require.NoError(t, h.Extend(t.Context(), 5*second))
			require.Equal(t, 5*second, time.Until(h.Lease().Expires))
			require.NoError(t, h.Extend(t.Context(), 20*second))
			require.Equal(t, 20*second, lostAfter(t.T, h))
			synctest.Wait()
			require.ErrorIs(t, h.Extend(t.Context(), second), lock.ErrNotHeld)
			require.ErrorIs(t, h.Release(t.Context()), lock.ErrNotHeld)
		},
		"one that can't be extended": func(t bubble) {
			failing := lock.LockerFunc(func(_ context.Context, _ string, o lock.Options) (*lock.Hold, error) {
				return holdOf(o.Lease, &keeper{
					extend:  func(time.Duration) (time.Time, error) { return time.Time{}, errLink },
					release: func() error { return nil },
				}), nil
			})
			m := multi(t.T, lock.Member{Locker: t.l, Name: "a"}, lock.Member{Locker: failing, Name: "b"})
			h, err := m.Acquire(t.Context(), within(lock.Forever, lock.Options{Lease: 10 * second}))
			require.NoError(t, err)
			err = h.Extend(t.Context(), 20*second)
			require.ErrorIs(t, err, errLink)
			require.NotErrorIs(t, err, lock.ErrNotHeld)
			require.Equal(t, 10*second, lostAfter(t.T, h))
			require.NoError(t, h.Release(t.Context()))
		},
		"without an end": func(t bubble) {
			h, err := multi(t.T, named(t.l, "a", "b")...).Acquire(t.Context(), within(lock.Forever, lock.Options{}))
			require.NoError(t, err)
			time.Sleep(1000 * time.Hour)
			require.False(t, isLost(h))
			require.True(t, h.Lease().Expires.IsZero())
			require.NoError(t, h.Release(t.Context()))
			require.False(t, isLost(h))
		},
		"some without an end": func(t bubble) {
			leased := lock.LockerFunc(func(context.Context, string, lock.Options) (*lock.Hold, error) {
				return holdOf(10*second, &keeper{release: func() error { return nil }}), nil
			})
			m := multi(t.T, lock.Member{Locker: leased, Name: "a"}, lock.Member{Locker: t.l, Name: "b"})
			h, err := m.Acquire(t.Context(), within(lock.Forever, lock.Options{}))
			require.NoError(t, err)
			require.Equal(t, 10*second, lostAfter(t.T, h))
			require.NoError(t, h.Release(t.Context()))
		},
	}
	for name, run := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { run(bubble{t, memory.New(), time.Now()}) })
		})
	}
}

// Random sets of locks by a few owners: all of a set are granted if and only if
// no other client has any of them, and a refusal changes nothing.
func TestMultiLockAgainstAModel(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	c := open(t, s, lock.Config{})
	names := []string{"a", "b", "c", "d"}
	ctx := t.Context()
	rapid.Check(t, func(t *rapid.T) {
		require.NoError(t, rdb.FlushAll(ctx).Err())
		type taken struct {
			hold  *lock.Hold
			owner string
			names []string
		}
		var holds []taken
		count := func(name, owner string) (mine, others int) {
			for _, h := range holds {
				if slices.Contains(h.names, name) {
					if h.owner == owner {
						mine++
					} else {
						others++
					}
				}
			}
			return mine, others
		}
		for range rapid.IntRange(1, 15).Draw(t, "steps") {
			if len(holds) > 0 && rapid.Bool().Draw(t, "release") {
				i := rapid.IntRange(0, len(holds)-1).Draw(t, "hold")
				if err := holds[i].hold.Release(ctx); err != nil {
					t.Fatal(err)
				}
				holds = slices.Delete(holds, i, i+1)
			} else {
				owner := rapid.SampledFrom([]string{"x", "y"}).Draw(t, "owner")
				set := rapid.SliceOfNDistinct(rapid.SampledFrom(names), 1, 4, rapid.ID).Draw(t, "names")
				m, err := lock.NewMultiLock(named(c, set...)...)
				if err != nil {
					t.Fatal(err)
				}
				fewest, free := len(holds)+1, true
				for _, name := range set {
					mine, others := count(name, owner)
					fewest, free = min(fewest, mine+1), free && others == 0
				}
				h, err := m.Acquire(ctx, lock.Options{Owner: owner, Lease: time.Hour})
				switch {
				case !free:
					if !errors.Is(err, lock.ErrNotAcquired) {
						t.Fatalf("a set that is held in part: %v", err)
					}
				case err != nil:
					t.Fatal(err)
				case h.Lease().Holds != fewest:
					t.Fatalf("%d holds; want %d", h.Lease().Holds, fewest)
				default:
					holds = append(holds, taken{h, owner, set})
				}
			}
			for _, name := range names {
				x, _ := count(name, "x")
				y, _ := count(name, "y")
				if got := max(len(redistest.Fields(ctx, t, rdb, "lock:{"+name+"}"))-1, 0); got != x+y {
					t.Fatalf("%s has %d grants; want %d", name, got, x+y)
				}
			}
		}
	})
}

func ExampleMultiLock() {
	locks := memory.New() // any Lockers, on any servers
	accounts, err := lock.NewMultiLock(
		lock.Member{Locker: locks, Name: "account 7"},
		lock.Member{Locker: locks, Name: "account 3"},
	)
	if err != nil {
		return
	}
	ctx := context.Background()
	h, err := accounts.Acquire(ctx, within(time.Second, lock.Options{Lease: 10 * time.Second}))
	if err != nil {
		return
	}
	fmt.Println(h.Lease().Name)
	fmt.Println(h.Release(ctx))
	// Output:
	// account 3+account 7
	// <nil>
}

// The other members are given back where one panics, whichever call it is.
func TestMultiLockWithAMemberThatPanics(t *testing.T) {
	t.Parallel()
	in := memory.New()
	panics := func(h *lock.Hold, when string) *lock.Hold {
		return lock.NewHold(h.Lease(), &keeper{
			extend: func(time.Duration) (time.Time, error) { panic(when) },
			release: func() error {
				if when == "release" {
					panic(when)
				}
				return h.Release(context.Background())
			},
		})
	}
	for _, when := range []string{"acquire", "extend", "release"} {
		t.Run(when, func(t *testing.T) {
			bad := lock.LockerFunc(func(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
				if when == "acquire" {
					panic(when)
				}
				h, err := in.Acquire(ctx, name, o)
				return panics(h, when), err
			})
			m := multi(t, lock.Member{Locker: in, Name: "a"}, lock.Member{Locker: bad, Name: "b"}, lock.Member{Locker: in, Name: "c"})
			require.PanicsWithValue(t, when, func() {
				h, err := m.Acquire(t.Context(), lock.Options{Lease: long})
				require.NoError(t, err)
				defer func() { _ = h.Release(t.Context()) }()
				_ = h.Extend(t.Context(), long)
			})
			for _, name := range []string{"a", "c"} {
				h, err := in.Acquire(t.Context(), name, lock.Options{Lease: long})
				require.NoError(t, err, name)
				require.NoError(t, h.Release(t.Context()))
			}
		})
	}
}
