package harness

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/history"
)

// recorded calls do with every field of a struct that has a name in JSON.
func recorded(v reflect.Value, do func(reflect.Value)) {
	for field, value := range v.Fields() {
		switch name := field.Tag.Get("json"); {
		case field.Anonymous:
			recorded(value, do)
		case name != "-":
			do(value)
		}
	}
}

// A replay takes over every setting of the record, and records it again.
func TestReplay_keepsEverySetting(t *testing.T) {
	t.Parallel()
	var s settings
	n := 0
	recorded(reflect.ValueOf(&s).Elem(), func(v reflect.Value) {
		n++
		switch v.Kind() {
		case reflect.String:
			v.SetString(string(rune('a' + n)))
		case reflect.Bool:
			v.SetBool(true)
		case reflect.Float64:
			v.SetFloat(float64(n) + 0.5)
		default:
			v.SetInt(int64(n))
		}
	})
	b, err := json.Marshal(s)
	require.NoError(t, err)
	var fields map[string]any
	require.NoError(t, json.Unmarshal(b, &fields))
	require.Len(t, fields, n, "each has a name of its own")

	l := LockSpec{Name: "mutex"}
	r, err := Replay(history.Run{
		Topology: history.Topology{Name: "single"}, Lock: l.Name, Workload: "contended", Settings: b,
	}, Locks{l}, false)
	require.ErrorContains(t, err, "persistence", "such values no run has")
	require.Equal(t, s, settings{r.Length, r.Recorded, r.Servers, r.Options, r.Workload})
	again, err := r.settings()
	require.NoError(t, err)
	require.JSONEq(t, string(b), string(again))
}
