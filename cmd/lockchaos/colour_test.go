package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestColour(t *testing.T) {
	for _, tt := range []struct {
		name     string
		terminal bool
		env      map[string]string
		want     bool
	}{
		{"a terminal", true, nil, true},
		{"a file", false, nil, false},
		{"a terminal without colours", true, map[string]string{"TERM": "dumb"}, false},
		{"forced", false, map[string]string{"FORCE_COLOR": "1"}, true},
		{"forced on a terminal without", true, map[string]string{"CLICOLOR_FORCE": "1", "TERM": "dumb"}, true},
		{"forced to none", false, map[string]string{"FORCE_COLOR": "0"}, false},
		{"refused", true, map[string]string{"NO_COLOR": "1", "FORCE_COLOR": "1"}, false},
	} {
		require.Equal(t, tt.want, wantsColour(tt.terminal, func(name string) string { return tt.env[name] }), tt.name)
	}
}
