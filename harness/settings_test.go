package harness_test

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/locks"
)

// A replay takes over every setting of the record, and records it again.
func TestReplay_keepsEverySetting(t *testing.T) {
	t.Parallel()
	s := &history.Settings{}
	for i, f := range reflect.ValueOf(s).Elem().Fields() {
		switch f.Kind() {
		case reflect.String:
			f.SetString(i.Name)
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Float64:
			f.SetFloat(float64(i.Index[0] + 1))
		default:
			f.SetInt(int64(i.Index[0] + 1))
		}
	}
	r, err := harness.Replay(history.Run{
		Topology: history.Topology{Name: "single"}, Lock: "mutex", Workload: "contended", Settings: s,
	}, locks.All())
	require.ErrorContains(t, err, "Persistence", "such values no run has")
	require.Equal(t, s, harness.SettingsOf(r))
}
