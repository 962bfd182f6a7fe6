//go:build unix

package fleet

import (
	"errors"
	"os"
	"syscall"
)

// lock takes a file until it is closed or the process ends. If another process has it, lock waits or fails. A file system
// that has no locks is no reason not to play.
func lock(f *os.File, wait bool) error {
	how := syscall.LOCK_EX
	if !wait {
		how |= syscall.LOCK_NB
	}
	for {
		switch err := syscall.Flock(int(f.Fd()), how); {
		case errors.Is(err, syscall.EWOULDBLOCK):
			return err
		case !errors.Is(err, syscall.EINTR):
			return nil
		}
	}
}
