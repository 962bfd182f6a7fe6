//go:build linux

package simredis_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/simulation/simredis"
)

// freePorts are TCP ports that nothing listens on, below those that the kernel gives to
// clients, so that none becomes a client's before the server has it.
func freePorts(t *testing.T, n int) []string {
	t.Helper()
	var ports []string
	for try := 0; len(ports) < n; try++ {
		require.Less(t, try, 1000, "no free port")
		port := strconv.Itoa(20000 + rand.IntN(10000))
		l, err := net.Listen("tcp", "127.0.0.1:"+port)
		if err == nil {
			defer l.Close()
			ports = append(ports, port)
		}
	}
	return ports
}

// What a simulated server propagates makes of another what a real replica
// becomes, whose master is given the same commands.
func TestDifferentialOfReplicas(t *testing.T) {
	port := freePorts(t, 1)[0]
	p := newPair(t, "--port", port, "--repl-diskless-sync", "no")
	p.replica = startReal(t, "--port", "0", "--replicaof", "127.0.0.1 "+port)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	reads := p.replica.dial(t)
	require.NoError(t, await.Until(ctx, func() error {
		if r := reads.do(t, "ROLE"); !strings.Contains(r, "connected") {
			return errors.New("the replica isn't connected: " + r)
		}
		return nil
	}))
	limit, first := budget(t)
	end := time.Now().Add(limit)
	compared := 0
	for seed := first; time.Now().Before(end) && !t.Failed(); seed++ {
		steps := newGenerator(seed).steps(40)
		if d := p.play(t, steps); d != nil {
			p.fail(t, seed, steps, d)
			break
		}
		// The connections of p may be in a transaction, which RESET ends.
		p.control.do(t, "DEL", "nothing")
		require.Equal(t, ":1\r\n", p.control.do(t, "WAIT", "1", "20000"))

		var out bytes.Buffer
		mine := simredis.New(alone(func() int64 { return p.replica.micros }))
		session := mine.Open(func(b []byte) { out.Write(b) })
		mine.SetReplica(true)
		for _, b := range p.batches {
			require.Equal(t, mine.Offset(), b.Start)
			mine.Apply(b)
		}
		for _, args := range dump("{l}:a", "{l}:b", "{l}:c", "{l}:d") {
			session.Take([][]string{args})
			theirs := reads.do(t, args...)
			if !alike(args, theirs, out.String()) {
				t.Errorf("seed %d: replicas differ after %v: %q\n   real %q\n   mine %q\n   propagated %+v", seed, steps, args, theirs, out.String(), p.batches)
			}
			out.Reset()
			compared++
		}
		mine.Close()
	}
	require.NotZero(t, compared)
	t.Logf("%d replies of replicas are the same, after %d commands of masters", compared, p.steps)
}
