// Package names lists names, and helps those who misspell one.
package names

import (
	"fmt"
	"strings"
)

// Of are the names of some things, in their order.
func Of[T any](things []T, name func(T) string) []string {
	var list []string
	for _, t := range things {
		list = append(list, name(t))
	}
	return list
}

// Unknown is the error for a name that nothing has: it lists those that are
// known, and asks whether the nearest was meant.
func Unknown(what, name string, known []string) error {
	hint := "known: " + strings.Join(known, ", ")
	if nearest := Nearest(name, known); nearest != "" {
		hint = "did you mean " + nearest + "? " + hint
	}
	return fmt.Errorf("unknown %s %q (%s)", what, name, hint)
}

// maxEdits is how many letters of a long name may be wrong for it to be a misspelling.
const maxEdits = 3

// Nearest is the name that may have been meant, in any case of letters; empty if none is
// near. Near is a name with at least half of the letters, or one that begins with the
// other.
func Nearest(name string, known []string) string {
	nearest, least := "", min((len(name)+1)/2, maxEdits, len(name)-1)+1
	for _, k := range known {
		d := editDistance(strings.ToLower(name), k)
		switch {
		case name != "" && strings.HasPrefix(k, strings.ToLower(name)):
			d = 0
		case strings.HasPrefix(strings.ToLower(name), k):
			d = min(d, maxEdits)
		}
		if k != name && d < least {
			nearest, least = k, d
		}
	}
	return nearest
}

// editDistance is the number of bytes to insert, delete or replace to make one
// string of the other (Levenshtein).
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
