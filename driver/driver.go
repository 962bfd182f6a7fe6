package driver

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unicode/utf8"

	strict "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/lockchaos/lockchaos/internal/spawn"
)

const (
	// helloLimit is how long a driver may take to say hello: an interpreter has
	// to start, and to load its libraries.
	helloLimit = 30 * time.Second
	// helloUsual is how long it takes at the most, but on a busy machine.
	helloUsual = 5 * time.Second
	// finishLimit is how long a driver may take to exit after the end of its input.
	finishLimit = 10 * time.Second
	// lineLimit is the size of the longest line that a driver may send, in bytes.
	lineLimit = 1 << 20
	// logLimit is how much of a driver's log is kept, in bytes.
	logLimit = 8 << 20
	// quoteLimit is how much of a line an error quotes, in bytes.
	quoteLimit = 240
	// envSocket is the variable that names the socket. Processes that a driver starts have it.
	envSocket = "LOCKCHAOS_SOCKET"
	// defaultTimeout is what a driver is told when [Config.Timeout] is 0.
	defaultTimeout = time.Second
)

// ErrBroken says that a driver broke the protocol, or died. What was asked of it
// since then has an unknown outcome.
var ErrBroken = errors.New("the driver can't be used")

// ErrUnknown says that a driver answered with "info": the request may have been done, or not.
var ErrUnknown = errors.New("the driver does not know the outcome")

// ErrNotStarted says that a driver did not start, or gave no answer to hello that can be
// used. ErrRefused says that it refused hello, as a driver does that can't serve a
// topology.
var (
	ErrNotStarted = errors.New("the driver did not start")
	ErrRefused    = errors.New("the driver refused")
)

// A marked error says what a driver did, and is another one as well.
type marked struct {
	error
	mark error
}

// Unwrap returns both.
func (e marked) Unwrap() []error { return []error{e.error, e.mark} }

// Config says how to start a driver.
type Config struct {
	// Name is what errors call the command; empty: the command itself.
	Name string
	// Command is the program and its arguments. Required, unless Remote has the program.
	Command []string
	// Remote is the program where another machine runs it; nil: it is started here.
	Remote *Remote
	// Env has settings as NAME=VALUE beside those of this process.
	Env []string
	// Zone is the name of the client zone that the driver stands for.
	Zone string
	// Topology is the name of the topology; Master that of the master that the
	// sentinels know, if there are some.
	Topology, Master string
	// Servers are those that the driver may connect to.
	Servers []Server
	// Timeout is for how long the driver's library should wait for a server.
	// Default: a second.
	Timeout time.Duration
	// Watchdog is the lease that a watchdog is to keep alive; 0: the library's own.
	Watchdog time.Duration
	// Started is told the driver's process group before the driver is told of any
	// server; optional.
	Started func(group int)
	// As is how the program is told that it is called; empty: as the command calls it.
	As string
	// Silent is told once, in a sentence, that the driver has not said hello for 5 s, which [Start] goes on to await; nil: it is
	// not told.
	Silent func(why string)
	// Log gets what the driver writes to stderr, 8 MB at most; nil: nothing is
	// kept. The driver's stdout goes there too where it uses the socket.
	Log io.Writer

	relay func(line []byte) // see [Relay]
}

// name is what errors call the command.
func (c Config) name() string { return cmp.Or(c.Name, strings.Join(c.Command, " ")) }

// A Driver is a running driver program. [Start] makes it; the caller of Start
// closes it. It is safe for concurrent use.
type Driver struct {
	hello   Hello
	process *exec.Cmd
	group   int
	family  *spawn.Family // of all that it started; nil where there are none
	relay   func(line []byte)
	send    chan []byte // lines to the driver
	slots   chan struct{}
	exited  chan struct{}
	stop    context.CancelFunc
	stopped context.Context //nolint:containedctx // it is the driver's own life
	socket  string
	log     *limitedLog

	mu      sync.Mutex
	to      io.WriteCloser // see talk
	next    int64
	open    map[int64]opened
	holds   map[string]*keeper
	used    map[string]bool // names of holds that there were
	lost    map[string]bool // holds that were lost before their answer was read
	clients map[string]chan struct{}
	lived   time.Time
	broken  error
	// How many requests for a lock were made, and how many of them were answered.
	asked, answered int
	closing         bool
	killed          bool
	remote          bool // another machine has the process
	lag             atomic.Int64
	wait            sync.WaitGroup
}

// Start starts a driver in a process group of its own, and waits until it has
// said hello. Its error says what the driver did instead.
func Start(ctx context.Context, c Config) (*Driver, error) {
	if c.Remote == nil && (len(c.Command) == 0 || c.Command[0] == "") {
		return nil, errors.New("start driver: no command: give a program, such as python3 driver.py")
	}
	d := &Driver{
		relay: c.relay, send: make(chan []byte), exited: make(chan struct{}), open: map[int64]opened{},
		holds: map[string]*keeper{}, used: map[string]bool{}, lost: map[string]bool{}, clients: map[string]chan struct{}{},
	}
	d.stopped, d.stop = context.WithCancel(context.WithoutCancel(ctx))
	if err := d.start(ctx, c); err != nil {
		_ = d.Close() //nolint:contextcheck // an end has a bound of its own
		return nil, marked{fmt.Errorf("start driver %q: %w", c.name(), err), ErrNotStarted}
	}
	d.slots = make(chan struct{}, max(d.hello.Parallel, 1))
	d.wait.Go(d.write)
	if d.relay == nil {
		d.wait.Go(d.measureLag)
	}
	return d, nil
}

// launch starts the program of c, and returns what it reads and writes. A connection to the socket is told to connected.
func (d *Driver) launch(ctx context.Context, c Config, connected func(net.Conn)) (in io.WriteCloser, out io.ReadCloser, err error) {
	dir, err := os.MkdirTemp("", "lockchaos-driver-")
	if err != nil {
		return nil, nil, err
	}
	d.socket = dir
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", filepath.Join(dir, "s"))
	if err != nil {
		return nil, nil, err
	}
	d.wait.Go(func() {
		<-d.stopped.Done()
		_ = listener.Close()
	})
	d.process = exec.Command(c.Command[0], c.Command[1:]...) //nolint:gosec,noctx // the user's own program, which Close ends
	d.process.Args[0] = cmp.Or(c.As, c.Command[0])
	d.process.Env = append(append(os.Environ(), c.Env...), envSocket+"="+filepath.Join(dir, "s"))
	d.process.Stderr = d.log
	d.process.WaitDelay = finishLimit // a grandchild may keep stderr open
	if in, err = d.process.StdinPipe(); err != nil {
		return nil, nil, err
	}
	out, theirs, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	d.process.Stdout = theirs
	d.family, _ = spawn.NewFamily() //nolint:contextcheck // an end has a bound of its own; lockchaos doctor says where there is no family
	if d.family != nil {
		err = d.family.Start(d.process)
	} else {
		err = spawn.Start(d.process)
	}
	_ = theirs.Close()
	if err != nil {
		return nil, nil, errors.Join(err, out.Close())
	}
	d.group = d.process.Process.Pid
	if c.Started != nil {
		c.Started(d.group)
	}
	d.wait.Go(func() {
		conn, err := listener.Accept()
		if err == nil { // else the driver uses its standard input and output
			connected(conn)
		}
	})
	return in, out, nil
}

func (d *Driver) start(ctx context.Context, c Config) error {
	d.log = &limitedLog{to: c.Log, left: logLimit}
	timeout := cmp.Or(c.Timeout, defaultTimeout)
	hello, err := json.Marshal(request{
		Op: opHello, Protocol: Version, Zone: c.Zone, Topology: c.Topology, Master: c.Master,
		Servers: c.Servers, TimeoutMS: timeout.Milliseconds(), WatchdogMS: c.Watchdog.Milliseconds(),
	})
	if err != nil {
		return err
	}
	hello = append(hello, '\n')
	answered := make(chan response, 1)
	d.open[0] = opened{answer: answered, at: time.Now()}
	read := make(chan struct{}) // closed when all that there was to read has been read
	if c.Remote != nil {
		d.remote = true
		d.wait.Go(func() { d.fail(d.awaitEnd(c.Remote.Wait, read)) })
		d.wait.Go(func() {
			defer close(read)
			d.talk(hello, c.Remote.In, c.Remote.Out, d.take)
		})
	} else {
		in, out, err := d.launch(ctx, c, func(conn net.Conn) {
			d.wait.Go(func() { d.talk(hello, conn, conn, d.take) })
		})
		if err != nil {
			return err
		}
		d.wait.Go(func() {
			err := d.awaitEnd(d.process.Wait, read)
			if err == nil {
				err = errors.New("exit status 0")
			}
			when := ""
			d.mu.Lock()
			if _, waits := d.open[0]; waits {
				when = " before it answered hello"
			}
			d.mu.Unlock()
			d.fail(fmt.Errorf("it ended%s: %w%s", when, err, d.log.lastWords()))
		})
		d.wait.Go(func() {
			defer close(read)
			d.talk(hello, in, out, func(line []byte, from io.WriteCloser) error {
				if to := d.writesTo(); to != nil && to != from {
					_, _ = d.log.Write(append(line, '\n')) // a log that is full is cut off
					return nil
				}
				return d.take(line, from)
			})
		})
	}
	ctx, cancel := context.WithTimeout(ctx, helloLimit)
	defer cancel()
	silent := time.NewTimer(helloUsual)
	defer silent.Stop()
	sent := func() string { // and what came
		return fmt.Sprintf("It was sent %s%s", bytes.TrimSpace(hello), cmp.Or(d.log.lastWords(), "; it wrote nothing to stdout or stderr"))
	}
	for waits := true; waits; {
		select {
		case r := <-answered:
			return d.greet(r)
		case <-silent.C:
			if c.Silent != nil {
				c.Silent(fmt.Sprintf("driver %q: no answer to hello after %v: it is still starting, or does not flush its output after each line. %s", c.name(), helloUsual, sent()))
			}
		case <-ctx.Done():
			return fmt.Errorf("it did not answer hello within %v: is its output flushed after each line? %s", helloLimit, sent())
		case <-d.stopped.Done():
			waits = false
		}
	}
	select {
	case r := <-answered: // it ended right behind its answer
		if err := d.greet(r); err != nil {
			return err
		}
	default:
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.broken
}

// awaitEnd waits until the process has ended, and until what it said last, which says more, was read. It returns how it ended.
func (d *Driver) awaitEnd(wait func() error, read <-chan struct{}) error {
	err := wait()
	close(d.exited)
	select {
	case <-read:
	case <-time.After(time.Second): // a process that it left behind has its output
	}
	return err
}

// greet takes the answer to hello.
func (d *Driver) greet(r response) error {
	var h Hello
	if err := read(r.line, &h); err != nil {
		return fmt.Errorf("its answer to hello, %s, %s", quote(r.line), plain(err))
	}
	switch {
	case r.Result != "" && r.Result != resultOK:
		return marked{fmt.Errorf("it refused hello with %q%s", r.Result, because(r.Why)), ErrRefused}
	case h.Protocol < 1 || h.Protocol > Version:
		return fmt.Errorf("it speaks protocol %d: say \"protocol\":%d in the answer to hello", h.Protocol, Version)
	case h.Name == "":
		return errors.New("it gave no name in its answer to hello: say which library it wraps")
	case !slices.Contains([]string{"", "mutex", kindRW, kindSemaphore}, h.Promises.Kind):
		return fmt.Errorf("it promises a lock of kind %q: the protocol knows mutex, rw and semaphore", h.Promises.Kind)
	case h.Parallel < 0:
		return fmt.Errorf("it allows %d clients at once: give 1 or more", h.Parallel)
	case h.WatchdogMS < 0 || h.WatchdogMS > maxMillis:
		return fmt.Errorf("its watchdog keeps a lease of %d ms: give 0 where that is not known", h.WatchdogMS)
	}
	d.hello = h
	return nil
}

// Hello is what the driver said of itself.
func (d *Driver) Hello() Hello { return d.hello }

// Lag is the mean time that the driver took to answer a ping so far; 0 for a
// driver of one client, which can answer none while it waits for a server.
func (d *Driver) Lag() time.Duration { return time.Duration(d.lag.Load()) }

// Err says how the driver broke the protocol, or that it died before [Driver.Close];
// nil if it did neither. It wraps [ErrBroken].
func (d *Driver) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.broken
}

// Group is the process group of the driver, whose leader it is.
func (d *Driver) Group() int { return d.group }

// Gone is closed once the process of the driver has ended, for whatever reason, or is out of reach on another machine.
func (d *Driver) Gone() <-chan struct{} { return d.exited }

// Lived is the last instant at which the process of the driver had certainly not ended yet: when the
// latest of the requests was sent that it has answered. When an answer is read, it may be gone already.
func (d *Driver) Lived() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lived
}

// Done is closed once nothing can be asked of the driver any more: it is closed, or [Driver.Err] says why.
func (d *Driver) Done() <-chan struct{} { return d.stopped.Done() }

// An opened request waits for its answer.
type opened struct {
	answer chan response
	sent   request
	at     time.Time // when it was sent
	due    time.Time // when the library may still be waiting, as it was told to
}

// Settle waits until no request for a lock is open, or until one was left without an answer
// for longer than that, as [Driver.Silent] has it, or the driver can't be used.
func (d *Driver) Settle(longer time.Duration) {
	tick := time.NewTicker(settlePause)
	defer tick.Stop()
	for open, late := 1, false; open > 0 && !late; {
		select {
		case <-tick.C:
		case <-d.stopped.Done():
			return
		}
		d.mu.Lock()
		open = 0
		for _, q := range d.open {
			if q.sent.Op != opHello && q.sent.Op != opPing {
				open++
				late = late || time.Since(q.due) > longer
			}
		}
		d.mu.Unlock()
	}
}

// settlePause is the time between two looks at the requests that are open.
const settlePause = 5 * time.Millisecond

// Silent says which requests for a lock the driver left without an answer, where that
// is no matter of a moment: all of them, or one for longer than that. It is empty if it left none.
func (d *Driver) Silent(longer time.Duration) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.asked > 0 && d.answered == 0 {
		return fmt.Sprintf("answered none of %d requests for a lock", d.asked)
	}
	for id, q := range d.open {
		if late := time.Since(q.due); q.sent.Op != opHello && late > longer {
			return fmt.Sprintf("did not answer request %d (%s) in %v", id, q.sent.Op, late.Round(100*time.Millisecond))
		}
	}
	return ""
}

// Unanswered is the first request that has no answer, as it was sent, and the last lines that the driver wrote; for the
// messages of a check of the driver.
func (d *Driver) Unanswered() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	first := int64(-1)
	for id, q := range d.open {
		if q.sent.Op != opPing && (first < 0 || id < first) {
			first = id
		}
	}
	if first < 0 {
		return "nothing that has no answer" + d.log.lastWords()
	}
	line, _ := json.Marshal(d.open[first].sent)
	return string(line) + d.log.lastWords()
}

// Killed reports whether Close had to kill the driver, since it did not exit at
// the end of its input.
func (d *Driver) Killed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.killed
}

// Do sends an operation of any name without arguments, for a check of the
// driver, and returns the result that it answers.
func (d *Driver) Do(ctx context.Context, op string) (result string, err error) {
	r, err := d.ask(ctx, op, request{Op: op}, nil)
	return r.Result, err
}

// Close ends the driver's input, waits for it to exit, and kills all processes that it started and
// left: see [spawn.Families]. It may be called again.
func (d *Driver) Close() error {
	d.mu.Lock()
	d.closing = true
	d.mu.Unlock()
	d.stop() // ends its input
	if d.process != nil && d.process.Process != nil {
		timer := time.NewTimer(finishLimit)
		defer timer.Stop()
		select {
		case <-d.exited:
		case <-timer.C:
			d.mu.Lock()
			d.killed = true
			d.mu.Unlock()
		}
		_ = spawn.Kill(d.group) // which may have other processes, also after its leader has exited
		if d.family == nil {
			spawn.KillWith(envSocket + "=" + filepath.Join(d.socket, "s")) // what left the group
		}
	}
	var err error
	if d.family != nil {
		err, d.family = d.family.Kill(), nil
	}
	if d.remote || d.process != nil && d.process.Process != nil {
		<-d.exited
	}
	d.wait.Wait()
	if d.socket == "" {
		return err
	}
	return errors.Join(err, os.RemoveAll(d.socket))
}

// fail notes how the driver broke, once, and ends all that waits for it. Where [Driver.Close] was called in the meantime, only that it had
// closed its side before.
func (d *Driver) fail(err error) {
	d.mu.Lock()
	if d.broken == nil && (!d.closing || errors.Is(err, errClosed)) {
		d.broken = fmt.Errorf("%w: %w", ErrBroken, err)
	}
	d.mu.Unlock()
	d.stop()
}

// talk says hello to a driver over one of its two connections, and reads what
// comes back. The connection over which hello is answered is the one that is
// used from then on.
func (d *Driver) talk(hello []byte, to io.WriteCloser, from io.ReadCloser, take func(line []byte, from io.WriteCloser) error) {
	d.wait.Go(func() {
		<-d.stopped.Done()
		_ = to.Close() // the end of its input tells a driver to finish
		select {
		case <-d.exited:
		case <-time.After(finishLimit):
		}
		_ = from.Close()
	})
	// A driver that connects to the socket need not read its standard input.
	d.wait.Go(func() { _, _ = to.Write(hello) })
	lines := bufio.NewScanner(from)
	lines.Buffer(make([]byte, 0, 4096), lineLimit)
	for lines.Scan() {
		if err := take(lines.Bytes(), to); err != nil {
			d.fail(err)
			return
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		d.fail(fmt.Errorf("it sent a line of more than %d bytes", lineLimit))
		return
	}
	d.mu.Lock()
	ours := d.to == to && !d.closing
	d.mu.Unlock()
	if !ours {
		return
	}
	select {
	case <-d.exited: // which says more
		return
	case <-d.stopped.Done():
	case <-time.After(finishLimit):
	}
	d.fail(errClosed)
}

// errClosed says that a driver can't answer any more.
var errClosed = errors.New("it closed its side of the connection")

// writesTo is where requests go; nil before hello was answered.
func (d *Driver) writesTo() io.WriteCloser {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.to
}

// write sends what is asked for.
func (d *Driver) write() {
	to := d.writesTo()
	for {
		select {
		case line := <-d.send:
			_, err := to.Write(line)
			switch {
			case err == nil:
				continue
			case errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNRESET):
				select {
				case <-d.exited: // which says more
					return
				case <-time.After(time.Second):
					err = errClosed
				case <-d.stopped.Done():
					return
				}
			default:
				err = fmt.Errorf("it does not read its input: %w", err)
			}
			d.fail(err)
			return
		case <-d.stopped.Done():
			return
		}
	}
}

// take takes a line of the driver. Its error says how the line breaks the protocol.
func (d *Driver) take(line []byte, from io.WriteCloser) error {
	if d.relay != nil {
		if d.relay(line); d.writesTo() != nil {
			return nil
		}
	}
	var r response
	if !utf8.Valid(line) {
		return fmt.Errorf("it sent the line %s, which is not UTF-8", quote(line))
	}
	if err := read(line, &r); err != nil {
		return fmt.Errorf("it sent the line %s, which %s", quote(line), plain(err))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if r.Re == nil {
		return d.event(r, line)
	}
	asked, waits := d.open[*r.Re]
	switch {
	case !waits && *r.Re >= 0 && *r.Re <= d.next:
		return fmt.Errorf("it answered request %d twice: %s", *r.Re, quote(line))
	case !waits:
		return fmt.Errorf("it answered request %d, which was never sent: %s", *r.Re, quote(line))
	case *r.Re == 0:
		r.line = bytes.Clone(line)
		d.to = from
	case !slices.Contains([]string{resultOK, resultFail, resultInfo, resultUnsupported}, r.Result):
		return fmt.Errorf("it answered request %d with the result %q: give ok, fail, info or unsupported", *r.Re, r.Result)
	}
	delete(d.open, *r.Re)
	if asked.at.After(d.lived) {
		d.lived = asked.at
	}
	if asked.sent.Op == opAcquire {
		d.answered++
	}
	r.sent = asked.at
	asked.answer <- r // there is room for one
	return nil
}

// event takes what the driver said unasked.
func (d *Driver) event(r response, line []byte) error {
	switch r.Event {
	case "":
		return fmt.Errorf("it sent the line %s, which has neither \"re\" nor \"event\"", quote(line))
	case eventLost:
		if k := d.holds[r.Hold]; k != nil {
			d.wait.Go(k.markLost)
		} else {
			d.lost[r.Hold] = true
		}
	default: // a later version of the protocol may have it
	}
	return nil
}

// quote is a part of a line for a message, with what a terminal would act on
// escaped.
func quote(line []byte) string {
	if len(line) > quoteLimit {
		return fmt.Sprintf("%q...", line[:quoteLimit])
	}
	return fmt.Sprintf("%q", line)
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return ": " + quote([]byte(why))
}

// read takes a JSON object with names in any spelling, none of them twice. What Python writes of bytes that are no text is half a character,
// and is taken for one that is not known.
func read(line []byte, v any) error {
	return strict.Unmarshal(line, v, strict.MatchCaseInsensitiveNames(true), jsontext.AllowInvalidUTF8(true))
}

// plain says in the protocol's words what is wrong with a line: a field that is there twice, in any spelling, for example, of which it is not
// clear which one counts.
func plain(err error) string {
	wrong, typed := errors.AsType[*strict.SemanticError](err)
	broken, _ := errors.AsType[*jsontext.SyntacticError](err)
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		return fmt.Sprintf("has the field %q twice", strings.ToLower(broken.JSONPointer.LastToken()))
	case typed && wrong.JSONPointer == "":
		return fmt.Sprintf("is no message: it is a JSON %s and no object", kinds[wrong.JSONKind])
	case typed && wrong.JSONKind == '0' && wrong.GoType.Kind() != reflect.String:
		return fmt.Sprintf("is no message: the field %q is not whole, or too large", wrong.JSONPointer.LastToken())
	case typed:
		return fmt.Sprintf("is no message: the field %q is a %s", wrong.JSONPointer.LastToken(), kinds[wrong.JSONKind])
	default:
		return "is no message: it is no JSON object (a library that prints to stdout needs a driver that uses LOCKCHAOS_SOCKET)"
	}
}

// kinds are those of JSON in words.
var kinds = map[jsontext.Kind]string{'n': "null", 'f': "bool", 't': "bool", '"': "string", '0': "number", '{': "object", '[': "array"} //nolint:gochecknoglobals // a constant
