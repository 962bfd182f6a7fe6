package holding

import "time"

// The reasons for which a hold ends.
const (
	EndReleased = "released" // a confirmed release was sent
	EndExpired  = "expired"  // the lease ran out
	EndLost     = "lost"     // the holder was told, by a lost or by a refused release or extend
	EndUnknown  = "unknown"  // an operation with an unknown outcome may have ended it
	EndOpen     = "open"     // nothing ended it
)

// A Span is the closed stretch of time between two instants; it has no length
// where Until <= From.
type Span struct {
	From, Until time.Duration
}

// Overlap is the stretch that two spans share. It reports false for spans that
// are apart or only touch.
func (s Span) Overlap(other Span) (Span, bool) {
	both := Span{From: max(s.From, other.From), Until: min(s.Until, other.Until)}
	return both, both.From < both.Until
}
