package spawn

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lockchaos/lockchaos/internal/await"
)

// A Family is a process with all that it starts: also what forks twice, leads a session of its own and
// clears its environment. It is a control group (version 2) of the kernel, which no process can leave
// that has no right to write to others. Its text is the group's folder.
type Family string

// NewFamily makes a family without processes, which Kill ends. Its error says why this machine has
// none: see [Families].
func NewFamily() (*Family, error) {
	if err := Families(); err != nil {
		return nil, err
	}
	return newFamily()
}

// Start starts the first process of the family as [Start] does.
func (f *Family) Start(cmd *exec.Cmd) error {
	dir, err := os.Open(string(*f))
	if err != nil {
		return err
	}
	defer dir.Close()
	cmd.SysProcAttr = attributes()
	cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
	return start(cmd)
}

// endLimit bounds how long the kernel may take to end the processes of a family.
const endLimit = 10 * time.Second

// Kill ends all processes of the family, and the family once they have ended.
func (f *Family) Kill() error {
	err := os.WriteFile(filepath.Join(string(*f), "cgroup.kill"), []byte("1"), 0)
	ctx, cancel := context.WithTimeout(context.Background(), endLimit) // what ends a driver must not be called off
	defer cancel()
	if err = errors.Join(err, await.Until(ctx, func() error { return syscall.Rmdir(string(*f)) })); err != nil {
		return fmt.Errorf("end all processes of a family: %w", err)
	}
	return nil
}

// Families says why this machine has no families of processes; nil if it has. They need Linux 5.14, and a
// control group of version 2 that this process may divide: root may, and systemd gives one to services with
// Delegate=yes and to sessions of users.
var Families = sync.OnceValue(func() error { //nolint:gochecknoglobals // it is asked for once
	f, err := newFamily()
	if err != nil {
		return err
	}
	cmd := exec.Command("/bin/sh", "-c", ":")
	if err = f.Start(cmd); err == nil {
		err = cmd.Wait()
	}
	return errors.Join(err, f.Kill())
})

const familyPrefix = "lockchaos-"

var families atomic.Int64 //nolint:gochecknoglobals // the names of those of this process

func newFamily() (*Family, error) {
	parent, err := Group()
	if err != nil {
		return nil, err
	}
	endOrphaned(parent)
	f := Family(filepath.Join(parent, fmt.Sprintf("%s%d-%d", familyPrefix, os.Getpid(), families.Add(1))))
	if err := os.Mkdir(string(f), 0o755); err != nil {
		return nil, err
	}
	return &f, nil
}

// endOrphaned ends the families of a process that was killed.
func endOrphaned(parent string) {
	entries, _ := os.ReadDir(parent)
	for _, e := range entries {
		var pid int
		if n, _ := fmt.Sscanf(e.Name(), familyPrefix+"%d-", &pid); n == 1 && Gone(pid) {
			f := Family(filepath.Join(parent, e.Name()))
			_ = f.Kill()
		}
	}
}

// Group is the folder of the control group that this process is in.
func Group() (string, error) {
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	defer mounts.Close()
	for lines := bufio.NewScanner(mounts); lines.Scan(); {
		// 26 25 0:23 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw: see proc_pid_mountinfo(5)
		mount, of, _ := strings.Cut(lines.Text(), " - ")
		fields := strings.Fields(mount)
		if len(fields) < 5 || !strings.HasPrefix(of, "cgroup2 ") {
			continue
		}
		for group := range strings.Lines(string(groups)) {
			if in, ok := strings.CutPrefix(strings.TrimSpace(group), "0::"); ok {
				return filepath.Join(fields[4], strings.TrimPrefix(in, fields[3])), nil
			}
		}
	}
	return "", errors.New("no control groups of version 2 are mounted")
}

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

func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
