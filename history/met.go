package history

// What a history may have met: the names of counts that say what it covers. A
// workload says which of them it is for, and the judge counts them.
const (
	MetContention = "contention" // requests that overlapped a hold of another process
	MetHandOvers  = "hand-overs" // grants of a lock that was asked for while another owner held it
	MetRefusals   = "refusals"   // requests that were refused
	MetNotHeld    = "not-held"   // releases and extends that were refused, since the caller did not hold the lock
	MetUnknown    = "unknown"    // operations whose outcome is unknown
	MetExpiries   = "expiries"   // holds that outlived their lease, or that the holder was told were lost
	MetRenewals   = "renewals"   // extends that were confirmed
	MetReentries  = "re-entries" // grants to an owner that held the lock in the same mode
	MetDowngrades = "downgrades" // grants to read to an owner that was writing
	MetShared     = "shared"     // holds of a lock that began while another owner held it too
	MetQueued     = "queued"     // grants that say their place in a queue
	MetSeveral    = "several"    // holds that began while the owner held another lock
	MetCrashes    = "crashes"    // processes that were gone
	MetStale      = "stale"      // accesses with a token that the resource refused
)

// Abandoned is the error of an access that its holder gave up by itself, because
// its lease was over. Any other access that failed was refused by the resource.
const Abandoned = "abandoned: the lease is over"
