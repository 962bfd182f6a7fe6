package container

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// An owner tells which process a deployment belongs to, beyond the reuse of
// process ids.
type owner struct {
	boot    string // of the host
	space   string // in which the process id means something
	process int
	start   string // of the process, in ticks after the boot
}

// self is this process.
func self() (owner, error) {
	o, err := here()
	if err != nil {
		return owner{}, err
	}
	o.process = os.Getpid()
	o.start, _, err = processState(o.process)
	return o, err
}

// here is an owner without a process.
func here() (owner, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return owner{}, fmt.Errorf("tell this boot from others: %w", err)
	}
	space, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return owner{}, fmt.Errorf("tell this machine's processes from others: %w", err)
	}
	return owner{boot: strings.TrimSpace(string(boot)), space: space}, nil
}

// String is what [parseOwner] reads.
func (o owner) String() string {
	return strings.Join([]string{o.boot, o.space, strconv.Itoa(o.process), o.start}, "/")
}

func parseOwner(s string) (owner, bool) {
	parts := strings.Split(s, "/")
	if len(parts) != 4 {
		return owner{}, false
	}
	process, err := strconv.Atoi(parts[2])
	return owner{boot: parts[0], space: parts[1], process: process, start: parts[3]}, err == nil
}

// dead tells whether the process is known to have ended. Of one in another
// space of process ids, nothing is known.
func (o owner) dead() (bool, error) {
	now, err := here()
	if err != nil {
		return false, err
	}
	if o.boot != now.boot {
		return true, nil
	}
	if o.space != now.space {
		return false, nil
	}
	start, state, err := processState(o.process)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return start != o.start || state == "Z", nil
}

// processState reads when a process started and the letter of its state.
func processState(pid int) (start, state string, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", "", err
	}
	// The rest follows the command's name, which is in brackets.
	_, rest, _ := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')'):]), ") ")
	fields := strings.Fields(rest)
	const stateAt, startAt = 0, 19 // the 3rd and the 22nd of proc(5)
	if len(fields) <= startAt {
		return "", "", fmt.Errorf("read the state of process %d: %q", pid, stat)
	}
	return fields[startAt], fields[stateAt], nil
}
