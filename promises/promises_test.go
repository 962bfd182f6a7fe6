package promises_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/promises"
)

// A driver says what it promises by these names.
func ExamplePromises() {
	text, err := json.Marshal(promises.Full(promises.Promises{Token: true, Place: true, ReplicaAcks: true}))
	fmt.Println(string(text), err)
	// Output: {"extend":true,"lost":true,"token":true,"wait":true,"release_tells":true} <nil>
}

// Each gap is closed by one promise, and what is not known says nothing.
func TestPromises_Missing(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]promises.Promises{
		promises.NoAcks: {ReplicaAcks: true}, promises.NoExtend: {Extend: true}, promises.NoLost: {Lost: true},
		promises.NoPlace: {Place: true}, promises.NoReleaseTells: {ReleaseTells: true}, promises.NoToken: {Token: true},
	} {
		missing := p.Missing()
		require.Len(t, missing, len(promises.Gaps())-3) // two are of other kinds of lock
		require.NotContains(t, missing, name)
		require.True(t, slices.IsSorted(missing))
	}
	for name, p := range map[string]promises.Promises{promises.NoDowngrades: {Kind: "rw", Downgrades: true}, promises.NoSeveral: {Kind: "semaphore", Several: true}} {
		require.NotContains(t, p.Missing(), name)
		require.Contains(t, promises.Promises{Kind: p.Kind}.Missing(), name)
	}
	require.Empty(t, promises.TextOf("of the future"))
	require.Contains(t, promises.TextOf(promises.NoToken), "not judged")
}
