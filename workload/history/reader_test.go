package history_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/workload/history"
)

func TestReaderNamesTheLineAndWhatWasExpected(t *testing.T) {
	t.Parallel()
	const open = `{"time":5,"process":1,"type":"invoke","op":"acquire","lock":"k"}` + "\n\n"
	for _, test := range []struct{ name, give, want string }{
		{"not JSON", open + "nonsense\n", "line 3: want one JSON object a line"},
		{"not JSON, without a newline", open + "nonsense", "line 3: want one JSON object a line"},
		{"not an object", open + "[1]\n", "line 3: want one JSON object a line"},
		{"no time", `{"process":1,"type":"invoke","op":"acquire","lock":"k"}`, `line 1: missing "time"`},
		{"no process", `{"time":1,"type":"invoke","op":"acquire","lock":"k"}`, `line 1: missing "process"`},
		{"no type", `{"time":1,"process":1,"op":"acquire","lock":"k"}`, `line 1: missing "type" (invoke, ok, fail or info)`},
		{"no op", `{"time":1,"process":1,"type":"ok"}`, `line 1: missing "op" (acquire,`},
		{"unknown type", `{"time":1,"process":1,"type":"done","op":"acquire","lock":"k"}`, `line 1: unknown type "done" (want invoke, ok, fail or info)`},
		{"unknown op", `{"time":1,"process":1,"type":"ok","op":"steal","lock":"k"}`, `line 1: unknown op "steal" (want acquire,`},
		{"unknown mode", `{"time":1,"process":1,"type":"invoke","op":"acquire","lock":"k","mode":"shared"}`, `line 1: unknown mode "shared" (want exclusive,`},
		{"no lock", `{"time":1,"process":1,"type":"invoke","op":"release"}`, `line 1: release needs "lock"`},
		{"no resource", `{"time":1,"process":1,"type":"invoke","op":"access"}`, `line 1: access needs "resource" or "lock"`},
		{"access of nobody", `{"time":1,"process":-1,"type":"invoke","op":"access","lock":"k"}`, `line 1: access needs a process of 0 or more`},
		{"acquire of nobody", `{"time":1,"process":-1,"type":"invoke","op":"acquire","lock":"k"}`, `line 1: acquire needs a process of 0 or more`},
		{"no fault", `{"time":1,"process":-1,"type":"invoke","op":"inject"}`, `line 1: inject needs "fault"`},
		{"no node", `{"time":1,"process":-1,"type":"ok","op":"observe"}`, `line 1: observe needs "node" and "what"`},
		{"crash that is ok", `{"time":1,"process":1,"type":"ok","op":"crash"}`, `line 1: a crash is a single info, not "ok"`},
		{"lost that is invoked", `{"time":1,"process":1,"type":"invoke","op":"lost","lock":"k"}`, `line 1: lost is a single ok, not "invoke"`},
		{"negative lease", `{"time":1,"process":1,"type":"invoke","op":"acquire","lock":"k","lease":-1}`, `line 1: negative "lease": -1`},
		{"time runs backwards", open + `{"time":4,"process":2,"type":"invoke","op":"acquire","lock":"k"}`, "line 3: time runs backwards: 4 after 5"},
		{"two at once", open + `{"time":6,"process":1,"type":"invoke","op":"release","lock":"k"}`, "line 3: process 1 invokes release while its acquire is open"},
		{"no invoke", open + `{"time":6,"process":2,"type":"ok","op":"acquire","lock":"k"}`, "line 3: acquire ok of process 2 has no invoke"},
		{"another op", open + `{"time":6,"process":1,"type":"ok","op":"release","lock":"k"}`, "line 3: process 1 completes release while its acquire is open"},
		{"too long", open + strings.Repeat(" ", 17<<20), "line 3: longer than 16777216 bytes"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := history.ReadAll(strings.NewReader(test.give))
			require.ErrorContains(t, err, test.want)
			var format *history.FormatError
			require.ErrorAs(t, err, &format)
			require.Positive(t, format.Line)
		})
	}
}

func TestReaderDropsALastLineThatWasCutShort(t *testing.T) {
	t.Parallel()
	const whole = `{"time":1,"process":1,"type":"invoke","op":"acquire","lock":"k","lease":30}`
	for cut := 1; cut < len(whole); cut++ {
		h, err := history.ReadAll(strings.NewReader(whole + "\n" + whole[:cut]))
		require.NoError(t, err, whole[:cut])
		require.Len(t, h.Events, 1)
		require.Equal(t, 2, h.Truncated, whole[:cut])
	}
	h, err := history.ReadAll(strings.NewReader(whole))
	require.NoError(t, err)
	require.Len(t, h.Events, 1, "the last newline may be missing")
	require.Zero(t, h.Truncated)
	_, err = history.ReadAll(strings.NewReader(whole[:20] + "\n" + whole))
	require.ErrorContains(t, err, "line 1: ", "only the last line may be cut short")
}

func TestReaderFillsInTheOwnerAndIgnoresUnknownFields(t *testing.T) {
	t.Parallel()
	h, err := history.ReadAll(strings.NewReader(`{"index":70,"time":1,"process":4,"type":"invoke","op":"acquire","lock":"k","colour":"red"}`))
	require.NoError(t, err)
	require.Equal(t, []history.Event{{Time: 1, Process: 4, Type: history.Invoke, Op: history.Acquire, Lock: "k", Owner: "p4"}}, h.Events)
}

func TestReaderUnpacksWhatIsCompressed(t *testing.T) {
	t.Parallel()
	const line = `{"time":1,"process":4,"type":"invoke","op":"acquire","lock":"k"}` + "\n"
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := io.WriteString(w, line)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	whole := packed.Bytes()
	h, err := history.ReadAll(bytes.NewReader(whole))
	require.NoError(t, err)
	require.Len(t, h.Events, 1)
	_, err = history.ReadAll(bytes.NewReader(whole[:len(whole)-4]))
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	_, err = history.ReadAll(bytes.NewReader(whole[:5]))
	require.Error(t, err)
}

func TestReaderReadsSome(t *testing.T) {
	t.Parallel()
	const line = `{"time":1,"process":4,"type":"ok","op":"lost","lock":"k"}` + "\n"
	r := history.NewReader(strings.NewReader(line + line + line))
	some, err := r.ReadSome(make([]history.Event, 0, 2))
	require.NoError(t, err)
	require.Len(t, some, 2)
	some, err = r.ReadSome(some[:0])
	require.ErrorIs(t, err, io.EOF)
	require.Len(t, some, 1)
	require.Equal(t, int64(2), some[0].Index)
}

func TestReaderPassesOnReadErrors(t *testing.T) {
	t.Parallel()
	_, err := history.ReadAll(iotest.ErrReader(errFull))
	require.ErrorIs(t, err, errFull)
}

func encode(t *testing.T, events []history.Event) []byte {
	t.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	for i := range events {
		require.NoError(t, enc.Encode(&events[i]))
	}
	return b.Bytes()
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	fenced := false
	want := []history.Event{
		{Index: 0, Process: history.Nobody, Type: history.OK, Op: history.Declare, Lock: "k", Kind: history.KindMutex, Reentrant: true, Fair: true, Capacity: 3, Drift: time.Millisecond, Fenced: &fenced},
		{Index: 1, Time: 1, Process: 1, Type: history.Invoke, Op: history.Acquire, Lock: "k", Owner: "a<b>", Mode: history.Permit, Permits: 2, Lease: time.Second},
		{Index: 2, Time: 2, Process: 1, Type: history.OK, Op: history.Acquire, Lock: "k", Owner: "a<b>", Expires: time.Second, Token: 9, Holds: 2, Queued: 1, Node: "n1"},
		{Index: 3, Time: 3, Process: history.Nobody, Type: history.Invoke, Op: history.Inject, Fault: "pause", Target: "n1", Params: map[string]string{"for": "1s"}},
		{Index: 4, Time: 4, Process: history.Nobody, Type: history.OK, Op: history.Observe, Node: "n1", What: history.ObserveRole, Value: "master"},
		{Index: 5, Time: 5, Process: 1, Type: history.Info, Op: history.Crash},
	}
	h, err := history.ReadAll(bytes.NewReader(encode(t, want)))
	require.NoError(t, err)
	require.Equal(t, want, h.Events)
	require.Equal(t, time.Duration(5), h.End())
}

func FuzzReader(f *testing.F) {
	f.Add([]byte(`{"time":0,"process":1,"type":"invoke","op":"acquire","lock":"k","owner":"a","lease":3000000000}
{"time":1000000,"process":1,"type":"ok","op":"acquire","lock":"k","owner":"a","expires":3000000000,"token":1}
`))
	f.Add([]byte(`{"time":0,"process":-1,"type":"ok","op":"declare","lock":"k","fenced":false,"drift":7}` + "\n" + `{"time":1,"pro`))
	f.Add([]byte(`{"time":9223372036854775807,"process":0,"type":"invoke","op":"extend","lock":"k","lease":9223372036854775807}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := history.ReadAll(bytes.NewReader(data))
		if err != nil {
			var format *history.FormatError
			if !errors.As(err, &format) && !errors.Is(err, io.EOF) {
				t.Fatalf("%v is no format error", err)
			}
			return
		}
		h.Book() // must not panic either
		once := encode(t, h.Events)
		again, err := history.ReadAll(bytes.NewReader(once))
		require.NoError(t, err)
		require.Equal(t, string(once), string(encode(t, again.Events)))
	})
}
