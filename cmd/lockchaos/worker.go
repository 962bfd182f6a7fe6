package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockchaos/lockchaos/fleet/remote"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/topologies"
)

func (a *app) workerCommand() *cobra.Command {
	var c remote.WorkerConfig
	var key string
	cmd := &cobra.Command{
		Use:   "worker --join HOST:PORT --key FILE --lock LOCK",
		Short: "Be the clients of one zone of a run on another machine (lockchaos run --listen)",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(refuse(c.Address == "", "--join: say where lockchaos run --listen is"), refuse(key == "", "--key: say which file has the key of that run")); err != nil {
				return err
			}
			var err error
			if c.Key, err = remote.ReadKey(key); err != nil {
				return err
			}
			command, err := driverOf(a.locks, c.Lock)
			if err != nil {
				return err
			}
			c.Command, c.Version, c.Log = harness.ShellCommand(command), version(), a.stderr
			c.Say = func(what string) { fmt.Fprintln(a.stderr, say.Plain(what)) }
			if err = remote.Join(cmd.Context(), c); err == nil || errors.Is(err, remote.ErrRefused) {
				return err
			}
			return asHarness(err)
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.Address, "join", "", "HOST:PORT of lockchaos run --listen, which may begin later")
	f.StringVar(&c.Lock, "lock", "mutex", "the lock under test, as the run names it")
	f.StringVar(&key, "key", "", "the file with the key that the run has as well")
	return cmd
}

// driverOf is the command of a lock's driver: its own, or this program.
func driverOf(known harness.Locks, name string) (string, error) {
	if command, is := strings.CutPrefix(name, harness.ProgramPrefix); is {
		return command, nil
	}
	if _, err := known.ByName(name); err != nil {
		return "", err
	}
	program, err := os.Executable()
	return quoted(program) + " driver serve " + quoted(name), asHarness(err)
}

// workers are what a user can say of those of a run.
type workers struct {
	listen, key string
	joined      harness.Workers // nil: there are none
}

// checkWorkers joins what is wrong with the flags.
func (w *workers) checkWorkers(cmd *cobra.Command) error {
	if w.listen == "" {
		return refuse(w.key != "", "--key: with --listen only")
	}
	var wrong error
	for _, name := range []string{"control", "causes", "parallel", "replay"} {
		wrong = errors.Join(wrong, refuse(cmd.Flag(name).Changed, "--%s: not with --listen", name))
	}
	return errors.Join(wrong, refuse(w.key == "", "--listen needs --key FILE, which the workers have as well"))
}

// remoteLock is a lock by the name of its driver, as the workers start it.
func remoteLock(ctx context.Context, stderr io.Writer, known harness.Locks, name string) (harness.LockSpec, error) {
	command, err := driverOf(known, name)
	if err != nil {
		return harness.LockSpec{}, err
	}
	l, err := lockNamed(ctx, stderr, nil, harness.ProgramPrefix+command)
	l.Name, l.Watchdog = name, false // each hold has a lease there
	return l, err
}

// await listens, and waits for the workers. What it returns ends them.
func (o *runOptions) await(ctx context.Context, a *app) (end func(), err error) {
	if o.listen == "" {
		return func() {}, nil
	}
	key, err := remote.ReadKey(o.key)
	if err != nil {
		return nil, err
	}
	t, err := topologies.New(o.Topology, o.Servers)
	if err != nil {
		return nil, err
	}
	tell := func(what string) { fmt.Fprintln(a.stderr, say.Plain(what)) }
	zones := t.Of(topologies.Zone)
	c, err := remote.Listen(remote.Config{Address: o.listen, Key: key, Version: version(), Lock: o.Lock.Name, Zones: zones, Notice: tell})
	if err != nil {
		return nil, err
	}
	host, port, _ := net.SplitHostPort(c.Address())
	if net.ParseIP(host).IsUnspecified() {
		host, _ = os.Hostname()
	}
	tell(fmt.Sprintf("waiting for %d workers: lockchaos worker --join %s --key %s --lock %s", len(zones), net.JoinHostPort(host, port), quoted(o.key), quoted(o.Lock.Name)))
	if err := c.Await(ctx); err != nil {
		c.Close("the run did not begin")
		return nil, asHarness(cmp.Or(ctx.Err(), err))
	}
	o.joined = c
	return func() {
		for _, zone := range zones {
			tell(fmt.Sprintf("round trip to the worker of %s: %v on average; clients of different zones that overlap for less are not seen", zone, c.RoundTrip(zone).Round(time.Microsecond)))
		}
		c.Close("all runs have ended")
	}, nil
}
