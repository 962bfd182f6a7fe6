package reports

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/internal/say"
)

// stop ends a sentence that does not end yet.
func stop(s string) string {
	s = strings.TrimSpace(s)
	if s == "" || strings.HasSuffix(s, ".") || strings.HasSuffix(s, "!") || strings.HasSuffix(s, "?") {
		return s
	}
	return s + "."
}

// single is a count of one with a noun for several, as others may write it.
var single = regexp.MustCompile(`\b1 (byte|client|connection|grant|key|link|reason|replica|script|server|subscriber)s\b`)

// lengthOfTime is a length of time as Go writes it, and large a number of several things
// without commas, each as a word of its own.
var (
	lengthOfTime = regexp.MustCompile(`(^|[ (±])((?:\d+(?:\.\d+)?(?:h|ms|m|s|µs|us|ns))+)\b`)
	large        = regexp.MustCompile(`(^|[ (])(\d{4,18}) (bytes|clients|connections|grants|keys|requests)\b`)
)

// adapt fits words that come from elsewhere into those of the reports: number and noun
// agree ("1 key"), lengths of time have one unit ("60 s" for "1m0s", "1,358 ms" for
// "1.358s"), and large numbers have commas.
func adapt(s string) string {
	s = single.ReplaceAllString(s, "1 $1")
	s = lengthOfTime.ReplaceAllStringFunc(s, func(found string) string {
		parts := lengthOfTime.FindStringSubmatch(found)
		long, err := time.ParseDuration(parts[2])
		if err != nil {
			return found
		}
		return parts[1] + say.Span(long)
	})
	return large.ReplaceAllStringFunc(s, func(found string) string {
		parts := large.FindStringSubmatch(found)
		n, err := strconv.ParseInt(parts[2], 10, 64)
		if err != nil {
			return found
		}
		return parts[1] + say.Thousands(n) + " " + parts[3]
	})
}

// person is a client as the checkers name it: by its process and its owner.
var person = regexp.MustCompile(`\bp\d+ \(owner ([^()]+)\)`)

// byName calls the clients in words of the checkers as the stories call them: "client
// zone-a.5" for "p203 (owner zone-a.5#93)".
func byName(s string) string {
	return person.ReplaceAllStringFunc(s, func(found string) string {
		return "client " + client(person.FindStringSubmatch(found)[1])
	})
}

// theLock names a lock in a sentence: "the lock orders", and "lock-3", whose name says it.
func theLock(name string) string {
	if strings.HasPrefix(strings.ToLower(name), "lock") {
		return name
	}
	return "the lock " + name
}
