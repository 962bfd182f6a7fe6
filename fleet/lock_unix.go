//go:build unix

package fleet

import (
	"errors"
	"os"
	"syscall"
)

// lock takes a file until it is closed or the process ends, and fails if another process has it. A file system that has
// no locks is no reason not to play.
func lock(f *os.File) error {
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		return err
	}
	return nil
}
