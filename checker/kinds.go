package checker

import "slices"

// The kinds of violation.
const (
	DoubleGrant     = "double-grant"     // two owners hold at the same time
	UseAfterLease   = "use-after-lease"  // an access after the holder's belief had to end
	LostUpdate      = "lost-update"      // concurrent accesses lost a write
	ForeignRelease  = "foreign-release"  // a release or extension confirmed for an owner that cannot have held
	PrematureLoss   = "premature-loss"   // told "not held" before the lease can have run out
	NotLinearizable = "not-linearizable" // no order of the operations explains their results
	Reentrancy      = "reentrancy"       // granted again to its holder though not re-entrant, or with another token
	FenceRegress    = "fence-regress"    // a later grant has a smaller fencing token
	FenceDuplicate  = "fence-duplicate"  // two grants have the same fencing token
	OverCapacity    = "over-capacity"    // more permits of a semaphore out than there are
	Stuck           = "stuck"            // free of holders and faults, and no client could acquire it; or left to a request that was refused
	Overtaken       = "overtaken"        // of a fair lock, a request queued later was granted earlier
	StaleAccess     = "stale-access"     // the resource accepted a token older than one it had accepted before
)

// A Kind is what reports and scenarios have to know of a kind of violation.
type Kind struct {
	// Name is that of [Violation.Kind].
	Name string
	// Noun counts violations: one "stuck lock", two "stuck locks".
	Noun string
	// InAnswer says that a violation is there once the last of its requests was answered, and
	// not from its beginning.
	InAnswer bool
	// ByAccess says that accesses of the protected resource prove it.
	ByAccess bool
	// Consequence says that it can follow from another violation, and no grant is wrong by
	// itself.
	Consequence bool
}

// Kinds are all kinds of violation, ordered by how much of the others they explain: a double
// grant is the cause of a lost update, and not the other way round.
func Kinds() []Kind {
	return []Kind{
		{Name: DoubleGrant, Noun: "double grant"},
		{Name: OverCapacity, Noun: "excess permit"},
		{Name: Reentrancy, Noun: "wrong re-entry"},
		{Name: ForeignRelease, Noun: "foreign release", InAnswer: true},
		{Name: PrematureLoss, Noun: "premature loss", InAnswer: true},
		{Name: FenceRegress, Noun: "smaller token", Consequence: true},
		{Name: FenceDuplicate, Noun: "duplicate token", Consequence: true},
		{Name: StaleAccess, Noun: "stale access", InAnswer: true, ByAccess: true, Consequence: true},
		{Name: UseAfterLease, Noun: "use after the lease", ByAccess: true, Consequence: true},
		{Name: LostUpdate, Noun: "lost update", InAnswer: true, ByAccess: true, Consequence: true},
		{Name: Stuck, Noun: "stuck lock", Consequence: true},
		{Name: Overtaken, Noun: "overtaken request", Consequence: true},
		{Name: NotLinearizable, Noun: "unexplained answer", Consequence: true},
	}
}

// KindOf is the kind of that name, and its place in [Kinds]. One of another version is a kind
// that has its name alone, behind all others.
func KindOf(name string) (k Kind, place int) {
	all := Kinds()
	if at := slices.IndexFunc(all, func(k Kind) bool { return k.Name == name }); at >= 0 {
		return all[at], at
	}
	return Kind{Name: name}, len(all)
}
