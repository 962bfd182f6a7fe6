package reports

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// instant writes a point in time, rounded down as in the words of the checker: "1.716 s".
func instant(t time.Duration) string {
	return strconv.FormatFloat(t.Truncate(time.Millisecond).Seconds(), 'f', 3, 64) + " s"
}

// span writes a length of time in the unit that reads best, rounded down: "840 µs",
// "1,240 ms", "28.698 s".
func span(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + span(d.Abs())
	case d == 0:
		return "0 ms"
	case d < time.Microsecond:
		return fmt.Sprintf("%d ns", d.Nanoseconds())
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case d < 10*time.Millisecond:
		return trimZeros(strconv.FormatFloat(float64(d.Truncate(100*time.Microsecond))/1e6, 'f', 1, 64)) + " ms"
	case d < 10*time.Second:
		return thousands(d.Milliseconds()) + " ms"
	default:
		return trimZeros(strconv.FormatFloat(d.Truncate(time.Millisecond).Seconds(), 'f', 3, 64)) + " s"
	}
}

// runLength writes how long a run took: always seconds from one second on.
func runLength(d time.Duration) string {
	if d < time.Second {
		return span(d)
	}
	return trimZeros(strconv.FormatFloat(d.Truncate(time.Millisecond).Seconds(), 'f', 3, 64)) + " s"
}

func trimZeros(s string) string {
	if !strings.Contains(s, ".") {
		return s
	}
	return strings.TrimRight(strings.TrimRight(s, "0"), ".")
}

// thousands writes 28698 as "28,698".
func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	for at := len(s) - 3; at > 0 && s[at-1] != '-'; at -= 3 {
		s = s[:at] + "," + s[at:]
	}
	return s
}

// count writes a number with its noun: "1 grant", "2,310 grants".
func count(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return thousands(int64(n)) + " " + plural(one)
}

func plural(noun string) string {
	switch {
	case noun == "request for a lock":
		return "requests for a lock"
	case strings.HasSuffix(noun, "y"):
		return strings.TrimSuffix(noun, "y") + "ies"
	case strings.HasSuffix(noun, "s"):
		return noun + "es"
	default:
		return noun + "s"
	}
}

// list joins names as people do: "a, b and c".
func list(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

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
		return parts[1] + span(long)
	})
	return large.ReplaceAllStringFunc(s, func(found string) string {
		parts := large.FindStringSubmatch(found)
		n, err := strconv.ParseInt(parts[2], 10, 64)
		if err != nil {
			return found
		}
		return parts[1] + thousands(n) + " " + parts[3]
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

// lockHeading names a lock above its lanes: "lock orders", and "lock-3", whose name says it.
func lockHeading(name string) string { return strings.TrimPrefix(theLock(name), "the ") }
