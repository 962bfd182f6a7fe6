package faults_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/faults"
)

// What the table says of a fault is what decides whether a run of the mix "safe"
// draws it.
func TestDrawsSayWhatIsSafe(t *testing.T) {
	all, err := faults.Draws()
	require.NoError(t, err)
	cells := map[string]string{}
	for _, d := range all {
		for i, environment := range faults.DrawEnvironments() {
			for _, name := range d.Faults {
				cells[strings.Join([]string{name, d.Target, environment}, "/")] += d.On[i]
			}
		}
	}
	for cell, want := range map[string]string{
		"cut/links of clients/single":                         "safe",
		"kill/the server of a lock/single":                    "safe with persistence any",
		"kill/the server of a lock/sentinel":                  "safe with persistence any, acks of all",
		"pause/the server of a lock/cluster":                  "safe with acks of all",
		"power-cut/the server of a lock/single":               "safe with persistence always",
		"flush/the server of a lock/sentinel":                 "unsafe",
		"split-brain/a zone of clients/sentinel":              "safe with acks of all",
		"cut/links of clients/etcd":                           "safe",
		"bandwidth/links of clients/etcd":                     "",
		"split-brain/a zone of clients/single":                "",
		"planned-failover//single --access name":              "safe",
		"drop-message/links of clients/independent":           "",
		"pause/the server of a lock/etcd":                     "safe",
		"kill/the server of a lock/single --access name":      "safe with persistence any",
		"partition/a server/independent":                      "safe",
		"partition/a server/sentinel":                         "safe with acks of all",
		"migrate-slot//cluster":                               "safe",
		"power-cut/the server of a lock/single --access name": "safe with persistence always",
		"shutdown/the server of a lock/independent":           "safe with persistence any",
		"clock-rate/the server of a lock/independent":         "unsafe",
		"stall-disk/the server of a lock/sentinel":            "safe with acks of all",
		"restart-empty/the server of a lock/single":           "unsafe",
		"crash-failover//sentinel":                            "safe with acks of all",
	} {
		require.Equal(t, want, cells[cell], cell)
	}
}
