//go:build !linux

package spawn

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"
)

// A Family is a process with all that it starts. Only Linux has families.
type Family struct{}

// NewFamily fails: only Linux has families.
func NewFamily() (*Family, error) { return nil, Families() }

// Start starts the first process of the family as [Start] does.
func (*Family) Start(cmd *exec.Cmd) error { return Start(cmd) }

// Kill does nothing.
func (*Family) Kill() error { return nil }

// Families says why this machine has no families of processes.
func Families() error {
	return fmt.Errorf("%s has no control groups: %w", runtime.GOOS, errors.ErrUnsupported)
}

// Group fails: only Linux has control groups.
func Group() (string, error) { return "", Families() }

// KillWith does nothing: only Linux tells the environment of other processes.
func KillWith(string) {}
