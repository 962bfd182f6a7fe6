package faults_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lockchaos/lockchaos/faults"
)

func TestOnceHealsOnceAndTriesAgainAfterAFailure(t *testing.T) {
	calls := 0
	heal := faults.Once(func(context.Context) (string, error) {
		calls++
		if calls == 1 {
			return "", errors.New("not yet")
		}
		return "healed", nil
	})
	_, err := heal(t.Context())
	require.Error(t, err)
	effect, err := heal(t.Context())
	require.NoError(t, err)
	require.Equal(t, "healed", effect)
	effect, err = heal(t.Context())
	require.NoError(t, err)
	require.Empty(t, effect)
	require.Equal(t, 2, calls)
}

func TestDrawnSchedules(t *testing.T) {
	choices := []faults.Choice{
		{Fault: "cut", Min: time.Second, Max: 3 * time.Second},
		{Fault: "latency", Params: map[string]string{"latency": "5-50", "stream": "both", "odd": "x-y"}, Min: time.Second, Max: time.Second},
		{Fault: "reset"},
	}
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		length := time.Duration(rapid.IntRange(1, 120).Draw(t, "seconds")) * time.Second
		draw := func() faults.Schedule { return faults.Draw(rand.New(rand.NewPCG(seed, 0)), choices, length) }
		plan := draw()
		require.Equal(t, plan, draw(), "the same generator gives the same plan")
		end := time.Duration(0)
		seen := map[string]int{}
		for _, step := range plan {
			require.GreaterOrEqual(t, step.At, end+faults.QuietLeast)
			end = step.At + step.For
			require.LessOrEqual(t, end, length-faults.QuietEnd)
			seen[step.Fault]++
			if step.Fault == "latency" {
				require.Equal(t, time.Second, step.For)
				require.Equal(t, "both", step.Params["stream"])
				require.Equal(t, "x-y", step.Params["odd"])
				n, err := strconv.Atoi(step.Params["latency"])
				require.NoError(t, err)
				require.GreaterOrEqual(t, n, 5)
				require.LessOrEqual(t, n, 50)
			}
		}
		for _, a := range seen {
			for _, b := range seen {
				require.LessOrEqual(t, a-b, 1, "no fault is drawn twice more often than another: %v", seen)
			}
		}
	})
	require.Equal(t, "5-50", choices[1].Params["latency"], "the choices are left alone")
	require.Empty(t, faults.Draw(rand.New(rand.NewPCG(1, 1)), nil, time.Minute))
}
