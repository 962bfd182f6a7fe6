// Package spawn starts processes that do not outlive the one that started them, and
// signals them. On Linux the kernel sees to it; elsewhere it is up to the caller.
package spawn

import (
	"os/exec"
	"runtime"
	"sync"
)

// Start starts cmd in a process group of its own. On Linux the kernel kills the
// process when ours ends, in whatever way, even if it stands still then.
func Start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = attributes()
	return start(cmd)
}

// Join starts cmd as Start does, in the process group of this process.
func Join(cmd *exec.Cmd) error {
	cmd.SysProcAttr = joining()
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
