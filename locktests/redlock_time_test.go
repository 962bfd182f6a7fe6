package locktests

import (
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/lock"
)

const (
	refusal = "*2\r\n:0\r\n:1000\r\n"
	// margin is what is left out of a lease of 30s.
	margin = 302 * time.Millisecond
)

// inBubble runs a test with a Redlock on servers in virtual time. Its watchdog
// has a lease of 30s, a server has 50ms, and a waiter pauses for 100ms.
func inBubble(t *testing.T, servers int, run func(t *testing.T, f []*fake, r *lock.Redlock, e *events)) {
	t.Helper()
	withFakes(t, servers, func(t *testing.T, f []*fake, clients []redis.UniversalClient) {
		t.Helper()
		e := &events{}
		r, err := lock.NewRedlock(clients, lock.RedlockConfig{Observer: e})
		require.NoError(t, err)
		defer r.Close()
		run(t, f, r, e)
	})
}

// after delays the answers of a server.
func after(delay time.Duration, answer func(string) string) func(string) string {
	return func(script string) string {
		time.Sleep(delay)
		return answer(script)
	}
}

func refuseAll(script string) string {
	if script == "acquire" {
		return refusal
	}
	return no
}

func broken(string) string { return readOnly }

func TestRedlockValidityCountsFromBeforeTheRound(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, f []*fake, r *lock.Redlock, e *events) {
		t.Helper()
		for i, delay := range []time.Duration{0, 40, 10, 20, 30} {
			f[i].answers(after(delay*time.Millisecond, allGood))
		}
		begin := time.Now()
		h := acquire(t, r, "a", 30*time.Second)
		require.Equal(t, 20*time.Millisecond, time.Since(begin), "the third answer decides")
		require.Equal(t, 30*time.Second-margin, h.Lease().Expires.Sub(begin))
		require.Equal(t, 20*time.Millisecond, e.list()[0].Took)
		begin = time.Now()
		require.NoError(t, h.Extend(t.Context(), time.Minute))
		require.Equal(t, 20*time.Millisecond, time.Since(begin))
		require.Equal(t, time.Minute-602*time.Millisecond, h.Lease().Expires.Sub(begin))
		require.NoError(t, h.Release(t.Context()))
	})
}

func TestRedlockGivesAServerItsTimeAndNoMore(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, f []*fake, r *lock.Redlock, _ *events) {
		t.Helper()
		f[0].answers(after(time.Hour, allGood))
		f[1].answers(after(time.Hour, allGood))
		begin := time.Now()
		h := acquire(t, r, "a", 30*time.Second)
		require.Zero(t, time.Since(begin), "a minority that is stuck costs nothing")
		require.NoError(t, h.Release(t.Context()))
		require.Zero(t, time.Since(begin))

		f[2].answers(after(time.Hour, allGood))
		_, err := r.Acquire(t.Context(), "orders", lock.Options{Lease: time.Minute})
		require.ErrorContains(t, err, "2 said yes and 0 no; fake:")
		for _, server := range []string{"fake:0", "fake:1", "fake:2"} { // in the order of their ends
			require.ErrorContains(t, err, server+": no answer within 50ms")
		}
		require.NotErrorIs(t, err, lock.ErrNotAcquired)
		require.Equal(t, 50*time.Millisecond, time.Since(begin))
	})
}

// Once the Redlock is closed the process may be about to end, so a release awaits all servers, and not a majority alone.
func TestRedlockShutdownReleasesOnAllServers(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, f []*fake, r *lock.Redlock, _ *events) {
		t.Helper()
		acquire(t, r, "a", 30*time.Second)
		synctest.Wait() // until the third server has granted it, too
		f[2].answers(after(40*time.Millisecond, allGood))
		begin := time.Now()
		require.NoError(t, r.Shutdown(t.Context()))
		require.Equal(t, 40*time.Millisecond, time.Since(begin))
	})
}

// A round after which it isn't known whether something is left makes the refusal
// of a later one indefinite, unless that one is by a majority.
func TestRedlockRemembersItsDoubts(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		last []func(string) string
		want bool
	}{
		{"given back", []func(string) string{allGood, refuseAll, broken}, false},
		{"refused by a majority", []func(string) string{refuseAll, refuseAll, allGood}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, f []*fake, r *lock.Redlock, _ *events) {
				t.Helper()
				f[0].answers(after(time.Second, allGood))
				f[1].answers(after(time.Second, refuseAll))
				f[2].answers(broken)
				time.AfterFunc(200*time.Millisecond, func() {
					for i, answers := range tt.last {
						f[i].answers(answers)
					}
				})
				_, err := r.Acquire(t.Context(), "orders", lock.Options{Lease: time.Minute, Wait: 3 * time.Second})
				if tt.want {
					require.ErrorIs(t, err, lock.ErrNotAcquired)
				} else {
					require.NotErrorIs(t, err, lock.ErrNotAcquired)
					require.ErrorContains(t, err, "no majority")
				}
			})
		})
	}
}

func TestRedlockWatchdogInTime(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		answers []func(string) string // of three servers, after the grant
		lost    time.Duration         // 0: never
		renewed []string              // on the first server, by 45s
	}{
		{"all there", []func(string) string{allGood, allGood, allGood}, 0, []string{"10s", "20s", "30s", "40s"}},
		{"one is broken", []func(string) string{allGood, broken, allGood}, 0, []string{"10s", "20s", "30s", "40s"}},
		{"one is stuck", []func(string) string{allGood, allGood, after(time.Hour, allGood)}, 0, []string{"10s", "20s", "30s", "40s"}},
		{"all take their time", slices.Repeat([]func(string) string{after(40*time.Millisecond, allGood)}, 3), 0, []string{"10s", "20s", "30s", "40s"}},
		{"one forgot it", []func(string) string{allGood, refuseAll, allGood}, 0, []string{"10s", "20s", "30s", "40s"}},
		{"two are broken", []func(string) string{allGood, broken, broken}, 30*time.Second - margin, nil},
		{"two are stuck", []func(string) string{allGood, after(time.Hour, allGood), after(time.Hour, allGood)}, 30*time.Second - margin, nil},
		{"two forgot it", []func(string) string{allGood, refuseAll, refuseAll}, 10 * time.Second, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, f []*fake, r *lock.Redlock, e *events) {
				t.Helper()
				h := acquire(t, r, "a", 0)
				for i, answers := range tt.answers {
					f[i].answers(answers)
				}
				if tt.lost > 0 {
					require.Equal(t, tt.lost, lostAfter(t, h))
				}
				time.Sleep(45*time.Second - tt.lost)
				require.Equal(t, tt.lost > 0, isLost(h))
				if tt.renewed != nil {
					require.Equal(t, tt.renewed, f[0].log("extend"))
				}
				require.Equal(t, e.count(lock.Renewing), e.count(lock.Renewed))
				if tt.lost > 0 {
					tries := len(f[0].log("extend"))
					time.Sleep(time.Hour)
					require.Len(t, f[0].log("extend"), tries, "a lost hold is not renewed")
					require.Equal(t, 1, e.count(lock.Lost))
				}
				if tt.lost == 10*time.Second {
					// Twice where the extension's answer comes after the others have refused.
					require.Subset(t, []string{"10s"}, f[0].log("release"))
					require.NotEmpty(t, f[0].log("release"), "what is left of it is taken back")
				}
			})
		})
	}
}

// A hold whose lease is over is not released where one server still has it, another one does not, and the third does not
// say: a majority may have granted it to another owner since.
func TestRedlockReleaseBehindTheLease(t *testing.T) {
	for name, c := range map[string]struct {
		second func(string) string
		want   error
	}{"by a minority": {refuseAll, lock.ErrNotHeld}, "by a majority": {allGood, nil}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, f []*fake, r *lock.Redlock, _ *events) {
				t.Helper()
				h := acquire(t, r, "a", 30*time.Second)
				time.Sleep(31 * time.Second)
				f[1].answers(c.second)
				f[2].answers(broken)
				require.ErrorIs(t, h.Release(t.Context()), c.want)
			})
		})
	}
}

func TestRedlockServerMakesUpForWhatItMissed(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, f []*fake, r *lock.Redlock, _ *events) {
		t.Helper()
		f[2].answers(refuseAll)
		h := acquire(t, r, "a", 0)
		synctest.Wait()
		f[2].answers(allGood)
		time.Sleep(25 * time.Second)
		require.Equal(t, []string{"0s", "10s"}, f[2].log("acquire"))
		require.Equal(t, []string{"20s"}, f[2].log("extend"))
		f[2].answers(refuseAll) // it forgot it, and another client has it there
		time.Sleep(20 * time.Second)
		require.Equal(t, []string{"20s", "30s"}, f[2].log("extend"))
		require.Equal(t, []string{"0s", "10s", "40s"}, f[2].log("acquire"))
		require.False(t, isLost(h))
		require.NoError(t, h.Release(t.Context()))
	})
}

func TestRedlockExtendInTime(t *testing.T) {
	stuck := after(time.Hour, allGood)
	tests := []struct {
		name    string
		answers []func(string) string
		by      time.Duration
		err     string
		lost    time.Duration // from the grant
	}{
		{"longer", []func(string) string{allGood, allGood, allGood}, time.Minute, "", time.Minute - 602*time.Millisecond},
		{"longer, on a majority", []func(string) string{broken, allGood, allGood}, time.Minute, "", time.Minute - 602*time.Millisecond},
		{"longer, on a minority", []func(string) string{broken, allGood, broken}, time.Minute, "no majority", 30*time.Second - margin},
		{"shorter, on a minority", []func(string) string{stuck, allGood, broken}, 10 * time.Second, "no majority", 10*time.Second - 102*time.Millisecond},
		{"not held by a majority", []func(string) string{refuseAll, allGood, refuseAll}, time.Minute, "not held", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, f []*fake, r *lock.Redlock, _ *events) {
				t.Helper()
				begin := time.Now()
				h := acquire(t, r, "a", 30*time.Second)
				synctest.Wait()
				for i, answers := range tt.answers {
					f[i].answers(answers)
				}
				err := h.Extend(t.Context(), tt.by)
				if tt.err == "" {
					require.NoError(t, err)
				} else {
					require.ErrorContains(t, err, tt.err)
				}
				<-h.Lost()
				require.Equal(t, tt.lost, time.Since(begin))
			})
		})
	}
}

// A server that is stuck collects no more than a bounded number of requests, and
// is asked again once it answers.
func TestRedlockSparesAServerThatIsStuck(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, f []*fake, r *lock.Redlock, _ *events) {
		t.Helper()
		cycle := func(n int) {
			for range n {
				h := acquire(t, r, "a", 30*time.Second)
				require.NoError(t, h.Release(t.Context()))
				time.Sleep(5 * time.Millisecond)
			}
		}
		asked := func() int { return len(f[2].log("acquire")) + len(f[2].log("release")) }
		f[2].answers(after(time.Minute, allGood))
		cycle(600)
		require.Less(t, runtime.NumGoroutine(), 400, "requests pile up")
		require.Len(t, f[0].log("release"), 600)
		f[2].answers(allGood)
		time.Sleep(time.Hour)
		before := asked()
		cycle(100)
		require.Greater(t, asked(), before+150, "it is asked again")
	})
}
