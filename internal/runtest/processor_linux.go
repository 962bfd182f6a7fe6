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
	looks        = 10                     // whose mean counts: a single one is often low where the machine has far too much to do
	between      = 20 * time.Millisecond  // two looks
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
	_ = await.Until(ctx, func() error { return syscall.Flock(int(turn.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }) // until no other test is about to start
	awaitCalm(ctx)
	time.AfterFunc(settling, func() { _ = turn.Close() }) // which gives the turn to the next one
}

// awaitCalm waits until the mean of several looks is low enough; on an idle machine, one will do.
func awaitCalm(ctx context.Context) {
	again := time.NewTicker(between)
	defer again.Stop()
	var last [looks]int
	for i, sum := 0, 0; ; i++ {
		n, ok := running()
		if !ok || i == 0 && n <= runtime.NumCPU() {
			return
		}
		sum += n - last[i%looks]
		last[i%looks] = n
		if i >= looks-1 && sum <= looks*perProcessor*runtime.NumCPU() {
			return
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return
		}
	}
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
