package history

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// slowly is what encoding/json makes of a line, field by field.
func slowly(line []byte) (Event, error) {
	object, err := objectOf(line, wantObject)
	if err != nil {
		return Event{}, err
	}
	var e Event
	had, given := map[string]bool{}, map[string]bool{}
	if err := members(object, func(key string, value json.RawMessage) error {
		at := slices.IndexFunc(Fields(), func(f Field) bool { return strings.EqualFold(f.Name, key) })
		switch {
		case at < 0:
			return nil
		case key != Fields()[at].Name:
			return fmt.Errorf("field %+q: write it as %q", clipped(key), Fields()[at].Name)
		case had[key]:
			return fmt.Errorf("field %q is there twice", key)
		}
		had[key] = true
		if string(value) == "null" {
			return nil
		}
		given[key] = true
		return fill(key, Fields()[at].Of(&e), value)
	}); err != nil {
		return Event{}, err
	}
	switch {
	case !given["time"]:
		return Event{}, errors.New(`missing "time" (nanoseconds since the run began)`)
	case !given["process"]:
		return Event{}, errors.New(`missing "process"`)
	}
	return e, e.Validate()
}

func newDecoder() *decoder { return &decoder{seed: maphash.MakeSeed()} }

// compare checks that the decoder reads of a line what encoding/json reads, errors included.
func compare(t *testing.T, d *decoder, line []byte) {
	t.Helper()
	var fast Event
	err := d.decode(line, &fast)
	slow, want := slowly(line)
	if want != nil {
		require.EqualError(t, err, want.Error(), "%q", line)
		return
	}
	require.NoError(t, err, "%q", line)
	require.Equal(t, slow, fast, "%q", line)
	var again Event
	require.NoError(t, json.Unmarshal(line, &again), "%q", line)
	require.Equal(t, again, fast, "%q", line)
}

const sample = `{"index":3,"time":1000000,"process":1,"type":"ok","op":"acquire","lock":"k","owner":"a","mode":"permit","permits":2,` +
	`"lease":5,"expires":3000000000,"token":1,"holds":2,"queued":7,"node":"n","error":"","why":"because","odd":-12,"yes":true,"fenced":null}`

func TestDecoderReadsTheSame(t *testing.T) {
	t.Parallel()
	d := newDecoder()
	for _, line := range []string{
		sample, sample + "\r\n", " \t" + strings.ReplaceAll(sample, ",", " , ") + "  ", strings.ReplaceAll(sample, `"k"`, `"k\u00e9"`),
		strings.ReplaceAll(sample, `"k"`, `"ké"`), strings.ReplaceAll(sample, `"k"`, "\"k\xff\""), strings.ReplaceAll(sample, `"k"`, "\"k\n\""),
		strings.ReplaceAll(sample, `"time"`, `"TIME"`), strings.ReplaceAll(sample, `"lock"`, `"loc\u006b"`), strings.ReplaceAll(sample, `"lock"`, "\"loc\u212a\""),
		strings.ReplaceAll(sample, `"lease":5`, `"lease":5.0`), strings.ReplaceAll(sample, `"lease":5`, `"lease":5e3`), strings.ReplaceAll(sample, `"lease":5`, `"lease":05`),
		strings.ReplaceAll(sample, `"lease":5`, `"lease":-0`), strings.ReplaceAll(sample, `"lease":5`, `"lease":-`), strings.ReplaceAll(sample, `"lease":5`, `"lease":null`),
		strings.ReplaceAll(sample, `"lease":5`, `"lease":"5"`), strings.ReplaceAll(sample, `"lease":5`, `"lease":9223372036854775807`), strings.ReplaceAll(sample, `"lease":5`, `"lease":9223372036854775808`),
		strings.ReplaceAll(sample, `"lease":5`, `"lease":5,"lease":6`), strings.ReplaceAll(sample, `"lease":5`, `"lease":null,"lease":6`), strings.ReplaceAll(sample, `"k"`, `"\ud800"`),
		strings.ReplaceAll(sample, `"permits":2`, `"permits":2147483648`), strings.ReplaceAll(sample, `"lease":5`, `"lease":2305843009213693952`), strings.ReplaceAll(sample, `"queued":7`, `"queued":-7`), strings.ReplaceAll(sample, `"yes":true`, `"yes":trueish`), strings.ReplaceAll(sample, `"yes":true`, `"yes":[1,{"a":2}]`),
		strings.ReplaceAll(sample, `"yes":true`, `"params":{"a":"b"}`), strings.ReplaceAll(sample, `"yes":true`, `"life":"lasting","effects":["cuts","else"]`),
		strings.ReplaceAll(sample, `"yes":true`, `"effects":null`), strings.ReplaceAll(sample, `"yes":true`, `"effects":"cuts"`), strings.ReplaceAll(sample, `"yes":true`, `"effects":[1]`), strings.ReplaceAll(sample, `"yes":true`, `"life":1`), strings.ReplaceAll(sample, `"fenced":null`, `"fenced":null`), strings.ReplaceAll(sample, `"odd":-12`, `"odd":-1.5e9`),
		`{}`, `{} x`, `{`, `{"time"`, `{"time":`, `{"time":1`, `{"time":1,`, `{"time":1,}`, `[]`, `null`, `1`, `"x"`, ``, `{"":1}`, `{"time":1,"process":2}`, `{"process":2}`, `{"time":1}`,
		`{"time":1,"process":3.5}`, `{"time":1,"process":-1,"type":"ok","op":"observe","node":"n","what":"key","value":"k a"}`,
		`{"time":1,"process":1,"type":"invoke","op":"extend","lock":"k","holds":-2}`,
	} {
		compare(t, d, []byte(line))
	}
}

// What is where a line has its first field, or its next one, can't be anywhere else.
func TestDecoderReadsTheSameOfLeadsInOtherPlaces(t *testing.T) {
	t.Parallel()
	for _, spaced := range []string{sample, strings.NewReplacer(`":`, `": `, `,"`, `, "`).Replace(sample)} {
		d := newDecoder()
		compare(t, d, []byte(spaced))
		for _, lead := range []string{`{"index":3`, `,"time":1000000`, `,"odd":-12`, `, "time": 1000000`, `{"index": 3`} {
			compare(t, d, []byte(lead+spaced))
			compare(t, d, []byte(lead+spaced[1:]))
			for at := range spaced {
				compare(t, d, []byte(spaced[:at]+lead+spaced[at:]))
			}
		}
	}
}

// Numbers and strings of any length, and with anything at any place of them.
func TestDecoderReadsTheSameValues_NoRace(t *testing.T) {
	t.Parallel()
	d := newDecoder()
	rnd := rand.New(rand.NewPCG(1, 2))
	const odd = "\"\\\x00\x1f\x7f\x80\xc3\xa9/:.eE-+ }"
	for range 20_000 {
		number := []byte(strconv.FormatUint(rnd.Uint64()>>rnd.IntN(64), 10))
		text := bytes.Repeat([]byte{'k'}, rnd.IntN(30))
		for _, value := range [][]byte{number, text} {
			if rnd.IntN(2) == 0 && len(value) > 0 {
				value[rnd.IntN(len(value))] = odd[rnd.IntN(len(odd))]
			}
		}
		compare(t, d, []byte(`{"time":1,"process":2,"type":"ok","op":"acquire","lease":`+string(number)+`,"lock":"`+string(text)+`"}`))
	}
}

// Any line that is a little different from a good one.
func TestDecoderReadsTheSameOfBrokenLines_NoRace(t *testing.T) {
	t.Parallel()
	d := newDecoder()
	rnd := rand.New(rand.NewPCG(1, 1))
	const spices = "{}[]\",:0123456789.eE+-\\ut nf\xc3\xa9\x00k"
	for range 20_000 {
		line := []byte(sample)
		for range 1 + rnd.IntN(3) {
			at := rnd.IntN(len(line))
			switch rnd.IntN(3) {
			case 0:
				line[at] = spices[rnd.IntN(len(spices))]
			case 1:
				line = append(line[:at], line[at+1:]...)
			default:
				line = append(line[:at], append([]byte{spices[rnd.IntN(len(spices))]}, line[at:]...)...)
			}
		}
		compare(t, d, line)
	}
}

func FuzzDecoder(f *testing.F) {
	f.Add([]byte(sample))
	f.Add([]byte(`{"time":1,"process":-1,"type":"invoke","op":"inject","fault":"pause","params":{"for":"1s"}}`))
	d := newDecoder()
	f.Fuzz(func(t *testing.T, line []byte) {
		if !bytes.Contains(line, []byte("\n")) {
			compare(t, d, line)
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	d := newDecoder()
	line := []byte(sample)
	b.Run("ours", func(b *testing.B) {
		b.SetBytes(int64(len(line)))
		var e Event
		for b.Loop() {
			if err := d.decode(line, &e); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("encoding/json", func(b *testing.B) {
		b.SetBytes(int64(len(line)))
		var e Event
		for b.Loop() {
			if err := json.Unmarshal(line, &e); err != nil {
				b.Fatal(err)
			}
		}
	})
}
