package proxynet

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
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
	for tries := 1; err != nil && tries < tableTries; tries++ {
		inode, err = socketInode(from, to)
	}
	if err != nil {
		return ""
	}
	// Nearly always it is the process itself, or a child: the others of the machine
	// are looked at last, since a client waits, and they may be many.
	for group, endpoint := range groups {
		if familyHasSocket(group, inode) {
			return endpoint
		}
	}
	processes := processTable()
	for pid := range processes {
		if endpoint := belongs(processes, pid, groups); endpoint != "" && hasSocket(pid, inode) {
			return endpoint
		}
	}
	return ""
}

// familyHasSocket tells whether a process has a socket open, or one that descends
// from it. Kernels without lists of children know of the process alone.
func familyHasSocket(pid int, inode string) bool {
	if hasSocket(pid, inode) {
		return true
	}
	lists, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task", "*", "children"))
	if err != nil {
		return false
	}
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

// A process as its table has it.
type process struct{ parent, group int }

// processTable lists the processes of the machine. One that ends while it is
// read is left out.
func processTable() map[int]process {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	table := map[int]process{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue
		}
		// The name of the program may have blanks and brackets: see proc(5).
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) < 3 {
			continue
		}
		parent, _ := strconv.Atoi(fields[1])
		group, _ := strconv.Atoi(fields[2])
		table[pid] = process{parent, group}
	}
	return table
}

// belongs is the endpoint that a process, or one that it descends from, is of.
func belongs(table map[int]process, pid int, groups map[int]string) string {
	for range len(table) { // a table that was read while it changed may have a circle
		p, ok := table[pid]
		if !ok {
			return ""
		}
		if endpoint := groups[p.group]; endpoint != "" {
			return endpoint
		}
		pid = p.parent
	}
	return ""
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

// tableTries is how often the kernel's tables are read: a socket may be left out of
// a table where others come and go while it is read.
const tableTries = 3

// inodeField is the place of the inode in a line of the kernel's tables, counted from
// the local address.
const inodeField = 8

// socketInode finds the socket at the other end of a connection of this machine. A
// kernel without sock_diag(7) has its tables read.
func socketInode(from, to netip.AddrPort) (string, error) {
	if inode, err := askKernel(from, to); err == nil {
		return inode, nil
	}
	return listedInode(from, to)
}

// listedInode finds the socket in the tables of /proc.
func listedInode(from, to netip.AddrPort) (string, error) {
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(table)
		if err != nil {
			continue // a machine without IPv6 has no such table
		}
		six := table == "/proc/net/tcp6"
		ends := []byte(" " + tableAddress(from, six) + " " + tableAddress(to, six) + " ")
		// A machine has thousands of sockets, most of them closed already. Taking each
		// line apart would keep the client waiting beyond its own timeout.
		if at := bytes.Index(text, ends); at >= 0 {
			line, _, _ := bytes.Cut(text[at:], []byte("\n"))
			if fields := strings.Fields(string(line)); len(fields) > inodeField {
				return fields[inodeField], nil
			}
		}
	}
	return "", fmt.Errorf("no socket of this machine is connected from %v to %v", from, to)
}

// tableAddress writes an address as the kernel's tables do: words of 32 bits in
// the machine's order, then the port.
func tableAddress(at netip.AddrPort, six bool) string {
	raw := at.Addr().Unmap().AsSlice()
	if six {
		all := netip.AddrFrom16(at.Addr().As16()).As16()
		raw = all[:]
	}
	var s strings.Builder
	for ; len(raw) >= 4; raw = raw[4:] {
		word := make([]byte, 4)
		binary.BigEndian.PutUint32(word, binary.NativeEndian.Uint32(raw))
		s.WriteString(strings.ToUpper(hex.EncodeToString(word)))
	}
	return fmt.Sprintf("%s:%04X", s.String(), at.Port())
}
