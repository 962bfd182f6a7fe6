//go:build !unix

package spawn

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

func attributes() *syscall.SysProcAttr { return nil }

func joining() *syscall.SysProcAttr { return nil }

// Kill ends the process that leads a group: there are no groups here. That there is
// none any more is no error.
func Kill(group int) error {
	p, err := os.FindProcess(group)
	if err != nil {
		return nil //nolint:nilerr // it is gone
	}
	defer func() { _ = p.Release() }()
	if err := p.Kill(); !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// stop has all processes of a group stand still, which this system can't.
func stop(int) error { return unsupported("stop a process") }

// Continue lets the processes of a group go on, which this system can't.
func Continue(int) error { return unsupported("let a process go on") }

// Gone reports whether there is no process of that number.
func Gone(pid int) bool {
	p, err := os.FindProcess(pid)
	if err != nil {
		return true
	}
	return p.Release() != nil
}

// Detach does nothing: there is no terminal whose end a process would have to survive.
func Detach(*exec.Cmd) {}

func unsupported(what string) error {
	return fmt.Errorf("%s on %s: %w", what, runtime.GOOS, errors.ErrUnsupported)
}
