package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/workload"
)

// An Opener makes the lock of a worker, of what [Config.Setup] says. The lock's
// watchdog, if it has one, tells the observer of its renewals. The function
// that is returned closes the lock.
type Opener func(setup json.RawMessage, o lock.Observer) (lock.Locker, func(), error)

// Serve is the worker's end: it does as it is told on in, one thing after the
// other, and answers on out, until in or the context ends. What it is doing
// then is given up.
func Serve(ctx context.Context, in io.Reader, out io.Writer, open Opener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &server{enc: json.NewEncoder(out), answers: make(chan answer), orders: make(chan order, mostOrders), gone: make(chan struct{})}
	dec := json.NewDecoder(in)
	var first fromHarness
	if err := dec.Decode(&first); err != nil || first.Hello == nil {
		return errors.Join(errors.New("read orders: the first line must say hello"), err)
	}
	base, err := instant(first.Hello.Base)
	if err != nil {
		return err
	}
	recorder := history.NewRelay(relayed{s}, base)
	var processes workload.Processes
	locker, closeLock, err := open(first.Hello.Setup, workload.NewRenewals(recorder, &processes))
	if err != nil {
		return errors.Join(fmt.Errorf("open lock: %w", err), s.send(fromWorker{Failed: err.Error()}))
	}
	defer closeLock()
	c := &workload.Client{
		Name: first.Hello.Client, Locker: locker, Recorder: recorder, Processes: &processes,
		Careless: true, // what it does when is the harness's business
	}
	if err := s.send(fromWorker{Ready: true}); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() {
		defer cancel()
		ended <- s.read(ctx, dec)
	}()
	for {
		select {
		case o := <-s.orders:
			if err := s.send(fromWorker{Done: s.do(ctx, c, o)}); err != nil {
				return err
			}
		case <-c.LostUnleased():
			c.NoticeLost() // at once: no lease says when the hold ended
		case <-ctx.Done():
			select {
			case err := <-ended:
				return err
			default: // it still reads, and nothing waits for that
				return ctx.Err()
			}
		}
	}
}

// mostOrders is how many may lie there undone, because the harness did not wait
// for them: answers must get past them.
const mostOrders = 1024

// A server is the worker's end of the lines.
type server struct {
	mu      sync.Mutex // of enc
	enc     *json.Encoder
	answers chan answer
	orders  chan order
	gone    chan struct{} // closed when there will be no more of both
}

func (s *server) send(line fromWorker) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.enc.Encode(line); err != nil {
		return fmt.Errorf("answer the harness: %w", err)
	}
	return nil
}

// read passes on what the harness writes, until it writes no more.
func (s *server) read(ctx context.Context, dec *json.Decoder) error {
	defer close(s.gone)
	for ctx.Err() == nil {
		var line fromHarness
		switch err := dec.Decode(&line); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read orders: %w", err)
		case line.Answer != nil:
			pass(ctx, s.answers, *line.Answer)
		case line.Order != nil:
			pass(ctx, s.orders, *line.Order)
		default:
			return errors.New("read orders: a line is neither an order nor an answer")
		}
	}
	return nil
}

// pass passes a line on, unless the context ends before that.
func pass[T any](ctx context.Context, to chan<- T, line T) {
	select {
	case to <- line:
	case <-ctx.Done():
	}
}

// do carries out an order.
func (s *server) do(ctx context.Context, c *workload.Client, o order) *done {
	if o.Within > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.Within)
		defer cancel()
	}
	d := &done{ID: o.ID}
	var err error
	if d.Outcome, err = c.Do(ctx, o.Act, &remoteResource{s, o.Name}); err != nil {
		d.Error, d.Refused = err.Error(), errors.Is(err, workload.ErrRefused)
	}
	d.Holding, d.Owner = c.Holding(), c.Owner()
	return d
}

// relayed writes each event of a relay as a line.
type relayed struct{ s *server }

// Write takes one event.
func (r relayed) Write(b []byte) (int, error) {
	var e history.Event
	if err := json.Unmarshal(b, &e); err != nil {
		return 0, fmt.Errorf("relay event: %w", err)
	}
	return len(b), r.s.send(fromWorker{Event: &e})
}

// A remoteResource is a resource that the harness keeps.
type remoteResource struct {
	s    *server
	name string
}

// ask waits for the answer in any case, for it must not be taken for another's.
func (w *remoteResource) ask(q resourceCall) (answer, error) {
	q.Resource = w.name
	if err := w.s.send(fromWorker{Want: &q}); err != nil {
		return answer{}, err
	}
	select {
	case a := <-w.s.answers:
		switch {
		case a.Refused:
			return a, workload.ErrRefused
		case a.Error != "":
			return a, errors.New(a.Error)
		}
		return a, nil
	case <-w.s.gone:
		return answer{}, errors.New("the harness is gone")
	}
}

// Read asks the harness for the value.
func (w *remoteResource) Read(context.Context) (int64, error) {
	a, err := w.ask(resourceCall{})
	return a.Value, err
}

// Write asks the harness to write.
func (w *remoteResource) Write(_ context.Context, c workload.Change) error {
	_, err := w.ask(resourceCall{Change: &c})
	return err
}

// Present shows the token to the harness' resource, if that asks for one.
func (w *remoteResource) Present(_ context.Context, token int64) error {
	_, err := w.ask(resourceCall{Present: &token})
	return err
}
