package reports

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/history"
)

// unpack reads a block as the page's script does.
func unpack(t *testing.T, block string) (timelineData, *bytes.Reader) {
	t.Helper()
	packed, err := base64.RawStdEncoding.DecodeString(block)
	require.NoError(t, err)
	z, err := gzip.NewReader(bytes.NewReader(packed))
	require.NoError(t, err)
	all, err := io.ReadAll(z)
	require.NoError(t, err)
	n := binary.LittleEndian.Uint32(all)
	var data timelineData
	require.NoError(t, json.Unmarshal(all[4:4+n], &data))
	return data, bytes.NewReader(all[4+n:])
}

func next(t *testing.T, r *bytes.Reader, n int) []uint64 {
	t.Helper()
	numbers := make([]uint64, n)
	for i := range numbers {
		var err error
		numbers[i], err = binary.ReadUvarint(r)
		require.NoError(t, err)
	}
	return numbers
}

func rounds(n int) *history.History {
	h := &history.History{}
	add := func(at int, e history.Event) {
		e.Time, e.Index = time.Duration(at)*time.Microsecond, int64(len(h.Events))
		h.Events = append(h.Events, e)
	}
	for i := range n {
		e := history.Event{Process: 1, Lock: "k", Owner: fmt.Sprintf("zone-a.1#%d", i)}
		op := func(op history.Op, from, to int, end history.Type) {
			e := e
			e.Op, e.Type = op, history.Invoke
			if op == history.Access {
				e.Resource = "stock"
			}
			add(i*1000+from, e)
			e.Type = end
			if op == history.Acquire && end == history.OK {
				e.Token, e.Node = int64(10+i), "r1"
			}
			add(i*1000+to, e)
		}
		if i%3 == 2 {
			op(history.Acquire, 100, 150, history.Fail)
			continue
		}
		op(history.Acquire, 100, 130, history.OK)
		op(history.Access, 200, 210, history.OK)
		op(history.Release, 500, 510, history.OK)
	}
	return h
}

func TestTimelineBlock(t *testing.T) {
	m := newModel(Input{History: rounds(4)})
	block, err := m.timelineBlock()
	require.NoError(t, err)
	data, r := unpack(t, block)
	require.Nil(t, data.Detail)
	require.Equal(t, []string{"r1"}, data.Grantors)
	require.Equal(t, 1, data.Lanes)
	require.Equal(t, []lockData{{Name: "k"}}, data.Locks)
	require.Equal(t, []string{"zone-a.1"}, data.Clients)
	require.Empty(t, data.Marks)
	require.Equal(t, 4, data.Requests)
	require.Equal(t, []uint64{0, 0, 4}, next(t, r, 3), "the first client at the first lock, with 4 requests")
	// Asked at 100 µs, 30 µs until the answer, by the first server; it begins
	// with the answer, lasts 370 µs, and has token 10, 10 above the last.
	require.Equal(t, []uint64{100, 30, kindHold + 1, 0, 371, 20}, next(t, r, 6))
	require.Equal(t, []uint64{1000, 30, kindHold + 1, 0, 371, 2}, next(t, r, 6))
	require.Equal(t, []uint64{1000, 50, kindRefused}, next(t, r, 3))
	require.Equal(t, []uint64{1000, 30, kindHold + 1, 0, 371, 4}, next(t, r, 6))
	require.Equal(t, []uint64{210, kindAccess, 1000, kindAccess, 2000, kindAccess}, next(t, r, 6))
	require.Zero(t, r.Len())
	require.Equal(t, []int64{0}, data.Steps)
}

// Of a run that is too long the page has the part that matters, and how much
// of the rest was held.
func TestTimelineBlockOfALongRun(t *testing.T) {
	const n = 60_000 // of a millisecond each
	m := newModel(Input{History: rounds(n)})
	m.maxDetail = n
	block, err := m.timelineBlock()
	require.NoError(t, err)
	data, r := unpack(t, block)
	require.Equal(t, &[2]int64{0, micros(2 * aroundViolation)}, data.Detail)
	require.Len(t, data.Marks[0].Cover, 1500)
	require.Equal(t, "66666", data.Marks[0].Cover[:5], "held for a quarter of the time, and refused")
	require.Less(t, int(r.Size()), n*9/2, "a third of it")
}

// A server keeps no key of its time as a master once it has another master's data.
func TestKeysEndWhereTheirServerFollowsAnother(t *testing.T) {
	d := mapped()
	for _, s := range d.keySpans("k", d.whole()) {
		if s.server == "r1" {
			require.Equal(t, 51*time.Millisecond, s.until, "it was killed, and never came back")
		}
	}
}
