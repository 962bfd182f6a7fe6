package reports

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
)

// ownerCure and prolongCure are what a release and an extension need so that
// they can touch no other hold, confirmCure what the answer to a release needs,
// stepCure and lateCure what a request needs, and leaseCure and wholeCure what a lease needs.
const (
	ownerCure   = "compare the owner and delete in one step on the server, with a token that each grant has for itself"
	prolongCure = "compare the owner and prolong in one step on the server"
	confirmCure = "confirm a release only if the server says that it removed the key: an error of it, such as NOSCRIPT, is no confirmation"
	stepCure    = "look whether the lock is free and acquire it in one step on the server (SET with NX and PX, or a script)"
	leaseCure   = "have the servers end a grant with its lease, which is set in the step that acquires the lock (SET with NX and PX)"
	lateCure    = "count the lease from when the request was sent, and take a grant that arrives after it for a refusal"
	counterCure = "draw tokens from a counter that outlives the key of the lock and every failover"
	wholeCure   = "have the key live for the whole lease in which the holder believes, in milliseconds (PX, and not EX)"
)

// What helps where a server can forget what it granted, or be replaced by one
// that never knew it.
const (
	replicaCure = "count a grant only after replicas acknowledged it"
	minCure     = "have masters without replicas refuse writes (min-replicas-to-write), which bounds how long one that was replaced goes on granting"
	fileCure    = "keep the data in an append-only file with appendfsync always"
	clockCure   = "slew the servers' clocks and never step them, and ask for leases that are longer than a clock may be off"
	aloneCure   = "keep locks on a server of their own, with maxmemory-policy noeviction, where nothing removes keys"
)

// What helps a holder whose time is over, and the clients that rely on it.
const (
	fenceCure = "have the resource refuse tokens older than the newest that it saw (fencing)"
	stopCure  = "stop when the hold ends: Hold.Lost says so, and the work's context under Hold.Context"
)

// fencingVariant shows what fencing does, where a scenario has no variant of its own with
// it: the damage is the same after any two grants.
const fencingVariant = "failover-double-grant/fencing"

// A Cure is something that helps against a cause.
type Cure struct {
	Text string `json:"text"`
	// Config sets it, in package lock or on the servers. Empty: it is in the text, or no
	// setting does it.
	Config string `json:"config,omitempty"`
	// Try is the command that tries it: in another failure, if the scenario does not show
	// it. Empty: there is none.
	Try string `json:"try,omitempty"`
	// Cost says what it costs.
	Cost string `json:"cost,omitempty"`
	// Prevents is set where it is known that this would have been prevented: by the variant
	// of a scenario that shows it.
	Prevents bool `json:"prevents,omitempty"`
}

// curesOf are the cures of a story with what is known of them.
func (m *model) curesOf(texts []string) []Cure {
	var cures []Cure
	for _, text := range texts {
		c := Cure{Text: text}
		flag := ""
		says := func(words string) bool { return strings.Contains(text, words) }
		switch {
		case says("every replica") || says("confirm a grant before it counts"):
			c.Config, flag = m.acks(m.replicas())
			c.Cost = "each grant waits for the slowest replica, and none is made while one is away"
		case says("acknowledged"):
			c.Config, flag = m.acks(1)
			c.Cost = "each grant waits for a replica, and none is made while too few replicas answer"
		case says("min-replicas-to-write"):
			c.Config, flag = "min-replicas-to-write 1", "--min-replicas 1"
			c.Cost = "a master without replicas refuses all writes"
		case says("append-only file"):
			c.Config, flag = "appendonly yes, appendfsync always", "--persistence always"
			c.Cost = "each write waits for the disk"
		case says("draw tokens"):
			c.Config = "INCR of a key without an expiry, in the step that acquires the lock"
			if m.Run.Lock != "mutex-fenced" && m.oneKey() {
				flag = "--lock mutex-fenced"
			}
		case says("fencing") || says("refuse tokens"):
			c.Config = "a lock with tokens (FencedMutex), and lock/fence before the resource"
			switch m.Run.Lock {
			case "mutex-fenced":
				flag = "--fencing"
			case "mutex", "":
				flag = "--lock mutex-fenced --fencing"
			}
			c.Cost = "the resource must store and compare a token; it stops the damage, not its cause"
			if m.Run.Lock == "redlock" {
				c.Cost += "; Redlock has no tokens, since each of its servers would count for itself"
			}
		case says("Hold.Lost"):
			c.Config, c.Cost = "the context under Hold.Context for all work", "work ends in the middle: it must be safe to repeat"
		case says("slew"):
			c.Cost = "a clock that is far off comes right slowly"
			if says("longer") {
				c.Cost += ", leases get longer, and so does the wait for a crashed holder"
			}
		case says("noeviction"):
			c.Config, c.Cost = "maxmemory-policy noeviction", "another server to run"
		}
		if strings.Contains(text, c.Config) {
			c.Config = ""
		}
		if variants := shownBy(text); variants != nil {
			c.Try, c.Prevents = "lockchaos reproduce "+strings.Join(variants, " "), true
		} else if flag != "" {
			c.Try = m.with(flag)
		}
		if c.Try == "" && m.Run.Scenario != "" && (says("fencing") || says("refuse tokens")) {
			c.Try = "lockchaos reproduce " + fencingVariant
		}
		cures = append(cures, c)
	}
	return cures
}

// acks are how n replicas are made to acknowledge a grant, and the flags that try it: with a
// lock of package lock, where the lock of the run has no such setting.
func (m *model) acks(n int) (config, flags string) {
	flags = fmt.Sprintf("--replica-acks %d", n)
	if slices.Contains(m.Run.Unpromised, history.UnpromisedAcks) {
		return fmt.Sprintf("WAIT %d after each grant, which is withdrawn if fewer answer (lock.Config{ReplicaAcks: %d} does so)", n, n), "--lock " + m.ownLock() + " " + flags
	}
	return fmt.Sprintf("lock.Config{ReplicaAcks: %d}", n), flags
}

// ownLock is the lock of package lock that does what that of the run does.
func (m *model) ownLock() string {
	for _, e := range m.notes {
		switch {
		case e.Op != history.Declare:
		case e.Kind == history.KindSemaphore:
			return "semaphore-permit"
		case e.Kind == history.KindRW:
			return "rwmutex"
		case e.Fair:
			return "mutex-fair"
		}
	}
	return "mutex"
}

// shownBy are the variants that show a cure: "(see a/one, /two and a/three)".
func shownBy(cure string) []string {
	_, rest, _ := strings.Cut(cure, "(see ")
	see, _, closed := strings.Cut(rest, ")")
	if !closed {
		return nil
	}
	var variants []string
	of := ""
	for name := range strings.SplitSeq(strings.ReplaceAll(see, " and ", ", "), ", ") {
		if strings.HasPrefix(name, "/") {
			name = of + name
		}
		of, _, _ = strings.Cut(name, "/")
		variants = append(variants, name)
	}
	return variants
}

// with is the command of a random run with more flags, which replace those it has; empty
// for any other.
func (m *model) with(flags string) string {
	words := strings.Fields(m.Run.Command)
	if len(words) < 2 || words[0] != "lockchaos" || words[1] != "run" || strings.ContainsAny(m.Run.Command, `"'\`) {
		return ""
	}
	more := strings.Fields(flags)
	for _, flag := range more {
		if at := slices.Index(words, flag); strings.HasPrefix(flag, "--") && at > 0 {
			end := at + 1
			if end < len(words) && !strings.HasPrefix(words[end], "--") {
				end++
			}
			words = slices.Delete(words, at, end)
		}
		words = slices.DeleteFunc(words, func(w string) bool { return strings.HasPrefix(w, flag+"=") })
	}
	return strings.Join(append(words, more...), " ")
}

// option is how the run set something: by the topology that was drawn, else by
// a flag of the command that repeats the run. It is empty if it set nothing.
func (m *model) option(name string) string {
	if v, ok := m.Run.Topology.Options[name]; ok {
		return v
	}
	words := strings.Fields(m.Run.Command)
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
func (m *model) number(name string) int {
	n, err := strconv.Atoi(m.option(name))
	if err != nil {
		return 0
	}
	return n
}

// has reports whether the run had a cure already: because it is the variant that
// the cure leads to, because it was set so, or because it was seen at work.
func (m *model) has(cure string) bool {
	says := func(word string) bool { return strings.Contains(cure, word) }
	switch {
	case slices.Contains(shownBy(cure), m.Run.Scenario):
		return true
	case says("acknowledged"):
		return m.number("replica-acks") > 0
	case says("min-replicas-to-write"):
		return m.number("min-replicas") > 0
	case says("append-only file"):
		return m.option("persistence") == "always"
	case says("fencing"):
		return m.Run.Fencing || len(m.stopped()) > 0
	default:
		return false
	}
}

// cures are what would have prevented a violation and was not in place: those
// that the scenario names, else those that fit what was found.
func (m *model) cures(found []string) []string {
	for _, offered := range [][]string{m.Run.Cures, found} {
		left := slices.DeleteFunc(slices.Clone(offered), m.has)
		if len(left) > 0 {
			return left
		}
	}
	return nil
}

// remembering are the cures for a grant that was forgotten between two
// instants, by what happened in between to the servers and clients of a violation. There
// are none where no fault explains it.
func (m *model) remembering(v *checker.Violation, from, to time.Duration) []string {
	if m.causeOf(v) < 0 {
		return nil
	}
	where := m.sceneOf(v, m.evidence(v))
	var cures []string
	add := func(cure string) {
		if !slices.Contains(cures, cure) {
			cures = append(cures, cure)
		}
	}
	promoted := slices.ContainsFunc(m.roles, func(c roleChange) bool {
		return c.role == "master" && c.was != "" && c.at >= from && c.at <= to && where.server(c.node)
	})
	promoted = promoted || slices.ContainsFunc(m.faults, func(f Fault) bool { // and the old master goes on
		return f.has(history.Promotes) && f.OK && f.Start <= to && m.settled(&f) > f.End && m.settled(&f) >= from && m.concerns(&f, where)
	})
	replaceable := m.replicas() > 0 || len(m.Run.Topology.Nodes) == 0 // or it is not known
	while := func(does func(f *Fault) bool) bool {
		return replaceable && slices.ContainsFunc(m.faults, func(f Fault) bool { return f.during(from, to) && does(&f) && m.concerns(&f, where) })
	}
	divided := while(func(f *Fault) bool { return f.has(history.Isolates) && m.tookOver(f) })
	caused := promoted || divided || while(func(f *Fault) bool { return f.parts(m.Run.Topology) })
	if acks, replicas := m.number("replica-acks"), m.replicas(); caused && acks == 0 {
		add(replicaCure)
	} else if caused && acks < replicas {
		add(fmt.Sprintf("have all %d replicas confirm a grant before it counts: this run asked for %d, and another may take over", replicas, acks))
	}
	if divided {
		add(minCure)
	}
	for i := range m.faults {
		f := &m.faults[i]
		if !f.during(from, to) || !m.concerns(f, where) {
			continue
		}
		switch {
		case f.has(history.ShiftsClock):
			add(clockCure)
		case f.has(history.Restarts) && f.has(history.Forgets): // no setting keeps what it had
		case f.has(history.Restarts) && m.keepsData(f):
			continue
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
func (m *model) replicas() int {
	of, most := map[string]int{}, 0
	for _, n := range m.Run.Topology.Nodes {
		if n.Role == "replica" {
			of[n.Of]++
			most = max(most, of[n.Of])
		}
	}
	return most
}

// stopped are the accesses that the resource refused for their tokens.
func (m *model) stopped() []*history.Operation {
	if m.refused == nil {
		m.refused = []*history.Operation{}
		for i := range m.ops {
			op := &m.ops[i]
			if op.Invoke.Op == history.Access && op.Failed() && !gaveUp(op) && tokenOf(op) != 0 {
				m.refused = append(m.refused, op)
			}
		}
	}
	return m.refused
}

// gaveUp reports whether a client gave up an access by itself: the resource refused nothing.
func gaveUp(op *history.Operation) bool {
	return op.Failed() && op.Complete.Error == history.Abandoned
}

// tokenOf is the fencing token that an access named; 0 if it named none.
func tokenOf(op *history.Operation) int64 {
	if op.Complete.Token != 0 {
		return op.Complete.Token
	}
	return op.Invoke.Token
}
