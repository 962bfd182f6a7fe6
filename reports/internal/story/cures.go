package story

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports/internal/facts"
)

// A Cure is something that helps against a violation.
type Cure struct {
	ID   string `json:"id,omitempty"` // empty for one that a scenario names
	Text string `json:"text"`
	// Config sets it, in package lock or on the servers. Empty: no setting does it.
	Config string `json:"config,omitempty"`
	// Try is the command that tries it. Empty: there is none.
	Try string `json:"try,omitempty"`
	// Cost says what it costs.
	Cost string `json:"cost,omitempty"`
}

// fencing is the cure that stops the damage, and not the violation.
const fencing = "fencing"

// A cureRow is a cure with what it helps against.
type cureRow struct {
	Cure

	Kinds []string // of violations
	// Effects are those of faults of which one was in effect; nil: it helps whatever was.
	Effects []history.Effect
	When    func(*telling) bool     // what else must be so; nil for nothing
	On      func(*facts.Facts) bool // whether the run had it already; nil: that is not known
	Flags   string                  // that try it in a random run
}

// cureRows are all cures, in the order in which they are named: those that prevent the violation before
// those that prevent its damage. The text is in general terms; Config is how package lock or Redis calls it.
func cureRows() []cureRow {
	const fenced = "the resource must store and compare a token; it stops the damage, and not the second grant"
	wrong := []string{checker.ForeignRelease, checker.DoubleGrant}
	return []cureRow{
		{
			Cure:  Cure{ID: "owner-checked-release", Text: "compare the owner and delete in one step on the server, with a token that each grant has for itself"},
			Kinds: wrong, When: func(t *telling) bool { return t.wrongly(history.Release) || t.freeing != nil && t.freeing.Failed() },
		},
		{
			Cure:  Cure{ID: "confirmed-release", Text: "confirm a release only if the server says that it removed the key: an error, such as NOSCRIPT, is no confirmation"},
			Kinds: wrong, When: func(t *telling) bool { return t.wrongly(history.Release) },
		},
		{
			Cure:  Cure{ID: "owner-checked-extension", Text: "compare the owner and prolong in one step on the server, and never set a key that is gone"},
			Kinds: wrong, When: func(t *telling) bool {
				return t.wrongly(history.Extend) || t.late != nil && t.v.Kind == checker.DoubleGrant
			},
		},
		{
			Cure:  Cure{ID: "watchdog-tells", Text: "have the watchdog try again after an error, and tell the holder at the end of the lease that the last confirmed extension gave it"},
			Kinds: []string{checker.DoubleGrant, checker.PrematureLoss}, When: (*telling).unextended,
		},
		{
			Cure:  Cure{ID: "extension-leaves-hold", Text: "after an extension without an answer leave the key alone: the hold has what is left of its lease"},
			Kinds: []string{checker.DoubleGrant, checker.PrematureLoss}, When: func(t *telling) bool { return t.unsure != nil },
		},
		{
			Cure: Cure{
				ID: "replica-acks", Text: "count a grant only after replicas acknowledged it (WAIT after the SET, and withdraw it if too few answer)",
				Config: "lock.Config{ReplicaAcks: 1}", Cost: "each grant waits for a replica, and none is made while too few replicas answer",
			},
			Kinds:   []string{checker.DoubleGrant, checker.OverCapacity, checker.PrematureLoss},
			Effects: []history.Effect{history.Promotes, history.Isolates}, When: (*telling).replicated,
			On: func(r *facts.Facts) bool { return setting(r, "replica_acks", "replica-acks") != "" }, Flags: "--replica-acks 1",
		},
		{
			Cure: Cure{
				ID: "min-replicas", Text: "have masters without replicas refuse writes, which bounds how long one that was replaced goes on granting",
				Config: "min-replicas-to-write 1", Cost: "a master without replicas refuses all writes",
			},
			Kinds:   []string{checker.DoubleGrant, checker.OverCapacity, checker.PrematureLoss},
			Effects: []history.Effect{history.Isolates}, When: (*telling).replicated,
			On: func(r *facts.Facts) bool { return setting(r, "min_replicas", "min-replicas") != "" }, Flags: "--min-replicas 1",
		},
		{
			Cure: Cure{
				ID: "append-only-file", Text: "keep the data of a server that restarts in an append-only file that is written before each answer",
				Config: "appendonly yes, appendfsync always", Cost: "each write waits for the disk",
			},
			Kinds:   []string{checker.DoubleGrant, checker.OverCapacity, checker.PrematureLoss, checker.FenceRegress, checker.FenceDuplicate, checker.Overtaken},
			Effects: []history.Effect{history.Restarts},
			On:      func(r *facts.Facts) bool { return setting(r, "persistence") == "always" }, Flags: "--persistence always",
		},
		{
			Cure: Cure{
				ID: "no-eviction", Text: "keep locks on a server of their own, where nothing removes keys",
				Config: "maxmemory-policy noeviction", Cost: "another server to run",
			},
			Kinds:   []string{checker.DoubleGrant, checker.OverCapacity, checker.PrematureLoss, checker.FenceRegress, checker.FenceDuplicate},
			Effects: []history.Effect{history.Forgets},
		},
		{
			Cure: Cure{
				ID: "slewed-clocks", Text: "slew the servers' clocks and never step them, and ask for leases that are longer than a clock may be off",
				Cost: "a clock that is far off comes right slowly, leases get longer, and so does the wait for a crashed holder",
			},
			Kinds:   []string{checker.DoubleGrant, checker.OverCapacity, checker.PrematureLoss, checker.Stuck, checker.Overtaken},
			Effects: []history.Effect{history.ShiftsClock}, When: func(t *telling) bool { return !t.wrongClient() },
		},
		{
			Cure: Cure{
				ID: "monotonic-lease", Text: "have the server count the lease from when it grants it, and the client by a monotonic clock: never name its end as a time of day",
				Config: "SET key token NX PX milliseconds, and not PXAT",
			},
			Kinds: []string{checker.DoubleGrant, checker.OverCapacity, checker.PrematureLoss, checker.Stuck, checker.ForeignRelease, checker.UseAfterLease},
			When:  (*telling).wrongClient,
		},
		{
			Cure:  Cure{ID: "lasting-counter", Text: "draw tokens from a counter that outlives the key of the lock and every failover", Config: "INCR of a key without an expiry, in the step that acquires the lock"},
			Kinds: []string{checker.FenceRegress, checker.FenceDuplicate},
		},
		{
			Cure:  Cure{ID: "newest-token", Text: "have the resource keep the newest token that it saw, and refuse older ones in the same step"},
			Kinds: []string{checker.StaleAccess},
		},
		{
			Cure:  Cure{ID: "lease-from-request", Text: "count the lease from when the request was sent, and take a grant that arrives after it for a refusal"},
			Kinds: []string{checker.UseAfterLease}, When: (*telling).learntLate,
		},
		{
			Cure:  Cure{ID: "only-when-granted", Text: "use the resource after a grant only: a refusal, and a request without an answer, are none"},
			Kinds: []string{checker.UseAfterLease}, When: (*telling).neverHeld,
		},
		{
			Cure:  Cure{ID: "finish-first", Text: "finish the change before the lock is released"},
			Kinds: []string{checker.LostUpdate, checker.UseAfterLease, checker.StaleAccess}, When: (*telling).releasedEarly,
		},
		{
			Cure: Cure{
				ID: "stop-with-the-hold", Text: "stop when the hold ends",
				Config: "Hold.Lost says so; the context under Hold.Context for all work", Cost: "work ends in the middle: it must be safe to repeat",
			},
			Kinds: []string{checker.UseAfterLease}, When: func(t *telling) bool { return !t.learntLate() && !t.releasedEarly() && !t.neverHeld() },
		},
		{
			Cure: Cure{
				ID: fencing, Text: "have the resource refuse tokens older than the newest that it saw (fencing)",
				Config: "a lock with tokens (FencedMutex), and lock/fence before the resource", Cost: fenced,
			},
			Kinds: []string{checker.DoubleGrant, checker.PrematureLoss, checker.UseAfterLease, checker.LostUpdate}, When: func(t *telling) bool { kind, _ := t.r.KindOf(t.v.Lock); return kind != history.KindSemaphore }, // whose holders have several tokens
			On: func(r *facts.Facts) bool { return r.Run.Fencing || len(r.Stopped()) > 0 },
		},
	}
}

// cures are what helps against a violation and was not in place: what its scenario names, unless the run is a variant,
// which may have it; else what fits the kind and the effects of the faults that were in effect, or that were measured to be
// needed. Where the violation is a limit of the deployment, what helps against faults comes first.
func (t *telling) cures() []Cure {
	var found []Cure
	for _, text := range t.r.Run.Cures {
		found = append(found, Cure{Text: text})
	}
	if len(found) > 0 && !strings.Contains(t.r.Run.Scenario, "/") {
		return found
	}
	found = nil
	rows, blamed, control := cureRows(), t.needed(), t.r.Run.Control
	if t.cause.Verdict == history.CauseDeployment || t.cause.Verdict != history.CauseLock && control != nil && control.Verdict == string(checker.Invalid) {
		slices.SortStableFunc(rows, func(a, b cureRow) int { return cmp.Compare(a.distance(blamed), b.distance(blamed)) })
	}
	for _, row := range rows {
		switch {
		case !slices.Contains(row.Kinds, t.v.Kind),
			row.When != nil && !row.When(t),
			row.On != nil && row.On(t.r),
			row.Effects != nil && !slices.ContainsFunc(slices.Concat(t.effective, blamed), row.against):
			continue
		}
		c := row.Cure
		if row.Flags != "" {
			c.Try = With(t.r.Run, row.Flags)
		}
		found = append(found, c)
	}
	return found
}

// against reports whether it helps against a fault.
func (row cureRow) against(f *facts.Fault) bool { return slices.ContainsFunc(row.Effects, f.Has) }

// distance orders cures of a limit of the deployment: what keeps data that a fault took, what else helps against a fault
// that was needed, then against any, then all that is in the code of a lock or a client.
func (row cureRow) distance(blamed []*facts.Fault) int {
	lost := slices.ContainsFunc(blamed, func(f *facts.Fault) bool { return f.Params["data"] == "lost" })
	return slices.Index([]bool{lost && slices.Contains(row.Effects, history.Restarts), slices.ContainsFunc(blamed, row.against), row.Effects != nil, true}, true)
}

// needed are the faults without which the violation was measured to be rarer; all that were in effect where none was measured.
func (t *telling) needed() (found []*facts.Fault) {
	if len(t.cause.Faults) == 0 {
		return t.effective
	}
	for i := range t.r.Faults {
		switch f := &t.r.Faults[i]; f.Role(t.cause) {
		case history.RoleNeeded, history.RoleWithOthers, history.RoleOneOf:
			found = append(found, f)
		}
	}
	return found
}

// With is the command of a random run with more flags; empty for any other. Of a flag that is there twice the
// last counts.
func With(run history.Run, flags string) string {
	if run.Scenario != "" || !strings.HasPrefix(run.Command, "lockchaos run ") {
		return ""
	}
	return run.Command + " " + flags
}

// setting is how the run set something, by its name in the settings of a run, or in the options of a
// topology; empty if it set nothing, or 0.
func setting(r *facts.Facts, names ...string) string {
	var settings map[string]any
	if json.Unmarshal(r.Run.Settings, &settings) != nil {
		settings = nil
	}
	for _, name := range names {
		if value, known := settings[name]; known && value != 0.0 {
			return fmt.Sprint(value)
		}
		if value := r.Run.Topology.Options[name]; value != "" && value != "0" {
			return value
		}
	}
	return ""
}
