package bench

import (
	"syscall"
	"time"
)

// processorTime is what this process has used so far.
func processorTime() (time.Duration, error) {
	self, err := syscall.GetCurrentProcess()
	if err != nil {
		return 0, err
	}
	var created, exited, kernel, user syscall.Filetime
	err = syscall.GetProcessTimes(self, &created, &exited, &kernel, &user)
	return ticks(kernel) + ticks(user), err
}

// ticks reads a duration in units of 100 ns.
func ticks(f syscall.Filetime) time.Duration {
	return time.Duration(int64(f.HighDateTime)<<32|int64(f.LowDateTime)) * 100
}
