package history

import (
	"math"
	"time"
)

// Never is the end of a hold that nothing in the history ends.
const Never time.Duration = math.MaxInt64

// The reasons for which a hold ends.
const (
	EndReleased = "released" // a confirmed release was sent
	EndExpired  = "expired"  // the lease ran out
	EndLost     = "lost"     // the holder was told
	EndUnknown  = "unknown"  // an operation with an unknown outcome may have ended it
	EndOpen     = "open"     // nothing ended it
)

// A Hold is one grant of a lock and what followed under the same owner: the
// time in which that owner is entitled to believe that it holds.
type Hold struct {
	Lock    string
	Owner   string
	Process int
	Mode    Mode // never empty
	Permits int  // at least 1
	Token   int64
	// Acquire is the operation that asked. Its completion may be an Info, if
	// a later confirmed release, extension or access proves the grant.
	Acquire Operation
	// Proof is the operation whose reply proves the grant: Acquire itself if
	// it was answered ok.
	Proof Operation
	// Extensions are the later extends and inner acquires of this owner.
	Extensions []Operation
	// Release is the last release, whatever its outcome; nil if there was none.
	Release *Operation
	// Start is the latest instant at which the grant can have begun, and End
	// the earliest at which it can have ended; Never if nothing ended it.
	// Where End <= Start the grant was answered too late to be of use.
	Start, End time.Duration
	// Ended says why it ended at End.
	Ended string
}
