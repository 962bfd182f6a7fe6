//go:build !unix

package spawn

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"syscall"
)

func attributes() *syscall.SysProcAttr { return nil }

// Kill ends all processes of a group, which this system can't: nothing that lockchaos starts runs on it.
func Kill(int) error { return unsupported() }

// Pause has all processes of a group stand still, which this system can't.
func Pause(context.Context, int) error { return unsupported() }

// Resume lets the processes of a group go on, which this system can't.
func Resume(context.Context, int) error { return unsupported() }

func unsupported() error {
	return fmt.Errorf("groups of processes on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}
