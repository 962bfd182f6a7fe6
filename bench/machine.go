package bench

import (
	"os"
	"runtime"
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
	// Load is the load average when the run began, where the system tells it:
	// much more than 0 means that others worked as well.
	Load string `json:"load,omitempty"`
}

func thisMachine(redis string) Machine {
	m := Machine{OS: runtime.GOOS, Arch: runtime.GOARCH, Cores: runtime.NumCPU(), Go: runtime.Version(), Redis: redis}
	m.CPU = field("/proc/cpuinfo", "model name")
	m.Memory = field("/proc/meminfo", "MemTotal")
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.Load = strings.Join(strings.Fields(string(b))[:3], " ")
	}
	return m
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
