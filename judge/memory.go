package judge

import (
	"context"
	"fmt"
	"math"
	"os"
	"path"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/internal/spawn"
)

// measureEvery is how often the memory is measured.
const measureEvery = 2 * time.Millisecond

// easeMemory is how much memory the commands check, report and compare take of the machine, in bytes, before the collector works harder and
// the search gives up, where the user sets no other limit by GOMEMLIMIT: half of what is available, as far as the system
// tells. At a third more the program ends.
func easeMemory() int64 {
	const unknown, tooLittle = 768 << 20, 64 << 20
	available := int64(math.MaxInt64)
	if text, err := os.ReadFile("/proc/meminfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > 1 && f[0] == "MemAvailable:" {
				if kb, err := strconv.ParseInt(f[1], 10, 64); err == nil {
					available = kb << 10
				}
			}
		}
	}
	for _, file := range groupLimits() {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil { // else it is "max"
			available = min(available, limit)
		}
	}
	if available == math.MaxInt64 {
		return unknown
	}
	return max(available/2, tooLittle)
}

// groupLimits are the files that may say how much memory the control groups of the program have.
func groupLimits() []string {
	files := []string{"/sys/fs/cgroup/memory/memory.limit_in_bytes"} // of version 1
	group, err := spawn.Group()
	for ; err == nil && group != "/"; group = path.Dir(group) {
		files = append(files, path.Join(group, "memory.max"))
	}
	return files
}

// An easeError is why the search gives up: how much memory it may take, in bytes.
type easeError uint64

func (e easeError) Error() string {
	return fmt.Sprintf("it takes more than %d MB of memory to search for an order of its operations (GOMEMLIMIT=%dMiB would allow twice that)", e>>20, e>>19)
}

// A MemoryError is why a command ended: how much memory it may take, in bytes.
type MemoryError uint64

func (e MemoryError) Error() string {
	return fmt.Sprintf("it takes more than %d MB of memory, the most that lockchaos takes (GOMEMLIMIT=%dMiB would allow twice that)", e>>20, e>>19*3/4)
}

// Bounded runs work that may take much memory for some input. It cancels the
// context at the first bound. At the second one it returns a [MemoryError] without
// waiting for the work, which nothing can stop, and so it does when ctx ends: the program
// must end then.
func Bounded(ctx context.Context, work func(context.Context) error) error {
	soft := debug.SetMemoryLimit(-1)
	if soft == math.MaxInt64 {
		soft = easeMemory()
	}
	ease, most := uint64(max(soft, 0)), uint64(max(soft, 0)/3*4)
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(soft))
	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	done := make(chan error, 1)
	go func() { done <- work(working) }()
	tick := time.NewTicker(measureEvery)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-ctx.Done(): // what is read may be a pipe without a writer
			return context.Cause(ctx)
		case <-tick.C:
			of := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
			metrics.Read(of)
			switch taken := of[0].Value.Uint64() - of[1].Value.Uint64(); { // what the program has of the machine's memory
			case taken > most:
				return MemoryError(most)
			case taken > ease:
				stop(easeError(ease))
			}
		}
	}
}
