package worker

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// monotonic reads the clock that all processes of a machine have, which Go's own readings are of on Linux.
func monotonic() (int64, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0, fmt.Errorf("read the monotonic clock: %w", err)
	}
	return ts.Nano(), nil
}
