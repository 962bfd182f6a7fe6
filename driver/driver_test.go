//go:build linux

package driver_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lockchaos/lockchaos/driver"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/locktest"
	"github.com/lockchaos/lockchaos/lock/memory"
	"github.com/lockchaos/lockchaos/lock/undertest"
	"github.com/lockchaos/lockchaos/promises"
)

// play is the variable that makes a driver of this test binary.
const play = "LOCKCHAOS_TEST_DRIVER"

func TestMain(m *testing.M) {
	if role := os.Getenv(play); role != "" {
		os.Exit(act(role)) //nolint:forbidigo // it is main here
	}
	flag.Parse()
	// Four of them wait for 10 s limits of the product; two at a time took 36 s instead of 20.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/lockchaos/lockchaos/internal/spawn.thread.func1"))
}

// act is what a driver does, right or wrong.
func act(role string) int {
	hello := driver.Hello{
		Name: "memory", Version: "1", Language: "go", Parallel: 2000,
		Promises: promises.Promises{Extend: true, Lost: true, Token: true, ReleaseTells: true},
	}
	if role == "plain-rw" {
		hello.Promises.Kind = "rw"
	}
	if role == "memory" || role == "slow-memory" || role == "plain-rw" {
		err := driver.Serve(context.Background(), hello, func(context.Context, driver.Session) (lock.Locker, func(), error) {
			if role == "slow-memory" {
				return slow{memory.New()}, func() {}, nil
			}
			return memory.New(), func() {}, nil
		})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	}
	switch role {
	case "silent":
		signal.Ignore(syscall.SIGTERM)
		select {}
	case "exits":
		fmt.Fprintln(os.Stderr, "ModuleNotFoundError: no module named redis\n    ^^^")
		return 3
	}
	say := func(line string, id int64) { fmt.Println(strings.ReplaceAll(line, "N", strconv.FormatInt(id, 10))) } //nolint:forbidigo // the protocol
	own := roles()[role]
	first, grant := "", cmp.Or(own.answer, `{"hold":"hN","re":N,"result":"ok"}`)
	if own.when == "start" {
		first = own.answer
	}
	promised := map[string]string{"no-extend": `"extend":true`, "cancelled": `"cancel":true`, "lost-late": `"extend":true,"lost":true`, "no-token": `"token":true`}[role]
	say(cmp.Or(first, `{"re":N,"protocol":1,"name":"script","parallel":1,"promises":{`+promised+`}}`), 0)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var q struct {
			ID int64  `json:"id"`
			Op string `json:"op"`
		}
		switch _ = json.Unmarshal(in.Bytes(), &q); q.Op {
		case "ping", "release":
			say(`{"re":N,"result":"ok"}`, q.ID)
		case "extend":
			if role == "lost-late" {
				return 5
			}
			say(`{"re":N,"result":"unsupported"}`, q.ID)
		case "acquire":
			switch role {
			case "dies":
				return 4
			case "closes":
				_ = os.Stdout.Close()
				select {}
			case "long":
				grant = strings.Repeat("x", 1<<21)
			case "floods":
				for range 300 {
					_, _ = os.Stderr.Write(bytes.Repeat([]byte("warning\n"), 1<<13))
				}
			case "slow":
				in.Scan() // the next request: nothing is answered before it
				continue
			case "cancelled":
				fmt.Fprintln(os.Stderr, "asked")
				if in.Scan() && strings.Contains(in.Text(), `"op":"cancel"`) {
					say(`{"re":N,`+os.Getenv("CANCELLED")+`}`, q.ID)
				}
				continue
			}
			say(grant, q.ID)
			if role == "lost-late" {
				time.Sleep(lateLoss)
				say(`{"event":"lost","hold":"hN"}`, q.ID)
			}
		}
	}
	if role == "stays" {
		select {}
	}
	return 0
}

// A role is a line of testdata/answers.list.
type role struct{ when, answer, told string }

// roles are those that are not what every driver is, by their names.
func roles() map[string]role {
	text, err := os.ReadFile("testdata/answers.list")
	if err != nil {
		panic(err)
	}
	all := map[string]role{}
	escaped := strings.NewReplacer(`\n`, "\n", `\xe9`, "\xe9")
	for line := range strings.Lines(string(text)) {
		if parts := strings.Split(strings.TrimSpace(line), " :: "); len(parts) == 3 {
			when, name, _ := strings.Cut(parts[0], " ")
			all[name] = role{when, strings.TrimPrefix(escaped.Replace(parts[1]), "-"), parts[2]}
		}
	}
	return all
}

func config(t *testing.T, role string) driver.Config {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	return driver.Config{Command: []string{self}, Env: []string{play + "=" + role}, Zone: "zone-a", Log: t.Output()}
}

func start(t *testing.T, role string) *driver.Driver {
	t.Helper()
	d, err := driver.Start(t.Context(), config(t, role))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

// The contract of a lock holds for one that is a program away.
func TestDriver_Contract(t *testing.T) {
	t.Parallel()
	locktest.Run(t, func(t *testing.T) lock.Locker {
		t.Helper()
		return start(t, "memory")
	}, locktest.Features{Reentrant: true, Fenced: true, Callers: 100, Apart: true})
}

// slow asks late: a request is still under way when a client with little patience is gone.
type slow struct{ lock.Locker }

func (s slow) Acquire(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
	time.Sleep(patience * 3)
	return s.Locker.Acquire(ctx, name, o)
}

const patience = 20 * time.Millisecond

// A request that was under way when its client had gone may be granted, and leaves no waiter behind.
func TestDriver_CancelledWhileUnderWay(t *testing.T) {
	t.Parallel()
	for _, c := range locktest.Checks(locktest.Features{Patience: patience}) {
		if c.Name == "a cancelled wait leaves nothing behind" {
			require.NoError(t, c.Run(t.Context(), start(t, "slow-memory")))
			return
		}
	}
	require.Fail(t, "there is no such check")
}

// requireTold compares what is told of a role with its line of answers.list, in which the numbers of requests are N.
func requireTold(t *testing.T, role, told string) {
	t.Helper()
	require.Equal(t, roles()[role].told, numbered.ReplaceAllString(told, "${1}N"))
}

var numbered = regexp.MustCompile(`(request |re\\":|\\"h)\d+`)

// A driver that does not start is refused with what it did instead.
func TestStart_Refuses(t *testing.T) {
	t.Parallel()
	require.Greater(t, len(roles()), 30)
	for role, is := range roles() {
		if is.when != "start" {
			continue
		}
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			c := config(t, role)
			c.Name = role
			_, err := driver.Start(t.Context(), c)
			require.Error(t, err)
			requireTold(t, role, err.Error())
		})
	}
	t.Run("no program", func(t *testing.T) {
		t.Parallel()
		_, err := driver.Start(t.Context(), driver.Config{Command: []string{"/no/such/driver"}})
		require.ErrorContains(t, err, "no such file")
		_, err = driver.Start(t.Context(), driver.Config{})
		require.ErrorContains(t, err, "no command")
	})
	t.Run("silent", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c, told := config(t, "silent"), ""
		c.Name = "python3 driver.py"
		c.Silent = func(why string) {
			told = why
			cancel()
		}
		_, err := driver.Start(ctx, c)
		require.ErrorContains(t, err, "it did not answer hello within 30s: is its output flushed after each line? It was sent {")
		requireTold(t, "silent", told)
	})
}

// After an answer that breaks the protocol nothing is granted any more, and the
// error says what was wrong.
func TestDriver_Broken(t *testing.T) {
	t.Parallel()
	for role, is := range roles() {
		if is.when != "broken" {
			continue
		}
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			d, err := driver.Start(t.Context(), config(t, role))
			require.NoError(t, err)
			defer func() { require.NoError(t, d.Close()) }()
			var last error
			require.Eventually(t, func() bool {
				_, last = d.Acquire(t.Context(), "orders", lock.Options{Lease: time.Minute})
				return last != nil
			}, time.Minute, time.Millisecond)
			require.NotErrorIs(t, last, lock.ErrNotAcquired, "a broken driver refuses nothing for certain")
			require.Eventually(t, func() bool { return d.Err() != nil }, time.Minute, time.Millisecond)
			require.ErrorIs(t, d.Err(), driver.ErrBroken)
			requireTold(t, role, d.Err().Error())
			_, err = d.Acquire(t.Context(), "orders", lock.Options{Lease: time.Minute})
			require.ErrorIs(t, err, driver.ErrBroken)
		})
	}
}

// The name of a hold that was released names no other one: a second release would be of that.
func TestDriver_HoldAgain(t *testing.T) {
	t.Parallel()
	d := start(t, "same-hold")
	h, err := d.Acquire(t.Context(), "orders", lock.Options{Lease: time.Minute})
	require.NoError(t, err)
	require.NoError(t, h.Release(t.Context()))
	_, err = d.Acquire(t.Context(), "orders", lock.Options{Lease: time.Minute})
	require.ErrorContains(t, err, `gave the hold "h" to two grants`)
}

// A hold that ends in a time that no record has is believed for 36 years, and a run can say so.
func TestDriver_ForEver(t *testing.T) {
	t.Parallel()
	h, err := start(t, "for-ever").Acquire(t.Context(), "orders", lock.Options{})
	require.NoError(t, err)
	left := time.Until(h.Lease().Expires)
	require.Greater(t, left, 35*365*24*time.Hour)
	require.Less(t, left, history.MaxTime)
}

// What a driver is not certain of is no refusal.
func TestDriver_Unknown(t *testing.T) {
	t.Parallel()
	d := start(t, "info")
	_, err := d.Acquire(t.Context(), "orders", lock.Options{Lease: time.Minute})
	require.ErrorContains(t, err, "read timeout")
	require.NotErrorIs(t, err, lock.ErrNotAcquired)
	require.NoError(t, d.Err())
}

// A request that is given up has an unknown outcome, and its client's next one
// waits for the answer.
func TestDriver_GivenUp(t *testing.T) {
	t.Parallel()
	d := start(t, "slow")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := d.Acquire(ctx, "orders", lock.Options{Owner: "zone-a.1#1", Lease: time.Minute})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, lock.ErrNotAcquired)
}

// What a driver that promises cancel says of a request that was given up is what came of it.
func TestDriver_Cancelled(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]error{`"result":"fail"`: lock.ErrNotAcquired, `"result":"info"`: driver.ErrUnknown, `"result":"ok","hold":"hN"`: nil} {
		c := config(t, "cancelled")
		c.Env = append(c.Env, "CANCELLED="+answer)
		ctx, cancel := context.WithCancel(t.Context())
		c.Log = whenWritten(cancel) // the driver has the request then
		d, err := driver.Start(t.Context(), c)
		require.NoError(t, err)
		_, err = d.Acquire(ctx, "orders", lock.Options{Owner: "zone-a.1#1", Lease: time.Minute})
		cancel()
		require.ErrorIs(t, err, want)
		require.NoError(t, d.Close())
	}
}

// whenWritten is called with each write.
type whenWritten func()

func (w whenWritten) Write(b []byte) (int, error) {
	w()
	return len(b), nil
}

// lateLoss is after the end of a lease that a driver is asked for.
const lateLoss = 200 * time.Millisecond

// A library that says that a hold is lost when its lease is over is not asked to extend it: that would
// shorten what another hold of its owner has on the server.
func TestDriver_LostLate(t *testing.T) {
	t.Parallel()
	d := start(t, "lost-late")
	h, err := d.Acquire(t.Context(), "l", lock.Options{Owner: "a#1", Lease: lateLoss / 4})
	require.NoError(t, err)
	<-h.Lost()
	require.Never(t, func() bool { return d.Err() != nil }, 3*lateLoss, lateLoss/20)
	require.NoError(t, d.Err())
}

// A library that says that a hold is lost, even before its grant was read, ends it.
func TestDriver_LostBeforeItsGrant(t *testing.T) {
	t.Parallel()
	d := start(t, "lost-first")
	h, err := d.Acquire(t.Context(), "orders", lock.Options{Lease: time.Minute})
	require.NoError(t, err)
	<-h.Lost()
	require.ErrorContains(t, undertest.Of(h).Release(t.Context()), "does not tell", "the driver is asked all the same")
	require.NoError(t, d.Err())
}

// A driver's log neither stops the driver nor fills the disk.
func TestDriver_FloodedLog(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	c := config(t, "floods")
	c.Log = &log
	d, err := driver.Start(t.Context(), c)
	require.NoError(t, err)
	h, err := d.Acquire(t.Context(), "orders", lock.Options{Lease: time.Minute})
	require.NoError(t, err)
	require.NoError(t, h.Release(t.Context()))
	require.NoError(t, d.Close())
	require.Equal(t, 8<<20, log.Len())
}

// Close leaves no process behind, also of a driver that does not exit.
func TestDriver_CloseEndsTheProcess(t *testing.T) {
	t.Parallel()
	for _, role := range []string{"stays", "memory"} {
		d, err := driver.Start(t.Context(), config(t, role))
		require.NoError(t, err)
		require.NoError(t, d.Close())
		require.ErrorIs(t, syscall.Kill(-d.Group(), 0), syscall.ESRCH)
		require.NoError(t, d.Err(), "its end was asked for")
		_, err = d.Acquire(t.Context(), "orders", lock.Options{})
		require.ErrorIs(t, err, driver.ErrBroken)
		require.NoError(t, d.Close())
	}
}

// An "ok" to a release after the lease proves nothing where the library does
// not tell.
func TestDriver_ReleaseThatTellsNothing(t *testing.T) {
	t.Parallel()
	d := start(t, "grants")
	h, err := d.Acquire(t.Context(), "orders", lock.Options{Lease: time.Millisecond})
	require.NoError(t, err)
	<-h.Lost()
	err = h.Release(t.Context())
	require.ErrorContains(t, err, "does not tell")
	require.NotErrorIs(t, err, lock.ErrNotHeld)

	before := time.Now()
	h, err = d.Acquire(t.Context(), "orders", lock.Options{Lease: time.Hour})
	require.NoError(t, err)
	require.WithinRange(t, h.Lease().Expires, before.Add(time.Hour), time.Now().Add(time.Hour), "reckoned from before the request")
	require.ErrorIs(t, h.Extend(t.Context(), time.Hour), errors.ErrUnsupported)
	require.NoError(t, h.Release(t.Context()))
}

// A driver keeps its promise to extend, or is not asked any more.
func TestDriver_ExtensionThatIsPromised(t *testing.T) {
	t.Parallel()
	d := start(t, "no-extend")
	h, err := d.Acquire(t.Context(), "orders", lock.Options{Lease: time.Hour})
	require.NoError(t, err)
	require.ErrorIs(t, h.Extend(t.Context(), time.Hour), driver.ErrBroken)
	requireTold(t, "no-extend", d.Err().Error())
}

// What drivers of several languages log as they end, and which lines of it are told.
func TestLastWords(t *testing.T) {
	files, err := filepath.Glob("testdata/ended/*.log")
	require.NoError(t, err)
	var got strings.Builder
	for _, file := range files {
		log, err := os.ReadFile(file)
		require.NoError(t, err)
		got.WriteString(strings.TrimSuffix(filepath.Base(file), ".log") + driver.LastWords(string(log)) + "\n")
	}
	golden, err := os.ReadFile("testdata/ended.golden")
	require.NoError(t, err)
	require.Equal(t, string(golden), got.String())
}
