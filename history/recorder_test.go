package history_test

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/history"
)

func TestRecorderStampsStrictlyIncreaseOverAllProcesses(t *testing.T) {
	t.Parallel()
	const processes, rounds = 8, 200
	var file bytes.Buffer
	r := history.NewRecorder(&file)
	var workers sync.WaitGroup
	for p := range processes {
		workers.Go(func() {
			for range rounds {
				e := history.Event{Process: p, Type: history.Invoke, Op: history.Acquire, Lock: "k", Owner: fmt.Sprint("o", p)}
				invoke := r.Record(e)
				e.Type = history.OK
				if complete := r.Record(e); complete.Time <= invoke.Time || complete.Index <= invoke.Index {
					t.Errorf("completion %+v is not after its invoke %+v", complete, invoke)
				}
			}
		})
	}
	workers.Wait()
	require.NoError(t, r.Close())

	h, err := history.ReadAll(&file)
	require.NoError(t, err)
	require.Len(t, h.Events, 2*processes*rounds)
	for i, e := range h.Events {
		require.EqualValues(t, i, e.Index)
		if i > 0 {
			require.Greater(t, e.Time, h.Events[i-1].Time)
		}
	}
}

func TestRecorderClosesOpenOperationsAsInfo(t *testing.T) {
	t.Parallel()
	var file bytes.Buffer
	r := history.NewRecorder(&file)
	r.Record(history.Event{Process: 2, Type: history.Invoke, Op: history.Acquire, Lock: "k", Owner: "b"})
	r.Record(history.Event{Process: 1, Type: history.Invoke, Op: history.Release, Lock: "k", Owner: "a"})
	r.Record(history.Event{Process: 3, Type: history.Invoke, Op: history.Acquire, Lock: "k", Owner: "c"})
	r.Record(history.Event{Process: 3, Type: history.Fail, Op: history.Acquire, Lock: "k", Owner: "c"})
	require.NoError(t, r.Close())
	require.NoError(t, r.Close(), "a second Close does nothing")
	require.EqualValues(t, -1, r.Record(history.Event{Process: 4, Type: history.Invoke, Op: history.Access, Resource: "r"}).Index)

	h, err := history.ReadAll(&file)
	require.NoError(t, err)
	require.Len(t, h.Events, 6)
	for i, want := range []struct {
		process int
		op      history.Op
	}{{2, history.Acquire}, {1, history.Release}} {
		e := h.Events[4+i]
		require.Equal(t, want.process, e.Process)
		require.Equal(t, want.op, e.Op)
		require.Equal(t, history.Info, e.Type)
		require.Equal(t, "still open at the end of the run", e.Error)
	}
}

// Who records an event may use its parameters for something else.
func TestRecorderKeepsNoParameters(t *testing.T) {
	t.Parallel()
	var file bytes.Buffer
	r := history.NewRecorder(&file)
	params := map[string]string{"delay": "1s"}
	r.Record(history.Event{Process: history.NoProcess, Type: history.Info, Op: history.Inject, Fault: "latency", Params: params})
	params["delay"] = "2s"
	require.NoError(t, r.Close())
	h, err := history.ReadAll(&file)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"delay": "1s"}, h.Events[0].Params)
}

type fullDisk struct{ writes int }

var errFull = errors.New("no space left on device")

func (d *fullDisk) Write([]byte) (int, error) { d.writes++; return 0, errFull }

func TestRecorderReportsTheFirstWriteError(t *testing.T) {
	t.Parallel()
	disk := &fullDisk{}
	r := history.NewRecorder(disk)
	for left := 10; left > 0; {
		r.Record(history.Event{Process: 1, Type: history.Invoke, Op: history.Access, Resource: "r"})
		r.Record(history.Event{Process: 1, Type: history.OK, Op: history.Access, Resource: "r"})
		left -= disk.writes
	}
	require.ErrorIs(t, r.Close(), errFull)
	require.ErrorIs(t, r.Close(), errFull)
	require.Equal(t, 1, disk.writes, "nothing is written after an error")
}
