//go:build linux

package simredis_test

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// budget is how long the comparisons with a real server take, by
// LOCKCHAOS_SIMREDIS; LOCKCHAOS_SIMREDIS_SEED is where they begin.
func budget(t *testing.T) (limit time.Duration, seed uint64) {
	t.Helper()
	limit, seed = time.Second, 1
	if text := os.Getenv("LOCKCHAOS_SIMREDIS"); text != "" {
		var err error
		limit, err = time.ParseDuration(text)
		require.NoError(t, err)
	}
	if text := os.Getenv("LOCKCHAOS_SIMREDIS_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
		seed = n
	}
	return limit, seed
}

// A real and a simulated server give the same replies, byte for byte, to random
// commands and scripts of several sessions, while their clocks show the same.
func TestDifferential(t *testing.T) {
	p := newPair(t)
	limit, first := budget(t)
	end := time.Now().Add(limit)
	seed := first
	for ; time.Now().Before(end) && !t.Failed(); seed++ {
		g := newGenerator(seed)
		steps := g.steps(60)
		if d := p.play(t, steps); d != nil {
			p.fail(t, seed, steps, d)
		}
	}
	if !t.Failed() {
		t.Logf("%d commands in %d cases, none answered otherwise", p.steps, seed-first)
	}
}
