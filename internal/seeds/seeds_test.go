package seeds_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/internal/seeds"
)

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		give string
		want []uint64
	}{
		{"7", []uint64{7}},
		{"1-4", []uint64{1, 2, 3, 4}},
		{"3,7,20-22", []uint64{3, 7, 20, 21, 22}},
		{"18446744073709551614-18446744073709551615", []uint64{1<<64 - 2, 1<<64 - 1}},
	} {
		got, err := seeds.Parse(tt.give)
		require.NoError(t, err)
		require.Equal(t, tt.want, got)
	}
	for _, bad := range []string{"", "-3", "1-", "4-1", "1,,2", "1-3,3", "a", "1.5", "0-18446744073709551615", "1-600000,600001-1000001"} {
		_, err := seeds.Parse(bad)
		require.Error(t, err, bad)
	}
}
