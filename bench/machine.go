package bench

import (
	"os"
	"runtime"
	"slices"
	"strings"
)

// A Machine is what the figures hold for.
type Machine struct {
	OS     string `json:"os"`
	Arch   string `json:"arch"`
	CPU    string `json:"cpu,omitempty"`
	Cores  int    `json:"cores"`
	Memory string `json:"memory,omitempty"`
	Go     string `json:"go"`
	Redis  string `json:"redis"`
	// Procs is how many processors Go uses, Kernel the release of the system, Virtual says that
	// a hypervisor shares out the processors, and Governor how their frequency is chosen; where
	// the system tells it.
	Procs    int    `json:"procs"`
	Kernel   string `json:"kernel,omitempty"`
	Virtual  bool   `json:"virtual,omitempty"`
	Governor string `json:"governor,omitempty"`
	// Load is the load average when the run began, where the system tells it:
	// much more than 0 means that others worked as well.
	Load string `json:"load,omitempty"`
}

// thisMachine is to be asked before anything starts that adds to the load.
func thisMachine() Machine {
	m := Machine{OS: runtime.GOOS, Arch: runtime.GOARCH, Cores: runtime.NumCPU(), Procs: runtime.GOMAXPROCS(0), Go: runtime.Version()}
	m.CPU = field("/proc/cpuinfo", "model name")
	m.Memory = field("/proc/meminfo", "MemTotal")
	m.Kernel = firstLineOf("/proc/sys/kernel/osrelease")
	m.Virtual = slices.Contains(strings.Fields(field("/proc/cpuinfo", "flags")), "hypervisor")
	m.Governor = firstLineOf("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
	if load := strings.Fields(firstLineOf("/proc/loadavg")); len(load) >= 3 {
		m.Load = strings.Join(load[:3], " ")
	}
	return m
}

// firstLineOf is the first line of a file, or empty.
func firstLineOf(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return firstLine(strings.TrimSpace(string(b)))
}

// field is the first value of that name in a file of lines "name: value", or empty.
func field(path, name string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for line := range strings.SplitSeq(string(b), "\n") {
		if n, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(n) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
