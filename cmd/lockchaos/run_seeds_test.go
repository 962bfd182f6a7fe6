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
	require.Equal(t, broken, gravest(ended, broken))
	require.Equal(t, broken, gravest(broken, ended))
	require.Equal(t, broken, gravest(verdictError(exitInvalid), broken))
	require.Equal(t, ended, gravest(ended, nil))
	require.Equal(t, ended, gravest(nil, ended))
	require.NoError(t, gravest(nil, nil))
}
