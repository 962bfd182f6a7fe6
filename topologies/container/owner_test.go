package container

import (
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAnOwnerIsDeadOnlyIfItIsKnownToBe(t *testing.T) {
	me, err := self()
	require.NoError(t, err)
	child := exec.CommandContext(t.Context(), "sleep", "60")
	require.NoError(t, child.Start())
	start, _, err := processState(child.Process.Pid)
	require.NoError(t, err)
	ended := me
	ended.process, ended.start = child.Process.Pid, start
	dead, err := ended.dead()
	require.NoError(t, err)
	require.False(t, dead, "it runs")
	require.NoError(t, child.Process.Kill())
	// Nobody has waited for it yet: it is a zombie, and soon nothing.
	require.Eventually(t, func() bool {
		dead, err = ended.dead()
		return err != nil || dead
	}, time.Minute, time.Millisecond)
	require.NoError(t, err)
	require.Error(t, child.Wait())

	with := func(change func(*owner)) owner {
		o := me
		change(&o)
		return o
	}
	tests := []struct {
		name string
		o    owner
		dead bool
	}{
		{"we", me, false},
		{"one that has ended", ended, true},
		{"one whose process id was used again", with(func(o *owner) { o.start = "1" }), true},
		{"one before the last boot", with(func(o *owner) { o.boot = "another" }), true},
		{"one that counts its processes otherwise", with(func(o *owner) { o.space, o.process = "pid:[1]", 1<<30 }), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			read, ok := parseOwner(tt.o.String())
			require.True(t, ok)
			require.Equal(t, tt.o, read)
			dead, err := read.dead()
			require.NoError(t, err)
			require.Equal(t, tt.dead, dead)
		})
	}
	for _, s := range []string{"", "a/b/c", "a/b/c/d", "a/b/1/d/e"} {
		_, ok := parseOwner(s)
		require.False(t, ok, "%q", s)
	}
}
