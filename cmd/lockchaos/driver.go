package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockchaos/lockchaos/conformance"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/topologies"
)

func (a *app) driverCommand() *cobra.Command {
	parent := &cobra.Command{
		Use:   "driver",
		Short: "Work on a driver: a program that puts a lock of any language under test",
		Long: `A driver wraps a lock library and speaks the driver protocol with lockchaos
(docs/driver-protocol.md). A run starts it by --lock 'exec:COMMAND'.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var servers serverFlags
	var topology string
	var only []string
	check := &cobra.Command{
		Use:   "check -- COMMAND [ARGUMENT...]",
		Short: "Check that a driver keeps the protocol, on healthy servers",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.checkDriver(cmd, &servers, topology, only, args)
		},
	}
	check.Flags().StringVar(&servers.backend, "backend", autoBackend, "what the servers run in: process, container, or auto")
	check.Flags().StringVar(&topology, "topology", "", "the servers: single, sentinel, cluster, independent, etcd or zookeeper (default: single; for a driver that promises a quorum, independent; for one that promises a store, that)")
	check.Flags().StringArrayVar(&only, "only", nil, "make only the checks that have these words in their name; may be repeated")
	serve := &cobra.Command{
		Use:    "serve LOCK",
		Short:  "Be the driver of a lock of lockchaos (a worker starts it)",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := a.locks.ByName(args[0])
			if err != nil {
				return err
			}
			return asHarness(harness.ServeLock(cmd.Context(), l, version()))
		},
	}
	parent.AddCommand(check, serve)
	return parent
}

// checkDriver prints a line for each check. A check that fails is a violation of
// the protocol.
func (a *app) checkDriver(cmd *cobra.Command, servers *serverFlags, topology string, only, args []string) error {
	words := slices.Clone(args)
	for i, word := range words {
		words[i] = quoted(word)
	}
	command := strings.Join(words, " ")
	if err := servers.startsOwn(); err != nil {
		return err
	}
	if topology != "" && !slices.Contains(topologies.Names(), topology) {
		return names.Unknown("topology", topology, topologies.Names())
	}
	all, known := conformance.Checks(), ""
	for _, c := range all {
		known += "\n  " + c.Name
	}
	for _, words := range only {
		if !strings.Contains(known, words) {
			return fmt.Errorf("no check has %q in its name; the checks are:%s", words, known)
		}
	}
	l, err := lockNamed(cmd.Context(), a.stderr, nil, harness.ProgramPrefix+command)
	if err != nil {
		return err
	}
	topology = cmp.Or(topology, conformance.Topology(l))
	all = slices.DeleteFunc(all, func(c conformance.Check) bool { return !c.Suits(topology) })
	checks := slices.DeleteFunc(slices.Clone(all), func(c conformance.Check) bool {
		return len(only) > 0 && !slices.ContainsFunc(only, func(words string) bool { return strings.Contains(c.Name, words) })
	})
	if err := l.On(topology, topologies.Options{}, harness.LockOptions{}); err != nil {
		return err
	}
	backend, _, err := a.openServers(cmd.Context(), servers, nil, topologies.StoreOf(topology))
	if err != nil {
		return err
	}
	wrong := 0
	err = conformance.Driver(cmd.Context(), backend, command, topology, checks, func(o conformance.Outcome) {
		if o.Wrong != nil || a.verbose { // a check that cuts its links has a driver log what went wrong
			fmt.Fprint(a.stderr, o.Log)
		}
		switch {
		case o.Skipped:
			a.printf("- %s: not promised\n", o.Name)
		case o.Wrong != nil:
			wrong++
			a.printf("✗ %s: %s\n", o.Name, strings.ReplaceAll(o.Wrong.Error(), "\n", "\n  "))
		default:
			a.printf("✓ %s\n", o.Name)
		}
	})
	if errors.Is(err, conformance.ErrHopeless) {
		a.printf("%v\n", err)
		return verdictError(exitInvalid)
	}
	if err != nil {
		return harnessError{err}
	}
	if wrong > 0 {
		a.printf("%d of %d checks failed\n", wrong, len(checks))
		return verdictError(exitInvalid)
	}
	if len(checks) < len(all) {
		a.printf("%d of the %d checks were made\n", len(checks), len(all))
		return nil
	}
	on := ""
	if topology != topologies.Single {
		on = " --topology " + topology
	}
	a.printf("the driver can be used: lockchaos run --lock %s%s\n", quoted(harness.ProgramPrefix+command), on)
	return nil
}
