package harness

import (
	"os"
	"runtime"
	"strings"

	"github.com/lockchaos/lockchaos/history"
)

// thisMachine describes the machine that the harness runs on.
func thisMachine() *history.Machine {
	m := &history.Machine{OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), Go: runtime.Version()}
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil { // only Linux has it
		m.Kernel = strings.TrimSpace(string(release))
	}
	return m
}
