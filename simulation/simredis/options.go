package simredis

import "strings"

// options are words that change what a command does.
type options uint32

const (
	optNX options = 1 << iota
	optXX
	optGT
	optLT
	optCH
	optIncr
	optGet
	optKeepTTL
	optEX
	optPX
	optEXAT
	optPXAT
	optWithScores
	optRev
	optByScore
	optLimit

	expiries = optEX | optPX | optEXAT | optPXAT
	lifetime = expiries | optKeepTTL
)

//nolint:gochecknoglobals // a constant
var optionNames = map[string]options{
	"NX": optNX, "XX": optXX, "GT": optGT, "LT": optLT, "CH": optCH, "INCR": optIncr,
	"GET": optGet, "KEEPTTL": optKeepTTL, "EX": optEX, "PX": optPX, "EXAT": optEXAT, "PXAT": optPXAT,
	"WITHSCORES": optWithScores, "REV": optRev, "BYSCORE": optByScore, "LIMIT": optLimit,
}

func (o options) has(some options) bool { return o&some != 0 }

// parseOptions takes those of allowed off the front of a, and returns which there are, the
// arguments of the last that has some, and what follows: of two that say how long a key
// lives, the second is not taken.
func parseOptions(a []string, allowed options) (found options, values, rest []string) {
	for len(a) > 0 {
		o := optionNames[strings.ToUpper(a[0])] & allowed
		n := 0
		switch {
		case o == 0, o.has(expiries) && found.has(lifetime), o.has(lifetime) && found.has(expiries):
			return found, values, a
		case o.has(expiries):
			n = 1
		case o == optLimit:
			n = 2
		}
		if len(a) <= n {
			return found, values, a
		}
		if n > 0 {
			values = a[1 : 1+n]
		}
		found, a = found|o, a[1+n:]
	}
	return found, values, nil
}
