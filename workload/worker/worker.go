// Package worker runs a client of a lock as an operating system's process of
// its own, so that it can be stopped and killed by itself, in the middle of
// whatever it does.
//
// The process is told over its standard input what to do ([Serve]), and answers
// over its standard output, in JSON lines: what it recorded, stamped by the
// monotonic clock that all processes of a machine have; what it wants of a
// resource, which stays with the harness; and how each order ended. [Start]
// is the harness's end of both.
package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/internal/spawn"
	"github.com/lockchaos/lockchaos/workload"
)

// A Config says what a worker is. All fields but NodeName and Stderr are
// required.
type Config struct {
	// Name is the client's.
	Name string
	// Path and Args are the program that calls [Serve], Args without its own
	// name: this one, as a rule, by another subcommand.
	Path string
	Args []string
	// Setup is what the program's [Opener] is given, as JSON.
	Setup any
	// Started is told the worker's process group before the worker is told anything;
	// optional.
	Started func(group int) error
	// Recorder merges what the worker records: see [history.Recorder.AwaitMerges].
	Recorder *history.Recorder
	// Processes hands out the worker's processes.
	Processes *workload.Processes
	// NodeName is how the history calls the server at an address; nil: by the
	// address.
	NodeName func(address string) string
	// Stderr is where the worker complains; nil: nowhere.
	Stderr io.Writer
}

// A Client is the harness's end of a worker. It does one thing at a time, like
// a [workload.Client], which is what the worker has. Close it.
type Client struct {
	config Config
	cmd    *exec.Cmd
	in     io.WriteCloser
	ready  chan error    // told once
	gone   chan struct{} // closed when the process is gone and all was read

	mu        sync.Mutex
	enc       *json.Encoder // to in
	orders    int
	waiting   map[int]chan done
	resources map[string]workload.Resource
	numbers   map[int]int           // of the worker's processes, in the history
	open      map[int]history.Event // what each of them is doing
	latest    *history.Event        // by the client itself and not its watchdog
	holding   bool
	owner     string
	ending    bool // it is to end: by Kill, or by Close
	killed    bool
	died      error // it ended by itself
	exit      error // as the operating system says
}

// startTimeout bounds how long a worker may take to be ready.
const startTimeout = 20 * time.Second

// variable is set for a worker. A program that does not know that it is to be
// one, and starts workers itself, would never come to an end.
const variable = "LOCKCHAOS_WORKER"

// Start starts a worker and waits until it has its lock. It ends with the
// harness, in whatever way that ends. A worker can't start workers.
func Start(ctx context.Context, c Config) (*Client, error) {
	if os.Getenv(variable) != "" {
		return nil, fmt.Errorf("start client %s: we are such a client ourselves (%s is set)", c.Name, variable)
	}
	setup, err := json.Marshal(c.Setup)
	if err != nil {
		return nil, fmt.Errorf("start client %s: %w", c.Name, err)
	}
	base, err := sinceZero(c.Recorder.Start())
	if err != nil {
		return nil, fmt.Errorf("start client %s: %w", c.Name, err)
	}
	w := &Client{
		config: c, ready: make(chan error, 1), gone: make(chan struct{}),
		waiting: map[int]chan done{}, resources: map[string]workload.Resource{},
		numbers: map[int]int{}, open: map[int]history.Event{},
	}
	w.cmd = exec.CommandContext(context.WithoutCancel(ctx), c.Path, c.Args...)
	w.cmd.Args[0] = os.Args[0] // a program may tell by its name what it is
	w.cmd.Env = append(os.Environ(), variable+"=1")
	w.cmd.Stderr = c.Stderr
	if w.in, err = w.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start client %s: %w", c.Name, err)
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start client %s: %w", c.Name, err)
	}
	if err := spawn.Start(w.cmd); err != nil {
		return nil, fmt.Errorf("start client %s: %w", c.Name, err)
	}
	w.enc = json.NewEncoder(w.in)
	go w.listen(context.WithoutCancel(ctx), out)
	if c.Started != nil {
		if err := c.Started(w.cmd.Process.Pid); err != nil {
			return nil, errors.Join(fmt.Errorf("start client %s: %w", c.Name, err), w.Close())
		}
	}
	limited, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not ready after %v", startTimeout))
	defer cancel()
	err = w.send(fromHarness{Hello: &hello{Client: c.Name, Base: int64(base), Setup: setup}})
	if err == nil {
		select {
		case err = <-w.ready:
		case <-w.gone:
			err = errGone
		case <-limited.Done():
			err = context.Cause(limited)
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start client %s: %w", c.Name, err), w.Close())
	}
	return w, nil
}

// errGone says that there is no process.
var errGone = errors.New("its process is gone")

// send writes a line.
func (w *Client) send(line fromHarness) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.enc.Encode(line)
}

// listen reads what the worker writes, until it is gone.
func (w *Client) listen(ctx context.Context, out io.Reader) {
	defer close(w.gone)
	dec := json.NewDecoder(out)
	var end error
	for {
		var line fromWorker
		if end = dec.Decode(&line); end != nil {
			break // a line that was cut short was never said
		}
		switch {
		case line.Ready:
			w.ready <- nil
		case line.Failed != "":
			w.ready <- errors.New(line.Failed)
		case line.Event != nil:
			w.merge(*line.Event)
		case line.Want != nil:
			w.answer(ctx, *line.Want)
		case line.Done != nil:
			w.mu.Lock()
			w.holding, w.owner = line.Done.Holding, line.Done.Owner
			if c := w.waiting[line.Done.ID]; c != nil {
				c <- *line.Done
			}
			w.mu.Unlock()
		}
	}
	if !errors.Is(end, io.EOF) {
		_ = w.cmd.Process.Kill() // nothing that it says can be understood any more
	}
	exit := w.cmd.Wait()
	end = errors.Join(end, exit)
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.killed {
		w.exit = exit
	}
	if !w.ending {
		w.died = fmt.Errorf("the process of client %s ended by itself: %w", w.config.Name, end)
	}
}

// Died says that the process ended by itself, and how; nil if it did not. What
// the client was asked for since then did not happen.
func (w *Client) Died() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.died
}

// Exit says how the process failed when it was to end; nil if it ended in order, was
// killed, or has not ended.
func (w *Client) Exit() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.exit
}

// merge puts what the worker recorded into the history.
func (w *Client) merge(e history.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	number, ok := w.numbers[e.Process]
	if !ok {
		number = w.config.Processes.New()
		w.numbers[e.Process] = number
	}
	e.Process = number
	if e.Node != "" && w.config.NodeName != nil {
		e.Node = w.config.NodeName(e.Node)
	}
	if e.Type == history.Invoke {
		w.open[number] = e
	} else {
		delete(w.open, number)
	}
	switch e.Op {
	case history.Acquire, history.Release, history.Access:
		w.latest = &e
	default: // also by its watchdog
	}
	w.config.Recorder.Merge(e)
}

// answer does what the worker wants of a resource.
func (w *Client) answer(ctx context.Context, q resourceCall) {
	w.mu.Lock()
	r := w.resources[q.Resource]
	w.mu.Unlock()
	var a answer
	var err error
	fenced, _ := r.(workload.Fenced)
	switch {
	case q.Change != nil:
		err = r.Write(ctx, *q.Change)
	case q.Present == nil:
		a.Value, err = r.Read(ctx)
	case fenced != nil:
		err = fenced.Present(ctx, *q.Present)
	}
	switch {
	case errors.Is(err, workload.ErrRefused):
		a.Refused = true
	case err != nil:
		a.Error = err.Error()
	}
	_ = w.send(fromHarness{Answer: &a}) // a worker that is gone needs none
}

// order has the worker do something, and waits until that is done. It fails if
// the worker is gone, or does not answer before the context ends.
func (w *Client) order(ctx context.Context, o order) (done, error) {
	if deadline, ok := ctx.Deadline(); ok {
		o.Within = max(time.Until(deadline), 1)
	}
	answered := make(chan done, 1)
	w.mu.Lock()
	w.orders++
	o.ID = w.orders
	w.waiting[o.ID] = answered
	err := w.enc.Encode(fromHarness{Order: &o})
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.waiting, o.ID)
	}()
	if err != nil {
		return done{}, fmt.Errorf("client %s: %w", w.config.Name, err)
	}
	select {
	case d := <-answered:
		return d, nil
	case <-w.gone:
		return done{}, fmt.Errorf("client %s: %w", w.config.Name, errGone)
	case <-ctx.Done():
		return done{}, fmt.Errorf("client %s does not answer: %w", w.config.Name, context.Cause(ctx))
	}
}

// Do is [workload.Client.Do]. The resource stays here. The outcome is unknown if there was no answer.
func (w *Client) Do(ctx context.Context, a workload.Act, r workload.Resource) (history.Type, error) {
	w.mu.Lock()
	w.resources[a.Name] = r
	w.mu.Unlock()
	d, err := w.order(ctx, order{Act: a})
	switch {
	case err != nil:
		return history.Info, err
	case d.Refused:
		err = fmt.Errorf("%w: %s", workload.ErrRefused, d.Error)
	case d.Error != "":
		err = errors.New(d.Error)
	}
	return d.Outcome, err
}

// Holding is [workload.Client.Holding], as of the last answer.
func (w *Client) Holding() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.holding
}

// Owner is [workload.Client.Owner], as of the last answer.
func (w *Client) Owner() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.owner
}

// Name is the client's.
func (w *Client) Name() string { return w.config.Name }

// Pause stops the process with SIGSTOP, and waits until the kernel says that
// it stands still.
func (w *Client) Pause(ctx context.Context) error { return w.stand(ctx, spawn.Pause) }

// Resume lets a stopped process go on.
func (w *Client) Resume(ctx context.Context) error { return w.stand(ctx, spawn.Resume) }

// stand has the process stand still or go on, as long as it is there.
func (w *Client) stand(ctx context.Context, do func(ctx context.Context, group int) error) error {
	ctx, cancel := await.Unless(ctx, w.gone, errGone)
	defer cancel()
	return w.signal(func(group int) error { return do(ctx, group) })
}

func (w *Client) signal(send func(group int) error) error {
	select {
	case <-w.gone:
		return fmt.Errorf("signal client %s: %w", w.config.Name, errGone)
	default:
	}
	if err := send(w.cmd.Process.Pid); err != nil {
		return fmt.Errorf("signal client %s: %w", w.config.Name, err)
	}
	return nil
}

// Kill ends the process with SIGKILL, waits until it is gone, and records its
// crash: what it was doing may have happened.
func (w *Client) Kill(ctx context.Context) error {
	w.mu.Lock()
	w.ending, w.killed = true, true
	w.mu.Unlock()
	lived := max(time.Since(w.config.Recorder.Start()), 1) // 0 says nothing
	if err := w.signal(spawn.Kill); err != nil {
		return err
	}
	select {
	case <-w.gone:
	case <-ctx.Done():
		return fmt.Errorf("kill client %s: %w", w.config.Name, context.Cause(ctx))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.open {
		e.Type, e.Error = history.Info, "the client was killed"
		w.config.Recorder.Record(e)
	}
	crash := history.Event{Op: history.Crash, Type: history.Info, From: lived}
	if w.latest != nil {
		crash.Process, crash.Lock, crash.Owner = w.latest.Process, w.latest.Lock, w.latest.Owner
	} else {
		crash.Process = w.config.Processes.New()
	}
	w.config.Recorder.Record(crash)
	return nil
}

// closeTimeout is how long a worker may take to give up what it does.
const closeTimeout = 5 * time.Second

// Close ends the process: in order, if it can, by the end of its input. It is no
// crash. A second call does nothing.
func (w *Client) Close() error {
	w.mu.Lock()
	w.ending = true
	w.mu.Unlock()
	_ = w.signal(spawn.Continue) // it may be gone
	err := w.in.Close()
	if errors.Is(err, os.ErrClosed) {
		err = nil
	}
	select {
	case <-w.gone:
	case <-time.After(closeTimeout):
		if killed := w.signal(spawn.Kill); killed == nil {
			<-w.gone
		}
		err = errors.Join(err, fmt.Errorf("close client %s: it did not end by itself in %v", w.config.Name, closeTimeout))
	}
	return err
}
