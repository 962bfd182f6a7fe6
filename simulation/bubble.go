package simulation

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/lockchaos/lockchaos/harness"
)

// running is held by a run: each has the random numbers of the process.
var running sync.Mutex //nolint:gochecknoglobals // as they are

// bubble does something in a bubble. A bubble panics once all of its goroutines wait for
// each other, or some still do when it is over.
func bubble(t *testing.T, l harness.LockSpec, do func() error) (err error) {
	t.Helper()
	over := false
	defer func() {
		switch p := recover(); {
		case p == nil:
		case !strings.HasPrefix(fmt.Sprint(p), "deadlock: "):
			panic(p)
		case over:
			err = errors.Join(err, fmt.Errorf("lock %s leaves goroutines that wait for ever: have them end when the lock is closed\n%s", l.Name, waiting()))
		default:
			err = fmt.Errorf("lock %s never returns from a call: have it end with its context, and when the clients are closed\n%s", l.Name, waiting())
		}
	}()
	synctest.Test(t, func(*testing.T) {
		err = do()
		over = true
	})
	return err
}

// stacksLimit is how much of the stacks of goroutines is shown.
const stacksLimit = 8 << 10

// durable is how the runtime marks a goroutine that lets time go on while it waits.
const durable = "(durable)"

// waiting are the stacks of goroutines that wait in the bubble that was made last, those
// first that make time stand still.
func waiting() string {
	all := make([]byte, 1<<20)
	goroutines := strings.Split(string(all[:runtime.Stack(all, true)]), "\n\n")
	last, of := 0, map[int][]string{}
	for _, g := range goroutines {
		head, _, _ := strings.Cut(g, "\n")
		_, number, in := strings.Cut(head, "synctest bubble ")
		if n, err := strconv.Atoi(strings.TrimRight(number, "]:")); in && err == nil {
			last, of[n] = max(last, n), append(of[n], g)
		}
	}
	slices.SortStableFunc(of[last], func(a, b string) int {
		return strings.Count(strings.SplitN(a, "\n", 2)[0], durable) - strings.Count(strings.SplitN(b, "\n", 2)[0], durable)
	})
	stacks := strings.Join(of[last], "\n\n")
	return stacks[:min(len(stacks), stacksLimit)]
}

// asked says that the lock was granted without a request to the servers, and so not by them.
func (o *Outcome) asked(l harness.LockSpec) error {
	if n, _ := granted(o.events); l.InProcess != nil || o.Counts.Requests > 0 || n == 0 {
		return nil
	}
	return fmt.Errorf("lock %s was granted without a request to the simulated servers: it must reach them by the clients that it is given", l.Name)
}
