//go:build unix

package spawn

import (
	"errors"
	"os/exec"
	"syscall"
)

// Kill ends all processes of a group. That there is none any more is no error.
func Kill(group int) error {
	if err := syscall.Kill(-group, syscall.SIGKILL); !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

// stop has all processes of a group stand still.
func stop(group int) error { return syscall.Kill(-group, syscall.SIGSTOP) }

// goOn lets the processes of a group go on.
func goOn(group int) error { return syscall.Kill(-group, syscall.SIGCONT) }

// Detach has cmd, which was not started yet, survive the end of our terminal.
func Detach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }
