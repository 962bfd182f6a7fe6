package main

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// What could not be undone is told of, whichever of several runs ended first.
func TestTheUsersEndHidesNoOtherError(t *testing.T) {
	t.Parallel()
	ended := harnessError{fmt.Errorf("boot: %w", context.Canceled)}
	broken := harnessError{errors.New("heal cut: it is still cut")}
	require.Equal(t, broken, mostSevere(ended, broken))
	require.Equal(t, broken, mostSevere(broken, ended))
	require.Equal(t, broken, mostSevere(verdictError(exitInvalid), broken))
	require.Equal(t, ended, mostSevere(ended, nil))
	require.Equal(t, ended, mostSevere(nil, ended))
	require.NoError(t, mostSevere(nil, nil))
}
