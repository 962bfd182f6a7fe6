// Command lockchaos tells whether a distributed lock is safe: it drives the
// lock while the servers under it fail, records what happens, judges the
// record and tells the story.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/findings"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/internal/locks"
	"github.com/lockchaos/lockchaos/internal/say"
	_ "github.com/lockchaos/lockchaos/reports/plots" // of the pages that it writes
	"github.com/lockchaos/lockchaos/simulation"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/attach"
)

// The exit codes, a promise to scripts.
const (
	exitValid       = 0   // every property held; every scenario gave its verdict
	exitInvalid     = 1   // a violation was found; a scenario did not give its verdict
	exitUnknown     = 2   // it could not be decided
	exitInterrupted = 130 // Ctrl-C, with a report of what was recorded
	exitUsage       = 254 // wrong usage or unreadable input
	exitHarness     = 255 // the harness or its machine failed
)

func main() {
	os.Exit(guarded(os.Stderr, func() int { return run(os.Args[1:], os.Stdout, os.Stderr) }))
}

// maxStack bounds the stack of a goroutine, in bytes: an endless recursion ends
// before it has taken the memory of the machine.
const maxStack = 64 << 20

// guarded runs the program so that no defect of its own reads as a verdict. By
// itself Go ends a program that panics with the code 2, which is that of
// "unknown". Here a panic gives the code 255 and says where it was. What can't be
// recovered from (a stack that is too deep, no memory left, a panic in another
// goroutine) ends the program by the signal SIGABRT, which a shell shows as 134.
func guarded(stderr io.Writer, run func() int) (code int) {
	debug.SetTraceback("crash")
	debug.SetMaxStack(maxStack)
	defer func() {
		if p := recover(); p != nil {
			fmt.Fprintf(stderr, "lockchaos: this is a defect of lockchaos and says nothing of what it looked at: %v\n\n%s", p, debug.Stack())
			code = exitHarness
		}
	}()
	return run()
}

// run is main, with everything from outside passed in.
func run(args []string, stdout, stderr io.Writer) int {
	logging.Disable() // go-redis writes to stderr what its errors say as well
	// The signals are caught before the first process is started. The first
	// one ends the run in order, a second one ends it at once. So does output
	// whose reader has ended, which is known by the error of a write: it
	// must not end us on the spot, with faults in effect.
	listened, deaf := context.WithCancelCause(context.Background())
	ctx, stop := signal.NotifyContext(listened, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	cmd := newRoot(&output{stdout, deaf}, &output{stderr, deaf})
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(ctx)
	code := exitCode(err)
	var finding verdictError
	var left *topologies.CleanupError
	switch cause := context.Cause(ctx); {
	case cause == nil:
	case errors.As(err, &left):
		code = exitHarness
		err = fmt.Errorf("interrupted, and not everything could be undone: %w", left)
	case errors.Is(cause, syscall.EPIPE):
		return exitInterrupted // the output has no reader
	case errors.As(cause, new(outputError)):
		code = exitHarness
		err = cause
	case code != exitHarness, errors.Is(err, context.Canceled), errors.Is(err, cause):
		fmt.Fprintln(stderr, "lockchaos: interrupted")
		return exitInterrupted
	}
	if err != nil && !errors.As(err, &finding) {
		sayError(stderr, err, args)
	}
	return code
}

// sayError prints an error. It may have several lines, but none that the name of a file in args forged.
func sayError(stderr io.Writer, err error, args []string) {
	words := err.Error()
	for _, arg := range args {
		words = strings.ReplaceAll(words, arg, say.OneLine(arg))
	}
	fmt.Fprintf(stderr, "lockchaos: %s\n", say.Plain(words))
}

// A verdictError is an exit code that is no error: what was asked for was
// done, and this is the answer.
type verdictError int

func (v verdictError) Error() string { return fmt.Sprintf("exit code %d", int(v)) }

// A harnessError is a failure of the harness or its machine. All other errors
// are the user's: a name, a flag, a file.
type harnessError struct{ error }

func (e harnessError) Unwrap() error { return e.error }

func exitCode(err error) int {
	var finding verdictError
	var failed harnessError
	switch {
	case err == nil:
		return exitValid
	case errors.As(err, &finding):
		return int(finding)
	case errors.Is(err, topologies.ErrUnusable), errors.Is(err, attach.ErrUsage), errors.Is(err, faults.ErrImpossible):
		return exitUsage
	case errors.As(err, &failed), errors.Is(err, topologies.ErrMissing), errors.Is(err, topologies.ErrTooOld):
		return exitHarness
	default:
		return exitUsage
	}
}

// verdictExit is the answer of a verdict; nil for valid.
func verdictExit(v checker.Verdict) error { return answer(v == checker.Invalid, v != checker.Valid) }

// answer is that of all that was judged: what is invalid counts before what is unknown; nil where neither is there.
func answer(invalid, unknown bool) error {
	switch {
	case invalid:
		return verdictError(exitInvalid)
	case unknown:
		return verdictError(exitUnknown)
	default:
		return nil
	}
}

// worst is the exit that counts of several. One that says no more than that the user ended it hides no other.
func worst(a, b error) error {
	if errors.Is(a, context.Canceled) {
		a, b = b, a
	}
	order := []int{exitValid, exitUnknown, exitInvalid, exitUsage, exitHarness}
	if slices.Index(order, exitCode(b)) > slices.Index(order, exitCode(a)) {
		return b
	}
	return a
}

// An app is what all subcommands share.
type app struct {
	stdout, stderr io.Writer
	verbose        bool
	locks          harness.Locks // that can be put under test
	took           sync.Once     // see openServers
}

func newRoot(stdout, stderr io.Writer) *cobra.Command {
	a := &app{stdout: stdout, stderr: stderr, locks: locks.All()}
	root := &cobra.Command{
		Use:   "lockchaos",
		Short: "Test distributed locks under faults",
		Long: `lockchaos drives a distributed lock while its servers and its network fail, records
every operation, judges the history, and reports what happened.

Exit codes: 0 valid, 1 a violation was found, 2 unknown (not decided),
130 interrupted, 254 wrong usage or unreadable input, 255 the harness failed.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.Version = version()
	root.SetVersionTemplate("lockchaos {{.Version}}\n")
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.PersistentFlags().BoolVarP(&a.verbose, "verbose", "v", false, "log each step to stderr")
	root.AddCommand(
		a.runCommand(), a.matrixCommand(), a.simulateCommand(), a.mergeCommand(), a.campaignCommand(), a.reproduceCommand(), a.checkCommand(), a.causesCommand(), a.reportCommand(), a.compareCommand(), a.serveCommand(),
		a.mutantsCommand(), a.listCommand(), a.benchCommand(), a.driverCommand(), a.findingsCommand(), a.doctorCommand(), a.schemaCommand(), a.cleanCommand(), a.versionCommand(), a.workerCommand(),
		a.ownCommand(harness.WorkerCommand, harness.ServeWorker), a.ownCommand(simulationWorker, simulation.Serve),
	)
	a.complete(root)
	return root
}

// log is the harness's own log: to the run directory always, to stderr if the
// user wants it.
func (a *app) log(file io.Writer) *slog.Logger {
	handlers := []slog.Handler{slog.NewJSONHandler(file, nil)}
	if a.verbose {
		handlers = append(handlers, slog.NewTextHandler(a.stderr, nil))
	}
	return slog.New(slog.NewMultiHandler(handlers...))
}

// onTerminal reports whether w is a terminal, and how wide it is.
func onTerminal(w io.Writer) (width int, ok bool) {
	if o, ok := w.(*output); ok {
		w = o.to
	}
	f, isFile := w.(*os.File)
	if !isFile || !term.IsTerminal(int(f.Fd())) {
		return 0, false
	}
	width, _, err := term.GetSize(int(f.Fd()))
	return width, err == nil
}

// lockNamed is the lock of that name, which may be a driver's command, or a library, which is installed: a driver that
// says nothing at first is told of.
func lockNamed(ctx context.Context, stderr io.Writer, known harness.Locks, name string) (harness.LockSpec, error) {
	name, err := findings.Player{Log: stderr}.Lock(ctx, name)
	if err != nil {
		return harness.LockSpec{}, err
	}
	if command, is := strings.CutPrefix(name, harness.ProgramPrefix); is {
		return harness.Program(command, func(silent string) { fmt.Fprintln(stderr, say.Plain(silent)) })
	}
	return known.ByName(name)
}

// printf prints to standard output. What does not print in its texts, such as in the name of a file, is escaped.
func (a *app) printf(format string, args ...any) {
	for i, arg := range args {
		if text, ok := arg.(string); ok {
			args[i] = say.Plain(text)
		}
	}
	fmt.Fprintf(a.stdout, format, args...)
}
