package require_test

import (
	"fmt"
	"io"
	"testing"

	"github.com/lockchaos/lockchaos/lock/internal/require"
)

// recorder is a test that notes that it failed.
type recorder struct{ said string }

func (*recorder) Helper()            {}
func (r *recorder) Fatal(all ...any) { r.said = fmt.Sprint(all...) }

// Each assertion accepts what it must, and fails on what it must.
func TestAssertions(t *testing.T) {
	wrapped := fmt.Errorf("read: %w", io.EOF)
	tests := []struct {
		name         string
		right, wrong func(t require.Test)
	}{
		{"NoError", func(t require.Test) { require.NoError(t, nil) }, func(t require.Test) { require.NoError(t, io.EOF) }},
		{"Error", func(t require.Test) { require.Error(t, io.EOF) }, func(t require.Test) { require.Error(t, nil) }},
		{"ErrorIs", func(t require.Test) { require.ErrorIs(t, wrapped, io.EOF) }, func(t require.Test) { require.ErrorIs(t, nil, io.EOF) }},
		{"ErrorContains", func(t require.Test) { require.ErrorContains(t, wrapped, "read") }, func(t require.Test) { require.ErrorContains(t, nil, "read") }},
		{"ErrorContains, another", func(t require.Test) { require.ErrorContains(t, wrapped, "EOF") }, func(t require.Test) { require.ErrorContains(t, wrapped, "write") }},
		{"Equal", func(t require.Test) { require.Equal(t, []int{1}, []int{1}) }, func(t require.Test) { require.Equal(t, []int{1}, []int{2}) }},
		{"Equal, types", func(t require.Test) { require.Equal(t, int64(1), int64(1)) }, func(t require.Test) { require.Equal(t, 1, int64(1)) }},
		{"True", func(t require.Test) { require.True(t, true) }, func(t require.Test) { require.True(t, false) }},
		{"False", func(t require.Test) { require.False(t, false) }, func(t require.Test) { require.False(t, true) }},
		{"Zero", func(t require.Test) { require.Zero(t, 0) }, func(t require.Test) { require.Zero(t, 1) }},
		{"Len", func(t require.Test) { require.Len(t, []int{4, 5}, 2) }, func(t require.Test) { require.Len(t, []int{4, 5}, 3) }},
	}
	for _, tt := range tests {
		right, wrong := &recorder{}, &recorder{}
		tt.right(right)
		tt.wrong(wrong)
		if right.said != "" || wrong.said == "" {
			t.Errorf("%s: said %q of what is right, %q of what is wrong", tt.name, right.said, wrong.said)
		}
	}
}

func TestMessages(t *testing.T) {
	r := &recorder{}
	require.Equal(r, 1, 2, "step %d", 7)
	if want := "got 2; want 1: step 7"; r.said != want {
		t.Errorf("got %q; want %q", r.said, want)
	}
}
