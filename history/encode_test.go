package history

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// byJSON is the line that encoding/json writes.
func byJSON(tb require.TestingT, e *Event) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	require.NoError(tb, enc.Encode(e))
	return b.String()
}

// lineOf is the line that appendEvent writes.
func lineOf(e *Event) string {
	line, _ := appendEvent(nil, e)
	return string(line)
}

// text is any string: plain words, what must be escaped, and what is no text.
var text = rapid.OneOf(
	rapid.SampledFrom([]string{"", "ok", "lock-1", "<b>&amp;'\"\\/", "\x00\x1f\x7f\b\f\n\r\t", "\u2028\u2029\ufffd", "\xff\xc3", "é\xe2\x80", "𝄞"}),
	rapid.String(),
	rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }),
)

// anyEvent fills every field that an event has, also those that it may get yet.
func anyEvent(t *rapid.T) *Event {
	e := &Event{}
	for field, v := range reflect.ValueOf(e).Elem().Fields() {
		if !rapid.Bool().Draw(t, "has "+field.Name) {
			continue
		}
		switch v.Kind() {
		case reflect.Int, reflect.Int64:
			v.SetInt(rapid.Int64().Draw(t, field.Name))
		case reflect.String:
			v.SetString(text.Draw(t, field.Name))
		case reflect.Bool:
			v.SetBool(rapid.Bool().Draw(t, field.Name))
		case reflect.Pointer:
			if v.Type().Elem().Kind() == reflect.Bool {
				v.Set(reflect.ValueOf(rapid.Ptr(rapid.Bool(), true).Draw(t, field.Name)))
			} else {
				v.Set(reflect.ValueOf(rapid.Ptr(rapid.Int64(), true).Draw(t, field.Name)))
			}
		case reflect.Map:
			v.Set(reflect.ValueOf(rapid.MapOf(text, text).Draw(t, field.Name)))
		case reflect.Slice:
			v.Set(reflect.ValueOf(rapid.SliceOf(rapid.Map(text, func(s string) Effect { return Effect(s) })).Draw(t, field.Name)))
		default:
			t.Fatalf("field %s is a %v: fill it here", field.Name, v.Kind())
		}
	}
	return e
}

func TestEncoderWritesWhatEncodingJSONWrites(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		e := anyEvent(t)
		require.Equal(t, byJSON(t, e), lineOf(e))
	})
}

// Every character, and every pair of bytes.
func TestEncoderWritesEveryCharacter(t *testing.T) {
	t.Parallel()
	same := func(s string) {
		e := &Event{Lock: s}
		if want, got := byJSON(t, e), lineOf(e); want != got {
			require.Equal(t, want, got)
		}
	}
	const some = 0x1000
	for first := rune(0); first <= utf8.MaxRune; first += some {
		var chars strings.Builder
		for c := first; c < first+some; c++ {
			chars.WriteRune(c)
		}
		same(chars.String())
	}
	for first := range 0x100 {
		var pairs []byte
		for second := range 0x100 {
			pairs = append(pairs, byte(first), byte(second), '.')
		}
		same(string(pairs))
	}
}

func FuzzEncoder(f *testing.F) {
	f.Add(int64(3), int64(1_000_000), "acquire", "lock-1", "key", "value", true)
	f.Add(int64(-1), int64(0), "", "\u2028\xff<", "\x7f", "\\", false)
	f.Fuzz(func(t *testing.T, n, at int64, op, s, key, value string, yes bool) {
		e := &Event{
			Index: n, Time: time.Duration(at), Process: int(n), Op: Op(op), Lock: s, Owner: value, Mode: Mode(s), Token: at,
			Params: map[string]string{key: value, s: op}, Life: Life(s), Clock: s, Effects: []Effect{Effect(value), Cuts}, Error: value + s, Fair: yes, Fenced: &yes,
		}
		require.Equal(t, byJSON(t, e), lineOf(e))
	})
}
