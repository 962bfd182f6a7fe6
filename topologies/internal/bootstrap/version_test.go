package bootstrap

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/topologies"
)

func TestNewEnough(t *testing.T) {
	tests := []struct {
		version string
		want    error
	}{
		{topologies.MinRedis, nil},
		{"7.0.15", nil},
		{"7.4", nil},
		{"8", nil},
		{"10.0.0", nil},
		{"6.2.14", topologies.ErrTooOld},
		{"6", topologies.ErrTooOld},
		{"latest", topologies.ErrUnusable},
		{"", topologies.ErrUnusable},
	}
	for _, tt := range tests {
		t.Run(tt.version, func(t *testing.T) { require.ErrorIs(t, NewEnough(topologies.StoreRedis, "x", tt.version), tt.want) })
	}
}

func TestParseVersion(t *testing.T) {
	version, err := ParseVersion(topologies.StoreRedis, "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=0\n")
	require.NoError(t, err)
	require.Equal(t, "7.0.15", version)
	_, err = ParseVersion(topologies.StoreRedis, "hello\n")
	require.EqualError(t, err, `no version of Redis in what it prints: "hello\n"`)

	const valkey = "Valkey server v=8.0.1 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=0\n"
	version, err = ParseVersion(topologies.StoreRedis, valkey)
	require.NoError(t, err)
	require.Equal(t, "8.0.1", version)
	require.Equal(t, "valkey", ParseProduct(valkey))
	require.Equal(t, "redis", ParseProduct("Redis server v=7.0.15 sha=0"))
	require.Equal(t, "redis", ParseProduct("v=7.0.0"))
}
