package process

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// reaperScript ends what a killed harness left: the process groups that were
// announced to it and still work inside the folder, then the folder. It waits
// for the end of its input, which comes when the harness dies in whatever way.
const reaperScript = `
trap '' INT TERM HUP QUIT
dir=$1; pids=
while read -r pid; do pids="$pids $pid"; done
for pid in $pids; do
	case $(readlink "/proc/$pid/cwd") in "$dir"/*) kill -KILL -- "-$pid" ;; esac
done
tries=0
until rm -rf -- "$dir" || [ "$tries" -ge 50 ]; do tries=$((tries + 1)); sleep 0.1; done
[ ! -e "$dir" ]
`

// A reaper is a process that outlives us for a moment to tidy up.
type reaper struct {
	cmd   *exec.Cmd
	input io.WriteCloser
}

// startReaper must come before anything is put into dir, an absolute path
// without links.
func startReaper(dir string) (*reaper, error) {
	cmd := exec.CommandContext(context.Background(), "/bin/sh", "-c", reaperScript, "lockchaos-reaper", dir)
	cmd.Dir = os.TempDir()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start reaper: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start reaper: %w", err)
	}
	return &reaper{cmd: cmd, input: input}, nil
}

// watch tells the reaper of a process group.
func (r *reaper) watch(pid int) error {
	if _, err := io.WriteString(r.input, strconv.Itoa(pid)+"\n"); err != nil {
		return fmt.Errorf("tell reaper: %w", err)
	}
	return nil
}

// close lets the reaper do its work and waits for it.
func (r *reaper) close() error {
	if err := r.input.Close(); err != nil {
		return fmt.Errorf("stop reaper: %w", err)
	}
	if err := r.cmd.Wait(); err != nil {
		return fmt.Errorf("stop reaper: %w", err)
	}
	return nil
}
