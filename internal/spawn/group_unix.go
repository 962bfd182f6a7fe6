//go:build unix

package spawn

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/lockchaos/lockchaos/internal/await"
)

// Kill ends all processes of a group. That there is none any more is no error.
func Kill(group int) error {
	if err := syscall.Kill(-group, syscall.SIGKILL); !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

// Pause has all processes of a group stand still, and waits until the kernel says so of each thread of the one that
// leads it. Resume lets them go on, and waits for that.
func Pause(ctx context.Context, group int) error { return turn(ctx, group, syscall.SIGSTOP, true) }

// Resume undoes Pause.
func Resume(ctx context.Context, group int) error { return turn(ctx, group, syscall.SIGCONT, false) }

func turn(ctx context.Context, group int, by syscall.Signal, still bool) error {
	if err := syscall.Kill(-group, by); err != nil {
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
