package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/internal/locks"
	"github.com/lockchaos/lockchaos/internal/say"
)

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
		a.mutantsCommand(), a.listCommand(), a.benchCommand(), a.driverCommand(), a.findingsCommand(), a.doctorCommand(), a.schemaCommand(), a.cleanCommand(), a.versionCommand(), a.workerCommand(), a.simulationWorkerCommand(),
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

// colour reports whether to write colours: on a terminal that has them, unless NO_COLOR says no.
func (a *app) colour() bool {
	_, ok := onTerminal(a.stdout)
	return ok && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// lockNamed is the lock of that name, which may be a driver's command: one that says nothing at first is told of.
func lockNamed(stderr io.Writer, known harness.Locks, name string) (harness.LockSpec, error) {
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
