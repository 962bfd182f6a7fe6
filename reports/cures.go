package reports

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/history"
)

// ownerCure and prolongCure are what a release and an extension need so that
// they can touch nobody else's hold.
const (
	ownerCure   = "compare the owner and delete in one step on the server"
	prolongCure = "compare the owner and prolong in one step on the server"
)

// What helps where a server can forget what it granted, or be replaced by one
// that never knew it.
const (
	replicaCure = "count a grant only after replicas acknowledged it"
	minCure     = "have masters without replicas refuse writes (min-replicas-to-write), which bounds how long one that was replaced goes on granting"
	fileCure    = "keep the data in an append-only file with appendfsync always"
	clockCure   = "slew the servers' clocks and never step them, and ask for leases that are longer than a clock may be off"
	aloneCure   = "keep locks on a server of their own, with maxmemory-policy noeviction, where nobody removes keys"
)

// What helps a holder whose time is over, and whoever relies on it.
const (
	fenceCure = "have the resource refuse tokens older than the newest that it saw (fencing)"
	stopCure  = "stop when the hold ends: Hold.Lost says so, and the work's context under Hold.Context"
)

// option is how the run set something: by the topology that was drawn, else by
// a flag of the command that repeats the run. It is empty if it set nothing.
func (d *digest) option(name string) string {
	if v, ok := d.Run.Topology.Options[name]; ok {
		return v
	}
	words := strings.Fields(d.Run.Command)
	for i, w := range words {
		if v, ok := strings.CutPrefix(w, "--"+name+"="); ok {
			return v
		}
		if w == "--"+name && i+1 < len(words) {
			return words[i+1]
		}
	}
	return ""
}

// number is an option that is one; 0 if it was not set.
func (d *digest) number(name string) int {
	n, err := strconv.Atoi(d.option(name))
	if err != nil {
		return 0
	}
	return n
}

// has reports whether the run had a cure already: because it is the variant that
// the cure leads to, because it was set so, or because it was seen at work.
func (d *digest) has(cure string) bool {
	_, rest, _ := strings.Cut(cure, "(see ")
	see, _, _ := strings.Cut(rest, ")")
	says := func(word string) bool { return strings.Contains(cure, word) }
	switch {
	case see != "" && see == d.Run.Scenario:
		return true
	case says("acknowledged"):
		return d.number("replica-acks") > 0
	case says("min-replicas-to-write"):
		return d.number("min-replicas") > 0
	case says("append-only file"):
		return d.option("persistence") == "always"
	case says("fencing"):
		return len(d.stopped()) > 0
	default:
		return false
	}
}

// cures are what would have prevented a violation and was not in place: those
// that the scenario names, else those that fit what was found.
func (d *digest) cures(found []string) []string {
	for _, offered := range [][]string{d.Run.Cures, found} {
		left := slices.DeleteFunc(slices.Clone(offered), d.has)
		if len(left) > 0 {
			return left
		}
	}
	return nil
}

// remembering are the cures for a grant that was forgotten between two
// instants, by what happened in between.
func (d *digest) remembering(from, to time.Duration) []string {
	var cures []string
	add := func(cure string) {
		if !slices.Contains(cures, cure) {
			cures = append(cures, cure)
		}
	}
	promoted := slices.ContainsFunc(d.roles, func(c roleChange) bool {
		return c.role == "master" && c.was != "" && c.at >= from && c.at <= to
	})
	replaceable := d.replicas() > 0 || len(d.Run.Topology.Nodes) == 0 // or it is not known
	while := func(does func(f *Fault) bool) bool {
		return replaceable && slices.ContainsFunc(d.faults, func(f Fault) bool { return f.during(from, to) && does(&f) })
	}
	divided := while(func(f *Fault) bool { return f.has(history.Isolates) })
	caused := promoted || divided || while(func(f *Fault) bool { return f.parts(d.Run.Topology) })
	if acks, replicas := d.number("replica-acks"), d.replicas(); caused && acks == 0 {
		add(replicaCure)
	} else if caused && acks < replicas {
		add(fmt.Sprintf("have all %d replicas confirm a grant before it counts: this run asked for %d, and another may take over", replicas, acks))
	}
	if divided {
		add(minCure)
	}
	for i := range d.faults {
		f := &d.faults[i]
		if !f.during(from, to) {
			continue
		}
		switch {
		case f.has(history.ShiftsClock):
			add(clockCure)
		case f.has(history.Restarts) && f.has(history.Forgets): // no setting keeps what it had
		case f.has(history.Restarts):
			if !promoted {
				add(fileCure)
			}
		case f.has(history.Forgets):
			add(aloneCure)
		default:
			continue
		}
		caused = true
	}
	if caused {
		add(fenceCure)
	}
	return cures
}

// replicas is how many replicas the master with the most has.
func (d *digest) replicas() int {
	of, most := map[string]int{}, 0
	for _, n := range d.Run.Topology.Nodes {
		if n.Role == "replica" {
			of[n.Of]++
			most = max(most, of[n.Of])
		}
	}
	return most
}

// stopped are the accesses that the resource refused for their tokens.
func (d *digest) stopped() []*history.Operation {
	if d.refused == nil {
		d.refused = []*history.Operation{}
		for i := range d.ops {
			op := &d.ops[i]
			if op.Invoke.Op == history.Access && op.Failed() && tokenOf(op) != 0 {
				d.refused = append(d.refused, op)
			}
		}
	}
	return d.refused
}

// tokenOf is the fencing token that an access named; 0 if it named none.
func tokenOf(op *history.Operation) int64 {
	if op.Complete.Token != 0 {
		return op.Complete.Token
	}
	return op.Invoke.Token
}
