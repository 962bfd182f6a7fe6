package worker

import (
	"fmt"
	"syscall"
	"unsafe"
)

// clockMonotonic is CLOCK_MONOTONIC, which Go's own readings are of on Linux.
const clockMonotonic = 1

// monotonic reads the clock that all processes of a machine have.
func monotonic() (int64, error) {
	var ts syscall.Timespec
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		return 0, fmt.Errorf("read the monotonic clock: %w", errno)
	}
	return ts.Nano(), nil
}
