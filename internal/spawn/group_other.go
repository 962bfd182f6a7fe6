//go:build !unix

package spawn

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"
)

func attributes() *syscall.SysProcAttr { return nil }

// Kill ends all processes of a group, which this system can't: nothing that lockchaos starts runs on it.
func Kill(int) error { return unsupported() }

// stop has all processes of a group stand still, which this system can't.
func stop(int) error { return unsupported() }

// goOn lets the processes of a group go on, which this system can't.
func goOn(int) error { return unsupported() }

func unsupported() error {
	return fmt.Errorf("groups of processes on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}
