package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/judge"
	"github.com/lockchaos/lockchaos/mutants"
	"github.com/lockchaos/lockchaos/scenarios"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/workload"
)

// examples are shown by the help of a command.
func examples() map[string]string {
	return map[string]string{
		"lockchaos": `lockchaos run --topology sentinel --seed 1
lockchaos reproduce failover-double-grant
lockchaos check history.jsonl`,
		"lockchaos run": `lockchaos run --topology sentinel --seed 1
lockchaos run --lock redsync --topology independent --faults safe --duration 20s
lockchaos run --lock 'exec:python3 driver.py' --topology cluster --control
lockchaos run --seeds 1-50 --parallel 2 --duration 5s`,
		"lockchaos worker": `lockchaos worker --join coordinator:7070 --key workers.key --lock mutex`,
		"lockchaos matrix": `lockchaos matrix --lock mutex,redlock,etcd-mutex
lockchaos matrix --lock mutex@sentinel,mutex@cluster,etcd-mutex --faults failover --seeds 1-20 --parallel 2`,
		"lockchaos reproduce": `lockchaos reproduce failover-double-grant/replica-acks
lockchaos reproduce ghost-lock --lock 'exec:python3 driver.py' --expect invalid
lockchaos reproduce --all --repeat 3 --parallel 3`,
		"lockchaos check": `lockchaos check history.jsonl
lockchaos check --clock-error 50ms --out report history.jsonl
zcat history.jsonl.gz | lockchaos check --explain -`,
		"lockchaos simulate": `lockchaos simulate --lock mutex --topology sentinel --seeds 1-10000
lockchaos simulate --lock redislock --search sweep
lockchaos simulate --replay reports/runs/latest`,
		"lockchaos merge":    `lockchaos merge --out night shard-1 shard-2`,
		"lockchaos campaign": `lockchaos campaign --store store --canary canary shard-1 shard-2`,
		"lockchaos causes":   `lockchaos causes reports/runs/latest`,
		"lockchaos report":   `lockchaos report --format markdown reports/runs/latest`,
		"lockchaos compare":  `lockchaos compare --fail-on worse before after`,
		"lockchaos serve":    `lockchaos serve reports/runs`,
		"lockchaos mutants":  `lockchaos mutants fence-wall-clock`,
		"lockchaos list":     `lockchaos list faults`,
		"lockchaos bench": `lockchaos bench --lock mutex,redislock --topology sentinel
lockchaos bench --lock 'exec:python3 driver.py' --workload uncontended-1`,
		"lockchaos driver": `lockchaos driver check -- python3 driver.py
lockchaos run --lock 'exec:python3 driver.py'`,
		"lockchaos driver check": `lockchaos driver check -- python3 driver.py
lockchaos driver check -- drivers/shell/driver.sh
lockchaos driver check --topology sentinel -- python3 driver.py
lockchaos driver check --only 'late release' -- python3 driver.py`,
		"lockchaos findings": `lockchaos findings
lockchaos findings redlock-using --control`,
		"lockchaos doctor":  `lockchaos doctor`,
		"lockchaos schema":  `lockchaos schema >history.schema.json`,
		"lockchaos clean":   `lockchaos clean`,
		"lockchaos version": `lockchaos version`,
	}
}

// needed is what to say where a command lacks arguments, or has too many.
func needed() map[string]string {
	return map[string]string{
		"lockchaos driver check": "name the driver's command: lockchaos driver check -- python3 driver.py",
		"lockchaos check":        "name what to judge: a file of JSON lines, a run directory, or - for standard input",
		"lockchaos merge":        "name the folders of the shards",
		"lockchaos campaign":     "name the folders of the shards",
		"lockchaos causes":       "name the run directory whose violations are to be explained",
		"lockchaos report":       "name the run directories whose reports are to be written",
		"lockchaos compare":      "name two run directories to compare",
		"lockchaos list":         "say what to list: topologies, locks, libraries, workloads, faults, mixes, scenarios",
		"lockchaos serve":        "name one folder with run directories, or none for " + runsDir,
	}
}

// values are those that flags take, and commands as arguments, as far as they have names.
func (a *app) values() map[string]func() (list []string) {
	return map[string]func() []string{
		"topology": topologies.Names, "backend": backendNames, "resource": harness.ResourceNames, "format": reportFormats, "from": judge.Formats,
		"lock":     func() []string { return append(a.locks.Names(), harness.ProgramPrefix) },
		"faults":   func() []string { return append(faults.Mixes(), faults.Names(faults.All())...) },
		"expect":   func() []string { return []string{"valid", "invalid"} },
		"workload": workload.Names,
		"lockchaos reproduce": func() (list []string) {
			catalogue, _ := scenarios.Catalogue(a.locks)
			for _, s := range catalogue {
				list = append(list, s.Name)
				list = append(list, names.Of(s.VariantNames(), func(v string) string { return s.Name + "/" + v })...)
			}
			return list
		},
		"lockchaos mutants": func() []string {
			return names.Of(mutants.Mutants(), func(m mutants.Mutant) string { return m.Name })
		},
	}
}

// complete adds to a command, and to those below it, what all of them have:
// examples, completion of values, and messages that say what would be right.
func (a *app) complete(cmd *cobra.Command) {
	path := cmd.CommandPath()
	if e := examples()[path]; e != "" {
		cmd.Example = "  " + strings.ReplaceAll(e, "\n", "\n  ")
	}
	cmd.SetFlagErrorFunc(flagError)
	cmd.Flags().SortFlags = false // they are declared in an order that is read best
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		values := a.values()[f.Name]
		if values == nil {
			return
		}
		_ = cmd.RegisterFlagCompletionFunc(f.Name, func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
			done := typed[:strings.LastIndexByte(typed, ',')+1] // of a comma list
			var list []string
			for _, v := range values() {
				if strings.HasPrefix(done+v, typed) {
					list = append(list, done+v)
				}
			}
			return list, cobra.ShellCompDirectiveNoFileComp
		})
	})
	if values := a.values()[path]; values != nil {
		cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return values(), cobra.ShellCompDirectiveDefault // a file of one's own is completed, too
		}
	}
	if accepts := cmd.Args; accepts != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			err := accepts(cmd, args)
			switch need := needed()[path]; {
			case err == nil:
				return nil
			case need != "":
				return errors.New(need)
			case cmd.HasAvailableSubCommands():
				var known []string
				for _, sub := range cmd.Commands() {
					if !sub.Hidden {
						known = append(known, sub.Name())
					}
				}
				return names.Unknown("command", args[0], known)
			case len(args) > 0 && strings.HasPrefix(err.Error(), "unknown command"):
				return fmt.Errorf("%s takes no argument %q (%s --help)", path, args[0], path)
			default:
				return err
			}
		}
	}
	for _, sub := range cmd.Commands() {
		a.complete(sub)
	}
}

// flagError says which flag was meant by one that there is not.
func flagError(cmd *cobra.Command, err error) error {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok || unknown.GetSpecifiedShortnames() != "" {
		return err
	}
	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
	hint := cmd.CommandPath() + " --help lists all"
	if nearest := names.Nearest(unknown.GetSpecifiedName(), known); nearest != "" {
		hint = "did you mean --" + nearest + "? " + hint
	}
	return fmt.Errorf("unknown flag: --%s (%s)", unknown.GetSpecifiedName(), hint)
}
