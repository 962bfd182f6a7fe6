package spawn

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// KillWith kills the processes of this user that have an environment variable, given as
// NAME=VALUE: those that a program started, also where they left its process group. A
// process that cleared its environment is not found.
func KillWith(variable string) {
	all, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range all {
		environ, err := os.ReadFile(path)
		if err != nil { // it has ended, or is another user's
			continue
		}
		for word := range bytes.SplitSeq(environ, []byte{0}) {
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil && pid != os.Getpid() && string(word) == variable {
				_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
			}
		}
	}
}
