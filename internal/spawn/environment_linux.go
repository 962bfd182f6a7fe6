package spawn

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"syscall"
)

// KillWith kills the processes of this user that have an environment variable, given as
// NAME=VALUE: those that a program started, also where they left its process group. A
// process that cleared its environment is not found.
func KillWith(variable string) {
	proc, err := os.Open("/proc")
	if err != nil {
		return
	}
	defer proc.Close()
	names, _ := proc.Readdirnames(-1) // not by a pattern, which asks for the status of each file: half of the time
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == os.Getpid() {
			continue
		}
		environ, err := os.ReadFile("/proc/" + name + "/environ")
		if err != nil { // it has ended, or is another user's
			continue
		}
		if bytes.Contains(slices.Concat([]byte{0}, environ), []byte("\x00"+variable+"\x00")) {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
	}
}
