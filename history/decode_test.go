package history

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// compare checks that the decoder by itself reads of a line what the library reads, or nothing.
func compare(t *testing.T, d *decoder, line []byte) (alone bool) {
	t.Helper()
	var slow, again Event
	d.event = Event{}
	if !d.object(line) {
		return false
	}
	fast := d.event
	_, err := readObject(line, wantObject, &slow)
	require.NoError(t, err, "%q", line)
	require.Equal(t, slow, fast, "%q", line)
	require.NoError(t, json.Unmarshal(line, &again), "%q", line)
	require.Equal(t, again, fast, "%q", line)
	if want, got := fast.Validate(), fast.valid(d.filled); want != nil {
		require.EqualError(t, got, want.Error(), "%q", line)
	} else {
		require.NoError(t, got, "%q", line)
	}
	return true
}

const sample = `{"index":3,"time":1000000,"process":1,"type":"ok","op":"acquire","lock":"k","owner":"a","mode":"permit","permits":2,` +
	`"lease":5,"expires":3000000000,"token":1,"holds":2,"node":"n","error":""}`

// Names are kept once; messages, which differ, are not kept at all.
func TestDecoderKeepsNoLongText(t *testing.T) {
	t.Parallel()
	d, kept := newDecoder(), 0
	for n := range 100 {
		line := sample[:len(sample)-2] + strings.Repeat("x", 300+n) + `"}`
		require.True(t, compare(t, d, []byte(strings.Replace(line, `"ok"`, `"fail"`, 1))))
	}
	for _, text := range d.seen {
		kept += len(text)
	}
	require.Positive(t, kept)
	require.Less(t, kept, len(sample))
}

func TestDecoderReadsTheSame(t *testing.T) {
	t.Parallel()
	d := newDecoder()
	for _, line := range []string{
		sample, sample + "\r\n", " \t" + strings.ReplaceAll(sample, ",", " , ") + "  ", strings.ReplaceAll(sample, `":`, `": `),
		`{"time":-1,"process":2}`, `{"time":0,"process":-0}`, `{"time":1,"process":2,"error":"\"k\": \"\" is taken","lock":"k"}`,
	} {
		require.Equal(t, !strings.Contains(line, ":-1"), compare(t, d, []byte(line)), "%q", line)
	}
	for _, line := range []string{
		`{}`, `{"time":1}`, `{"time":1,"process":01}`, `{"time":1,"process":2,"process":2}`, `{"time":1,"process":2}x`, `{"time":1,"process":2,}`,
		`{"time":1,"process":2,"colour":"red"}`, `{"time":1,"process":2,"lock":"\u006b"}`, `{"time":1,"process":2,"lock":null}`, `{"time":1,"process":2.0}`,
		`{"time":1,"process":1234567890123456789}`, `{"time":1,"process":- 2}`, `{"time":1 "process":2}`, sample[:40], "", `[1]`,
		`{"time":1,"process":2,"lock":"\\"}`, `{"time":1,"process":2,"lock":"\"`, `{"time":1,"process":2,"lock":"\`,
	} {
		require.False(t, compare(t, d, []byte(line)), "%q", line)
	}
	// What is where a line has its first field, or its next one, can't be anywhere else.
	for _, lead := range []string{`{"index":3`, `,"time":1000000`, `,"odd":-12`, `, "time": 1000000`, `{"index": 3`} {
		compare(t, d, []byte(lead+sample[1:]))
		for at := range sample {
			compare(t, d, []byte(sample[:at]+lead+sample[at:]))
		}
	}
}

// Numbers and strings of any length with anything at any place of them, and lines that are a little different from a good one.
func TestDecoderReadsTheSameOfBrokenLines_NoRace(t *testing.T) {
	t.Parallel()
	d := newDecoder()
	rnd := rand.New(rand.NewPCG(1, 1))
	const odd = "{}[]\",:0123456789.eE+-\\/ut nf\xc3\xa9\x00\x1f\x7f\x80k"
	for range 5_000 {
		number := []byte(strconv.FormatUint(rnd.Uint64()>>rnd.IntN(64), 10))
		text := bytes.Repeat([]byte{'k'}, rnd.IntN(30))
		for _, value := range [][]byte{number, text} {
			if rnd.IntN(2) == 0 && len(value) > 0 {
				value[rnd.IntN(len(value))] = odd[rnd.IntN(len(odd))]
			}
		}
		compare(t, d, []byte(`{"time":1,"process":2,"type":"ok","op":"acquire","lease":`+string(number)+`,"lock":"`+string(text)+`"}`))
		line := []byte(sample)
		for range 1 + rnd.IntN(3) {
			at := rnd.IntN(len(line))
			switch rnd.IntN(3) {
			case 0:
				line[at] = odd[rnd.IntN(len(odd))]
			case 1:
				line = append(line[:at], line[at+1:]...)
			default:
				line = append(line[:at], append([]byte{odd[rnd.IntN(len(odd))]}, line[at:]...)...)
			}
		}
		compare(t, d, line)
	}
}

func FuzzDecoder(f *testing.F) {
	f.Add([]byte(sample))
	d := newDecoder()
	f.Fuzz(func(t *testing.T, line []byte) { compare(t, d, line) })
}

func BenchmarkDecode(b *testing.B) {
	d, line := newDecoder(), []byte(sample)
	for name, decode := range map[string]func() error{
		"ours":          func() error { return d.decode(line) },
		"encoding/json": func() error { return json.Unmarshal(line, &Event{}) },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				require.NoError(b, decode())
			}
		})
	}
}
