package history_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/history"
)

func TestReaderNamesTheLineAndWhatWasExpected(t *testing.T) {
	t.Parallel()
	const open = `{"time":5,"process":1,"type":"invoke","op":"acquire","lock":"k"}` + "\n\n"
	for _, test := range []struct{ name, give, want string }{
		{"not JSON", open + "nonsense\n", `line 3: want one JSON object a line, found "nonsense"`},
		{"a table", "time,op\n1,acquire\n", `line 1: want one JSON object a line, found "time,op"`},
		{"no time", `{"process":1,"type":"invoke","op":"acquire","lock":"k"}`, `line 1: missing "time"`},
		{"no process", `{"time":1,"type":"invoke","op":"acquire","lock":"k"}`, `line 1: missing "process"`},
		{"no type", `{"time":1,"process":1,"op":"acquire","lock":"k"}`, `line 1: missing "type" (invoke, ok, fail or info)`},
		{"unknown type", `{"time":1,"process":1,"type":"done","op":"acquire","lock":"k"}`, `line 1: unknown type "done" (want invoke, ok, fail or info)`},
		{"unknown mode", `{"time":1,"process":1,"type":"invoke","op":"acquire","lock":"k","mode":"shared"}`, `line 1: unknown mode "shared" (want exclusive,`},
		{"no lock", `{"time":1,"process":1,"type":"invoke","op":"release"}`, `line 1: release needs "lock"`},
		{"no resource", `{"time":1,"process":1,"type":"invoke","op":"access"}`, `line 1: access needs "resource" or "lock"`},
		{"access of nobody", `{"time":1,"process":-1,"type":"invoke","op":"access","lock":"k"}`, `line 1: access needs a process of 0 or more`},
		{"no node", `{"time":1,"process":-1,"type":"ok","op":"observe"}`, `line 1: observe needs "node" and "what"`},
		{"crash that is ok", `{"time":1,"process":1,"type":"ok","op":"crash"}`, `line 1: crash is a single info, not "ok"`},
		{"negative lease", `{"time":1,"process":1,"type":"invoke","op":"acquire","lock":"k","lease":-1}`, `line 1: negative "lease": -1`},
		{"null", open + "null\n", "line 3: want one JSON object a line, found \"null\""},
		{"a list", open + "[]\n", "line 3: want one JSON object a line, found a list"},
		{"a string", open + `"x"`, "line 3: want one JSON object a line, found a string"},
		{"a number", open + "12\n", "line 3: want one JSON object a line, found a number"},
		{"half a string", open + `"x`, "line 3: want one JSON object a line, found \"\\\"x\""},
		{"two objects", open + "{} {}\n", "line 3: want one JSON object a line: there is more behind it"},
		{"one byte of garbage", open + "\xff", `line 3: want one JSON object a line, found "\xff"`},
		{"no UTF-8", `{"time":1,"process":1,"type":"invoke","op":"acquire","lock":"k","owner":"a` + "\xff" + `"}` + "\n", `line 1: want one JSON object a line: invalid UTF-8 within "/owner" after offset 74`},
		{"no UTF-8 by an escape", `{"time":1,"process":1,"type":"invoke","op":"acquire","lock":"k","owner":"a\ud800"}` + "\n", `line 1: want one JSON object a line: invalid surrogate pair`},
		{"another case", `{"TIME":1,"process":1,"type":"invoke","op":"acquire","lock":"k"}`, `line 1: field "TIME": write it as "time"`},
		{"a look-alike", "{\"loc\u212a\":\"k\",\"time\":1,\"process\":1,\"type\":\"invoke\",\"op\":\"acquire\"}", `line 1: field "loc\u212a": write it as "lock"`},
		{"a field twice", `{"time":1,"process":1,"type":"invoke","op":"acquire","lock":"k","lock":"j"}`, `line 1: field "lock" is there twice`},
		{"a fraction", `{"time":1.5,"process":1,"type":"invoke","op":"acquire","lock":"k"}`, `line 1: field "time": want whole nanoseconds, found 1.5`},
		{"a date for a time", `{"time":"2026-01-02T03:04:05Z","process":1,"type":"invoke","op":"acquire","lock":"k"}`, `line 1: field "time": want whole nanoseconds, found a string`},
		{"a number for a name", `{"time":1,"process":1,"type":"invoke","op":"acquire","lock":7}`, `line 1: field "lock": want a string, found a number`},
		{"words for a flag", `{"time":1,"process":-1,"type":"ok","op":"declare","lock":"k","fair":"yes"}`, `line 1: field "fair": want true or false, found a string`},
		{"a list of parameters", `{"time":1,"process":-1,"type":"invoke","op":"inject","fault":"pause","params":[1]}`, `line 1: field "params": want an object, found a list`},
		{"effects in one string", `{"time":1,"process":-1,"type":"invoke","op":"inject","fault":"pause","effects":"stops"}`, `line 1: field "effects": want a list, found a string`},
		{"a parameter twice", `{"time":1,"process":-1,"type":"invoke","op":"inject","fault":"pause","params":{"a":"1","a":"2"}}`, `line 1: field "params.a" is there twice`},
		{"too many permits", `{"time":1,"process":1,"type":"invoke","op":"acquire","lock":"k","mode":"permit","permits":9223372036854775807}`, `line 1: "permits" is 9223372036854775807, want 2147483647 at the most`},
		{"a time beyond all runs", `{"time":2305843009213693952,"process":1,"type":"invoke","op":"acquire","lock":"k"}`, `line 1: "time" is 2305843009213693952, want 2305843009213693951 at the most`},
		{"negative number in the queue", `{"time":1,"process":1,"type":"ok","op":"acquire","lock":"k","queued":-1}`, `line 1: negative "queued": -1`},
		{"process of nobody", `{"time":1,"process":-2,"type":"invoke","op":"inject","fault":"pause"}`, `line 1: process -2: want 0 or more, or -1 for faults and observations`},
		{"a byte order mark", "\ufeff" + open, "line 1: the file begins with a byte order mark (U+FEFF); want UTF-8 without one"},
		{"UTF-16", "\xff\xfe{\x00", "line 1: the file is UTF-16; want UTF-8"},
		{"NUL bytes within", open + "\x00\x00\x00\n" + open, "line 3: there are NUL bytes, as a file may have after a power cut"},
		{"time runs backwards", open + `{"time":4,"process":2,"type":"invoke","op":"acquire","lock":"k"}`, "line 3: time runs backwards: 4 after 5"},
		{"two at once", open + `{"time":6,"process":1,"type":"invoke","op":"release","lock":"k"}`, "line 3: process 1 invokes release while its acquire is open"},
		{"no invoke", open + `{"time":6,"process":2,"type":"ok","op":"acquire","lock":"k"}`, "line 3: acquire ok of process 2 has no invoke"},
		{"too long", open + strings.Repeat(" ", 17<<20), "line 3: longer than 16777216 bytes"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := history.ReadAll(strings.NewReader(test.give))
			require.ErrorContains(t, err, test.want) // with its line
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

func TestReaderDropsWhatAPowerCutLeft(t *testing.T) {
	t.Parallel()
	const whole = `{"time":1,"process":1,"type":"invoke","op":"acquire","lock":"k","lease":30}`
	for _, last := range []string{"", whole[:20], whole} {
		h, err := history.ReadAll(strings.NewReader(whole + "\n" + last + strings.Repeat("\x00", 5000)))
		require.NoError(t, err, last)
		require.Len(t, h.Events, 1)
		require.Equal(t, 2, h.Truncated, last)
	}
	_, err := history.ReadAll(strings.NewReader(whole + "\nx" + strings.Repeat("\x00", 5000)))
	require.ErrorContains(t, err, "line 2: there are NUL bytes")
}

// No error repeats what may be the whole file.
func TestReaderEchoesLittle_NoRace(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("9", 1<<20)
	const acquire = `{"time":1,"process":1,"type":"invoke","op":"acquire","lock":"k"`
	for _, give := range []string{
		`{"time":` + long, `{"time":` + long + `}`, `{"time":"` + long + `"}`, acquire + `,"lease":` + long + "}", acquire + `,"mode":"` + long + `"}`,
		acquire + `,"params":{"` + long + `":1}}`, acquire + `,"params":"` + long + `"}`, `{"time":1,"process":1,"type":"` + long + `","op":"acquire"}`,
		`{"time":1,"process":1,"type":"ok","op":"` + long + `"}`, long, `"` + long, "nul" + long,
	} {
		_, err := history.ReadAll(strings.NewReader(give + "\n"))
		require.Error(t, err)
		require.Less(t, len(err.Error()), 300, give[:40])
	}
}

func TestReaderFillsInTheOwnerAndIgnoresUnknownFields(t *testing.T) {
	t.Parallel()
	h, err := history.ReadAll(strings.NewReader(`{"index":70,"time":1,"process":4,"type":"invoke","op":"acquire","lock":"k","colour":"red"}`))
	require.NoError(t, err)
	require.Equal(t, []history.Event{{Time: 1, Process: 4, Type: history.Invoke, Op: history.Acquire, Lock: "k", Owner: "p4"}}, h.Events)
}

// However a file is cut into what one read of it returns, its events, the line of its first error and what is cut off are the same.
func TestReaderReadsTheSameInPieces(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		var file strings.Builder
		events, wrong, cut := 0, 0, 0
		lines := 1 + rnd.IntN(60)
		for line := 1; line <= lines; line++ {
			good := fmt.Sprintf(`{"time":%d,"process":%d,"type":"info","op":"crash","error":%q}`, line, line, strings.Repeat("x", rnd.IntN(40)))
			switch n := rnd.IntN(100); {
			case n < 10:
				good = strings.Repeat(" ", n)
			case wrong == 0 && n < 12:
				wrong, good = line, good[:rnd.IntN(len(good)-1)+1]
			case wrong == 0 && n < 14 && line > 1 && events > 0:
				wrong, good = line, strings.Replace(good, fmt.Sprintf(`"time":%d`, line), `"time":0`, 1)
			case wrong == 0:
				events++
			}
			file.WriteString(good)
			if line < lines || rnd.IntN(2) == 0 {
				file.WriteByte('\n')
			}
		}
		text := file.String()
		for _, r := range []io.Reader{strings.NewReader(text), iotest.OneByteReader(strings.NewReader(text)), iotest.HalfReader(strings.NewReader(text)), iotest.DataErrReader(strings.NewReader(text))} {
			reader := history.NewReader(r)
			got, line := 0, 0
			for list, err := range reader.Events() {
				if err != nil {
					require.Empty(t, list)
					_, err = fmt.Sscanf(err.Error(), "line %d: ", &line)
					require.NoError(t, err)
				}
				for i := range list {
					require.Equal(t, int64(got), list[i].Index)
					got++
				}
			}
			if wrong == lines && line == 0 { // the last one may end in its middle
				require.False(t, strings.HasSuffix(text, "\n"))
				line = reader.Truncated()
				cut++
			} else {
				require.Zero(t, reader.Truncated())
			}
			require.Equal(t, wrong, line, "%q", text)
			require.Equal(t, events, got, "%q", text)
		}
		require.Contains(t, []int{0, 4}, cut)
	}
}

// A caller that has seen enough need not read to the end.
func TestReaderStops(t *testing.T) {
	t.Parallel()
	r := iotest.OneByteReader(strings.NewReader(strings.Repeat(`{"time":1,"process":4,"type":"info","op":"crash"}`+"\n", 1000)))
	for list, err := range history.NewReader(r).Events() {
		require.NoError(t, err)
		require.Len(t, list, 1)
		break
	}
}

// After a long line the events come in lists as short as before it.
func TestReaderReadsLittleAtATime(t *testing.T) {
	t.Parallel()
	const line = `{"time":1,"process":4,"type":"info","op":"crash"}` + "\n"
	long := strings.Replace(line, "}", `,"error":"`+strings.Repeat("x", 8<<20)+`"}`, 1)
	lists, all := 0, 0
	for events, err := range history.NewReader(strings.NewReader(long + strings.Repeat(line, 100_000))).Events() {
		require.NoError(t, err)
		require.LessOrEqual(t, len(events)*len(line), 256<<10)
		lists, all = lists+1, all+len(events)
	}
	require.Equal(t, 100_001, all)
	require.Greater(t, lists, 10)
}

// What is whole before the damage of a compressed file is read.
func TestReaderUnpacksWhatIsCompressed(t *testing.T) {
	t.Parallel()
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := io.WriteString(w, strings.Repeat(`{"time":1,"process":4,"type":"info","op":"crash"}`+"\n", 3)+`{"time":2`)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	for cut, want := range map[int]error{0: nil, 4: io.ErrUnexpectedEOF} {
		h, err := history.ReadAll(bytes.NewReader(packed.Bytes()[:packed.Len()-cut]))
		require.ErrorIs(t, err, want)
		require.Len(t, h.Events, 3)
	}
	_, err = history.ReadAll(bytes.NewReader(packed.Bytes()[:5]))
	require.Error(t, err)
	_, err = history.ReadAll(iotest.ErrReader(errFull))
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
		{Index: 0, Process: history.NoProcess, Type: history.OK, Op: history.Declare, Lock: "k", Kind: history.KindSemaphore, Reentrant: true, Fair: true, Capacity: 3, Drift: time.Millisecond, Fenced: &fenced},
		{Index: 1, Time: 1, Process: 1, Type: history.Invoke, Op: history.Acquire, Lock: "k", Owner: "a<b>", Mode: history.Permit, Permits: 2, Lease: time.Second},
		{Index: 2, Time: 2, Process: 1, Type: history.OK, Op: history.Acquire, Lock: "k", Owner: "a<b>", Expires: time.Second, Token: 9, Holds: 2, Queued: new(int64), Node: "n1"},
		{Index: 3, Time: 3, Process: history.NoProcess, Type: history.Invoke, Op: history.Inject, Fault: "pause", Target: "n1", Params: map[string]string{"for": "1s"}, Life: history.Lasting, Effects: []history.Effect{history.Stops, history.Suspends}},
		{Index: 4, Time: 4, Process: history.NoProcess, Type: history.OK, Op: history.Observe, Node: "n1", What: history.ObserveRole, Value: "master"},
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
			require.Regexp(t, "^line [1-9]|EOF", err)
			return
		}
		once := encode(t, h.Events)
		again, err := history.ReadAll(bytes.NewReader(once))
		require.NoError(t, err)
		require.Equal(t, string(once), string(encode(t, again.Events)))
	})
}

func TestAProcessMayInjectAndHealFaults(t *testing.T) {
	t.Parallel()
	const fault = `{"time":1,"process":3,"type":"invoke","op":"inject","fault":"pause"}` + "\n" + `{"time":2,"process":3,"type":"ok","op":"inject","fault":"pause"}` + "\n"
	h, err := history.ReadAll(strings.NewReader(fault + strings.NewReplacer("inject", "heal", `"time":1`, `"time":3`, `"time":2`, `"time":4`).Replace(fault)))
	require.NoError(t, err)
	require.Len(t, h.Events, 4)
}
