package simredis_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/simulation/simredis"
)

// BenchmarkSession is one request and its reply, with the protocol.
func BenchmarkSession(b *testing.B) {
	acquire := lock.Scripts()["acquire"]
	release := lock.Scripts()["release"]
	acquired := []string{"EVALSHA", simredis.Sha(acquire), "4", "{l}", "{l}:mark", "{l}:tickets", "{l}:token", "held r o", "60000", "", ""}
	released := []string{"EVALSHA", simredis.Sha(release), "4", "{l}", "{l}:mark", "{l}:tickets", "{l}:token", "held r o", "0", ""}
	for _, bench := range []struct {
		name     string
		requests [][]string
	}{
		{"get", [][]string{{"get", "k"}}},
		{"set", [][]string{{"set", "k", "value", "nx", "px", "60000"}, {"del", "k"}}},
		{"hset", [][]string{{"hset", "h", "a", "1", "b", "2"}}},
		{"zadd", [][]string{{"zadd", "z", "1", "a"}, {"zrem", "z", "a"}}},
		{"eval", [][]string{{"eval", "return redis.call('get', KEYS[1])", "1", "k"}}},
		{"eval-delete", [][]string{{"eval", "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end", "1", "k", "v"}}},
		{"acquire-release", [][]string{acquired, released}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			now := int64(start)
			s := simredis.New(simredis.Host{Now: func() int64 { now += 10; return now }, Propagate: func(simredis.Batch) {}})
			defer s.Close()
			require.NotNil(b, s.Do("SCRIPT", "LOAD", acquire))
			require.NotNil(b, s.Do("SCRIPT", "LOAD", release))
			failed := false
			c := s.Open(func(b []byte) { failed = failed || b[0] == '-' })
			requests := make([][]byte, len(bench.requests))
			for i, args := range bench.requests {
				requests[i] = simredis.AppendCommand(nil, args...)
			}
			b.ReportAllocs()
			for b.Loop() {
				for _, r := range requests {
					c.Receive(r)
				}
			}
			require.False(b, failed)
		})
	}
}
