package main

import (
	"errors"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockchaos/lockchaos/harness"
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
	check := &cobra.Command{
		Use:   "check -- COMMAND [ARGUMENT...]",
		Short: "Check that a driver keeps the protocol, on a healthy server",
		Example: `  lockchaos driver check -- python3 driver.py
  lockchaos driver check -- drivers/shell/driver.sh`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("name the driver's command: lockchaos driver check -- python3 driver.py")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.checkDriver(cmd, &servers, args)
		},
	}
	check.Flags().StringVar(&servers.backend, "backend", autoBackend, "what the server runs in: process, container, or auto")
	parent.AddCommand(check)
	return parent
}

// checkDriver prints a line for each check. A check that fails is a violation of
// the protocol.
func (a *app) checkDriver(cmd *cobra.Command, servers *serverFlags, args []string) error {
	command := shellQuoted(args)
	if _, err := harness.Program(command); err != nil {
		return err
	}
	backend, _, err := servers.open(cmd.Context(), nil, topologies.StoreRedis)
	if err != nil {
		return err
	}
	log := os.Stderr
	wrong := 0
	err = harness.CheckDriver(cmd.Context(), backend, command, log, func(c harness.DriverCheck, skipped bool, err error) {
		switch {
		case skipped:
			a.printf("- %s: not promised\n", c.Name)
		case err != nil:
			wrong++
			a.printf("✗ %s: %s\n", c.Name, strings.ReplaceAll(err.Error(), "\n", "; "))
		default:
			a.printf("✓ %s\n", c.Name)
		}
	})
	if err != nil {
		return harnessError{err}
	}
	if wrong > 0 {
		a.printf("%d of %d checks failed\n", wrong, len(harness.DriverChecks()))
		return verdictError(exitInvalid)
	}
	a.printf("the driver can be used: lockchaos run --lock %s\n", quoted(harness.ProgramPrefix+command))
	return nil
}

// shellQuoted joins arguments so that a shell reads them as they are.
func shellQuoted(args []string) string {
	words := make([]string, len(args))
	for i, arg := range args {
		words[i] = quoted(arg)
	}
	return strings.Join(words, " ")
}
