package harness

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/faults"
)

// heldBack is a fault that names the link as its server does.
type heldBack struct{}

func (heldBack) Name() string { return "delay-command" }

func (heldBack) Inject(context.Context) (faults.Injection, error) {
	return faults.Injection{
		Effect:      "waits for the SET on zone-a>redis-1",
		AwaitFiring: func(context.Context) (string, error) { return "the SET on zone-a>redis-1 was held back", nil },
	}, nil
}

// What was observed of a fault of the resource names the resource, and no server of the locks.
func TestAFaultOfTheResourceNamesIt(t *testing.T) {
	f := onResource{heldBack{}, strings.NewReplacer("zone-a>redis-1", "zone-a>resource")}
	in, err := f.Inject(t.Context())
	require.NoError(t, err)
	require.Equal(t, "waits for the SET on zone-a>resource", in.Effect)
	effect, err := in.AwaitFiring(t.Context())
	require.NoError(t, err)
	require.Equal(t, "the SET on zone-a>resource was held back", effect)
	require.Equal(t, "delay-command", f.Name())
}
