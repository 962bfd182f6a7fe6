package bench

import (
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// A Machine is what the figures hold for.
type Machine struct {
	OS    string `json:"os"`
	Arch  string `json:"arch"`
	CPU   string `json:"cpu,omitempty"`
	Cores int    `json:"cores"`
	Go    string `json:"go"`
	Redis string `json:"redis"`
	// Procs is how many processors Go uses, and Virtual says that a hypervisor shares them out.
	Procs   int  `json:"procs"`
	Virtual bool `json:"virtual,omitempty"`
	// Load is the load average when the run began, where the system tells it:
	// much more than 0 means that others worked as well.
	Load string `json:"load,omitempty"`
}

// thisMachine is to be asked before anything starts that adds to the load.
func thisMachine() Machine {
	m := Machine{OS: runtime.GOOS, Arch: runtime.GOARCH, Cores: runtime.NumCPU(), Procs: runtime.GOMAXPROCS(0), Go: runtime.Version()}
	m.CPU = field("/proc/cpuinfo", "model name")
	m.Virtual = slices.Contains(strings.Fields(field("/proc/cpuinfo", "flags")), "hypervisor")
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.Load = strings.Join(strings.Fields(string(b))[:3], " ")
	}
	return m
}

// busyLoad is the load average of each core from which on a machine counts as busy.
const busyLoad = 0.5

// busy reports whether the machine did something else as well when the run began.
func (m Machine) busy() bool {
	minute, _, _ := strings.Cut(m.Load, " ")
	load, err := strconv.ParseFloat(minute, 64)
	return err == nil && load >= busyLoad*float64(m.Cores)
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
