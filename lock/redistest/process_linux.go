package redistest

import (
	"os/exec"
	"runtime"
	"syscall"
)

// lockThread keeps the thread that starts a server alive: the server dies with
// that thread.
func lockThread() (unlock func()) {
	runtime.LockOSThread()
	return runtime.UnlockOSThread
}

// dieWithParent ends the server also when the test is killed.
func dieWithParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
