package crew_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/internal/crew"
)

func TestAPanicGoesOnInWait(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	outer := crew.Crew{Failed: func() { close(ended) }}
	var done [2]bool
	outer.Go(func() {
		var inner crew.Crew
		inner.Go(fails)
		inner.Go(func() { done[0] = true })
		inner.Wait()
	})
	outer.Go(func() {
		<-ended
		done[1] = true
	})
	defer func() {
		p, ok := recover().(*crew.Panic)
		require.True(t, ok)
		require.Equal(t, "a defect", p.Value)
		require.Contains(t, p.String(), "crew_test.fails")
		require.Equal(t, [2]bool{true, true}, done)
	}()
	outer.Wait()
}

func fails() { panic("a defect") }
