//go:build !linux

package worker

import (
	"fmt"
	"runtime"
)

// monotonic fails: it takes a clock that all processes of a machine have, and that
// Go's own readings are of.
func monotonic() (int64, error) {
	return 0, fmt.Errorf("clients that are processes of their own need Linux, and this is %s", runtime.GOOS)
}
