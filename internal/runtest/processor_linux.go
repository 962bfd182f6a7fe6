package runtest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/lockchaos/lockchaos/internal/await"
)

// Bounds of [AwaitProcessor].
const (
	perProcessor = 3                      // threads that run or want to, for each processor, beside which a test starts
	settling     = 250 * time.Millisecond // after a test has started, until the next one looks: its servers are there then
	patience     = 30 * time.Second       // after which a test starts anyway
)

// AwaitProcessor waits, at most for half a minute, until few enough threads of the machine
// want a processor, and lets one test after the other through, of all packages. It is
// called before a test starts servers: on a machine that has more to do than it can, more servers make
// those of other tests miss the deadlines of their elections. Only Linux tells; elsewhere it
// returns at once.
func AwaitProcessor(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	turn, err := os.OpenFile(filepath.Join(os.TempDir(), fmt.Sprintf("lockchaos-tests-%d.turn", os.Getuid())), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return
	}
	_ = await.Until(ctx, func() error {
		if err := syscall.Flock(int(turn.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			return fmt.Errorf("another test is about to start: %w", err)
		}
		if n, ok := running(); ok && n > perProcessor*runtime.NumCPU() {
			return fmt.Errorf("%d threads want a processor", n)
		}
		return nil
	})
	time.AfterFunc(settling, func() { _ = turn.Close() }) // which gives the turn to the next one
}

// running is how many threads of the machine run or want to.
func running() (n int, ok bool) {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0, false
	}
	fields := strings.Fields(string(text))
	if len(fields) < 4 {
		return 0, false
	}
	_, err = fmt.Sscanf(fields[3], "%d/", &n)
	return n, err == nil
}
