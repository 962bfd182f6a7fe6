// Package spawn starts processes that do not outlive the one that started them, and
// signals them. On Linux the kernel sees to it; elsewhere it is up to the caller.
package spawn

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// Start starts cmd in a process group of its own. On Linux the kernel kills the
// process when ours ends, in whatever way, even if it stands still then.
func Start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = attributes()
	return start(cmd)
}

func start(cmd *exec.Cmd) error {
	failed := make(chan error)
	starts() <- func() { failed <- cmd.Start() }
	return <-failed
}

// starts are carried out on one OS thread that never ends: the kernel sends a
// child its death signal when the thread that forked it ends, not only when
// the process does. It is one for the whole process, since the thread is never
// given back.
var starts = sync.OnceValue(thread) //nolint:gochecknoglobals // see above

func thread() chan<- func() {
	s := make(chan func())
	go func() {
		runtime.LockOSThread()
		for start := range s {
			start()
		}
		select {} // the thread must outlive its children
	}()
	return s
}

// Gone reports whether there is no process of that number.
func Gone(pid int) bool {
	p, err := os.FindProcess(pid)
	return err == nil && errors.Is(p.Signal(syscall.Signal(0)), os.ErrProcessDone)
}
