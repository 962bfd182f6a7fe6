package main

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseSeeds(t *testing.T) {
	for _, tt := range []struct {
		give string
		want []uint64
	}{
		{"7", []uint64{7}},
		{"1-4", []uint64{1, 2, 3, 4}},
		{"3,7,20-22", []uint64{3, 7, 20, 21, 22}},
		{"18446744073709551614-18446744073709551615", []uint64{1<<64 - 2, 1<<64 - 1}},
	} {
		got, err := parseSeeds(tt.give)
		require.NoError(t, err)
		require.Equal(t, tt.want, got)
	}
	for _, bad := range []string{"", "-3", "1-", "4-1", "1,,2", "1-3,3", "a", "1.5", "0-18446744073709551615", "1-600000,600001-1000001"} {
		_, err := parseSeeds(bad)
		require.Error(t, err, bad)
	}
}

// What could not be undone is told of, whichever of several runs ended first.
func TestTheUsersEndHidesNoOtherError(t *testing.T) {
	t.Parallel()
	ended := harnessError{fmt.Errorf("boot: %w", context.Canceled)}
	broken := harnessError{errors.New("heal cut: it is still cut")}
	require.Equal(t, broken, gravest(ended, broken))
	require.Equal(t, broken, gravest(broken, ended))
	require.Equal(t, broken, gravest(verdictError(exitInvalid), broken))
	require.Equal(t, ended, gravest(ended, nil))
	require.Equal(t, ended, gravest(nil, ended))
	require.NoError(t, gravest(nil, nil))
}
