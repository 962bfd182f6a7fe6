//go:build linux

package worker_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/faults/faultstest"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/memory"
	"github.com/lockchaos/lockchaos/workload"
	"github.com/lockchaos/lockchaos/workload/worker"
)

// The test binary is also what it tests: a worker, and a harness that is killed.
func TestMain(m *testing.M) {
	var err error
	switch {
	case len(os.Args) == 2 && os.Args[1] == "worker":
		err = worker.Serve(context.Background(), os.Stdin, os.Stdout, open)
	case len(os.Args) == 2 && os.Args[1] == "harness":
		err = harness()
	default:
		goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/lockchaos/lockchaos/internal/spawn.thread.func1"))
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

// open makes a lock in the worker's own memory. What the setup says is somebody
// else's.
func open(setup json.RawMessage, _ lock.Observer) (lock.Locker, func(), error) {
	var taken string
	if err := json.Unmarshal(setup, &taken); err != nil {
		return nil, nil, err
	}
	if taken == "broken" {
		return nil, nil, errors.New("there is no such lock")
	}
	l := memory.New()
	_, err := l.Acquire(context.Background(), taken, lock.Options{Owner: "somebody"})
	return l, func() {}, err
}

// harness starts a worker that stands still, tells its process, and waits to be
// killed.
func harness() error {
	w, _, err := start(io.Discard, "taken")
	if err != nil {
		return err
	}
	if err := w.Pause(context.Background()); err != nil {
		return err
	}
	fmt.Println(w.Pid()) //nolint:forbidigo // to the test
	select {}
}

func start(record io.Writer, taken string) (*worker.Client, *history.Recorder, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	r := history.NewRecorder(record)
	r.AwaitMerges()
	w, err := worker.Start(context.Background(), worker.Config{
		Name: "a", Path: path, Args: []string{"worker"}, Setup: taken,
		Recorder: r, Processes: &workload.Processes{}, NodeName: strings.ToUpper, Stderr: os.Stderr,
	})
	return w, r, err
}

// A staged worker has its history beside it.
type staged struct {
	*worker.Client

	recorder *history.Recorder
	record   *bytes.Buffer
}

func stage(t *testing.T) staged {
	t.Helper()
	s := staged{record: &bytes.Buffer{}}
	var err error
	s.Client, s.recorder, err = start(s.record, "taken")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// events ends the record and reads it.
func (s staged) events(t *testing.T) *history.History {
	t.Helper()
	require.NoError(t, s.recorder.Close())
	h, err := history.ReadAll(s.record)
	require.NoError(t, err)
	return h
}

func TestAWorkerDoesAsItIsTold(t *testing.T) {
	t.Parallel()
	s := stage(t)
	ctx := t.Context()
	var stock workload.Register
	before := time.Since(s.recorder.Start())
	require.Equal(t, history.Fail, s.Acquire(ctx, "taken", time.Minute, 0))
	require.False(t, s.Holding())
	require.Equal(t, history.OK, s.Acquire(ctx, "k", time.Minute, 0))
	require.True(t, s.Holding())
	require.Equal(t, "a#2", s.Owner())
	for _, tt := range []struct {
		do   workload.Act
		with workload.Resource
		want history.Type
	}{
		{workload.Act{Do: workload.DoRead, Name: "stock"}, &stock, ""},
		{workload.Act{Do: workload.DoWrite, Name: "stock"}, &stock, history.OK},
		{workload.Act{Do: workload.DoRead, Name: "ledger"}, refusing{}, ""},
		{workload.Act{Do: workload.DoWrite, Name: "ledger"}, refusing{}, history.Fail},
		{workload.Act{Do: workload.DoExtend, Lease: 2 * time.Minute}, nil, history.OK},
		{workload.Act{Do: workload.DoRelease}, nil, history.OK},
	} {
		outcome, err := s.Do(ctx, tt.do, tt.with)
		require.NoError(t, err, tt.do)
		require.Equal(t, tt.want, outcome, tt.do)
	}
	value, err := stock.Read(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 1, value)
	require.False(t, s.Holding())
	after := time.Since(s.recorder.Start())

	h := s.events(t)
	var ops []string
	for _, e := range h.Events {
		ops = append(ops, fmt.Sprint(e.Op, " ", e.Type))
		require.Greater(t, e.Time, before, "it is stamped by the clock that we have")
		require.Less(t, e.Time, after)
		require.Zero(t, e.Process)
		if e.Op == history.Acquire && e.Type == history.OK {
			require.Greater(t, e.Expires, before+time.Minute-time.Second)
			require.Less(t, e.Expires, after+time.Minute)
		}
	}
	require.Equal(t, []string{
		"acquire invoke", "acquire fail", "acquire invoke", "acquire ok", "access invoke", "access ok",
		"access invoke", "access fail", "extend invoke", "extend ok", "release invoke", "release ok",
	}, ops)
}

// refusing takes every token for stale.
type refusing struct{}

func (refusing) Read(context.Context) (int64, error)          { return 0, nil }
func (refusing) Write(context.Context, workload.Change) error { return workload.ErrRefused }

func TestAWorkerThatStandsStillKeepsTheContract(t *testing.T) {
	t.Parallel()
	s := stage(t)
	require.Equal(t, history.OK, s.Acquire(t.Context(), "k", time.Minute, 0))
	var stock workload.Register
	asleep := func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		if outcome := s.Acquire(ctx, "taken", time.Minute, 0); outcome != history.Info { // it is refused, once awake
			return fmt.Errorf("it was answered %s", outcome)
		}
		return nil
	}
	awake := func(ctx context.Context) error {
		if outcome, err := s.Use(ctx, "stock", &stock); err != nil || outcome != history.OK {
			return fmt.Errorf("it wrote nothing: %w", err)
		}
		return nil
	}
	faultstest.Run(t, ofClient(t, "pause-client", s), asleep, awake)

	f, err := faults.New(faults.Site{Clients: map[string]faults.ClientProcess{"a": s}}, faults.Step{
		Fault: "throttle-client", Target: "a", Params: map[string]string{"stopped": "300", "runs": "1"},
	})
	require.NoError(t, err)
	faultstest.Run(t, f, func(ctx context.Context) error { return await.Until(ctx, func() error { return asleep(ctx) }) }, awake)
}

// ofClient is a fault of a client.
func ofClient(t *testing.T, fault string, p faults.ClientProcess) faults.Fault {
	t.Helper()
	f, err := faults.New(faults.Site{Clients: map[string]faults.ClientProcess{"a": p}}, faults.Step{Fault: fault, Target: "a"})
	require.NoError(t, err)
	return f
}

func TestAWorkerThatIsKilledHasCrashed(t *testing.T) {
	t.Parallel()
	s := stage(t)
	ctx := t.Context()
	require.Equal(t, history.OK, s.Acquire(ctx, "k", time.Minute, 0))
	var stock workload.Register
	_, err := s.Do(ctx, workload.Act{Do: workload.DoRead, Name: "stock"}, &stock)
	require.NoError(t, err)
	i, err := ofClient(t, "kill-client", s).Inject(ctx)
	require.NoError(t, err)
	require.Nil(t, i.Heal)
	outcome, err := s.Do(ctx, workload.Act{Do: workload.DoRelease}, nil)
	require.Equal(t, history.Info, outcome, "nobody is there to answer")
	require.Error(t, err)
	require.ErrorContains(t, s.Pause(ctx), "is gone")
	require.ErrorContains(t, s.Kill(ctx), "is gone")
	h := s.events(t)
	last := h.Events[len(h.Events)-2:]
	require.Equal(t, history.Access, last[0].Op)
	require.Equal(t, history.Info, last[0].Type, "it may have written")
	require.Greater(t, last[1].From, last[0].Time-time.Second)
	require.LessOrEqual(t, last[1].From, last[1].Time)
	require.Equal(t, history.Event{
		From: last[1].From, Index: last[1].Index, Time: last[1].Time, Op: history.Crash, Type: history.Info,
		Process: h.Events[0].Process, Lock: "k", Owner: "a#1",
	}, last[1])
}

// What a worker was doing when it was told to end is given up, not waited for.
func TestAWorkerEndsWithItsInput(t *testing.T) {
	t.Parallel()
	s := stage(t)
	outcome := make(chan history.Type)
	go func() { outcome <- s.Acquire(t.Context(), "taken", time.Minute, time.Hour) }()
	require.Eventually(t, s.Busy, time.Minute, time.Millisecond)
	require.NoError(t, s.Close())
	require.Equal(t, history.Info, <-outcome)
}

func TestAWorkerThatCannotBe(t *testing.T) {
	t.Parallel()
	_, _, err := start(io.Discard, "broken")
	require.ErrorContains(t, err, "start client a: there is no such lock")
	_, err = worker.Start(t.Context(), worker.Config{
		Name: "a", Path: "/bin/false", Recorder: history.NewRecorder(io.Discard), Processes: &workload.Processes{},
	})
	require.ErrorContains(t, err, "start client a: ")
	err = worker.Serve(t.Context(), strings.NewReader("{}"), io.Discard, open)
	require.ErrorContains(t, err, "must say hello")
	err = worker.Serve(t.Context(), strings.NewReader(`{"hello":{"client":"a","setup":"taken"}} {"nonsense":1}`), io.Discard, open)
	require.ErrorContains(t, err, "neither an order nor an answer")
}

// Also a worker that stands still ends with its harness, however that ends.
func TestNoWorkerOutlivesItsHarness(t *testing.T) {
	t.Parallel()
	path, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), path, "harness")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	proc := "/proc/" + strings.TrimSpace(line)
	require.DirExists(t, proc)
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	require.Eventually(t, func() bool {
		stat, err := os.ReadFile(proc + "/stat")
		return err != nil || strings.Contains(string(stat), ") Z ") // whoever inherited it may not have looked yet
	}, time.Minute, 5*time.Millisecond)
}

func TestAWorkerThatDiesByItselfIsTold(t *testing.T) {
	s := stage(t)
	require.NoError(t, s.Died())
	require.NoError(t, syscall.Kill(s.Pid(), syscall.SIGKILL))
	require.Equal(t, history.Info, s.Acquire(t.Context(), "orders", time.Minute, 0))
	require.Eventually(t, func() bool { return s.Died() != nil }, time.Minute, time.Millisecond)
	require.ErrorContains(t, s.Died(), "client a ended by itself")
}
