package faults_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

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
