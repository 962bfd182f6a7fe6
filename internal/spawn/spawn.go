// Package spawn starts processes that do not outlive the one that started them, and
// signals them. On Linux the kernel sees to it; elsewhere it is up to the caller.
package spawn

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"

	"github.com/lockchaos/lockchaos/internal/await"
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

// Pause has all processes of a group stand still, and waits until the kernel says so of each thread of the one that
// leads it. Resume lets them go on, and waits for that.
func Pause(ctx context.Context, group int) error { return turn(ctx, group, stop, true) }

// Resume undoes Pause.
func Resume(ctx context.Context, group int) error { return turn(ctx, group, goOn, false) }

func turn(ctx context.Context, group int, send func(group int) error, still bool) error {
	if err := send(group); err != nil {
		return err
	}
	return await.Until(ctx, func() error { return stand(group, still) })
}

// stand fails unless all threads of a process stand still, or none does.
func stand(pid int, still bool) error {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid)) // the pattern is good
	if len(files) == 0 {
		return errors.New("it has no threads")
	}
	for _, file := range files {
		stat, err := os.ReadFile(file)
		if err != nil { // a thread may have ended
			continue
		}
		// The state, T for stopped, follows the thread's name, which is in brackets.
		_, after, _ := strings.Cut(string(stat), ") ")
		if state, _, _ := strings.Cut(after, " "); (state == "T") != still {
			return fmt.Errorf("a thread of it is still %s", state)
		}
	}
	return nil
}
