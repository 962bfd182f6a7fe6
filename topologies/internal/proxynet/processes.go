package proxynet

import (
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Adopt has the connections of a process group, and of all processes that it
// started, pass the links of an endpoint, whatever address they dial from. It is for
// clients that can't be told to bind one, such as those of another language. The
// function that it returns ends that; open connections stay.
func (f *Network) Adopt(group int, endpoint string) (end func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.groups[group] = endpoint
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.groups, group)
	}
}

// adopted is the endpoint whose process has the other end of a connection; empty if
// there is none.
func (f *Network) adopted(from, to netip.AddrPort) string {
	f.mu.Lock()
	groups := maps.Clone(f.groups)
	f.mu.Unlock()
	if len(groups) == 0 {
		return ""
	}
	inode, err := socketInode(from, to)
	if err != nil {
		return ""
	}
	for group, endpoint := range groups {
		if familyHasSocket(group, inode) {
			return endpoint
		}
	}
	processes, _ := filepath.Glob("/proc/[0-9]*") // the pattern is good
	for _, p := range processes {                 // one whose parent has ended is known by its group
		pid, err := strconv.Atoi(filepath.Base(p))
		if endpoint := groups[groupOf(pid)]; err == nil && endpoint != "" && hasSocket(pid, inode) {
			return endpoint
		}
	}
	return ""
}

// familyHasSocket tells whether a process has a socket open, or one that descends
// from it.
func familyHasSocket(pid int, inode string) bool {
	if hasSocket(pid, inode) {
		return true
	}
	lists, _ := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task", "*", "children")) // the pattern is good
	for _, list := range lists {
		children, err := os.ReadFile(list)
		if err != nil {
			continue // the thread has ended
		}
		for child := range strings.FieldsSeq(string(children)) {
			if id, err := strconv.Atoi(child); err == nil && familyHasSocket(id, inode) {
				return true
			}
		}
	}
	return false
}

// hasSocket tells whether a process has a socket open.
func hasSocket(pid int, inode string) bool {
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	want := "socket:[" + inode + "]"
	for _, e := range entries {
		if link, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil && link == want {
			return true
		}
	}
	return false
}
