package main

import (
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/harness"
)

// settingsOf are the settings of a run that its record keeps, by their names in JSON.
func settingsOf(r reflect.Value) map[string]any {
	all := map[string]any{}
	for field, value := range r.Fields() {
		switch name, _, _ := strings.Cut(field.Tag.Get("json"), ","); {
		case name == "-", field.Name == "Lock":
		case name != "":
			all[name] = value.Interface()
		case value.Kind() == reflect.Struct:
			maps.Copy(all, settingsOf(value))
		}
	}
	return all
}

// Each setting that run.json keeps has one flag of the same name, which changes nothing
// else, and is in the description of the file.
func TestRunFlags_reachEverySetting(t *testing.T) {
	t.Parallel()
	values := map[string]string{"int": "7", "duration": "7s", "float64": "7.5", "bool": "true", "string": "seven"}
	names := slices.Sorted(maps.Keys(settingsOf(reflect.ValueOf(harness.RandomRun{}))))
	require.NotEmpty(t, names)
	format, err := os.ReadFile("../../docs/history-format.md")
	require.NoError(t, err)
	_, row, found := strings.Cut(string(format), "\n| `settings` |")
	require.True(t, found)
	row, _, _ = strings.Cut(row, "\n")
	for _, name := range names {
		require.Contains(t, row, "`"+name+"`")
		var o runOptions
		cmd := &cobra.Command{}
		o.register(cmd)
		want := settingsOf(reflect.ValueOf(o.RandomRun))
		f := cmd.Flag(strings.ReplaceAll(name, "_", "-"))
		require.NotNil(t, f, "setting %s has no flag", name)
		require.NoError(t, f.Value.Set(values[f.Value.Type()]))
		got := settingsOf(reflect.ValueOf(o.RandomRun))
		require.NotEqual(t, want[name], got[name], "--%s sets %s", f.Name, name)
		want[name] = got[name]
		require.Equal(t, want, got, "--%s sets nothing but %s", f.Name, name)
	}
}
