// Package names helps those who misspell one.
package names

import (
	"fmt"
	"strings"
)

// Unknown is the error for a name that nothing has: it lists those that are
// known, and asks whether the nearest was meant.
func Unknown(what, name string, known []string) error {
	nearest, least := "", len(name)/2+1
	for _, k := range known {
		d := editDistance(name, k)
		if name != "" && strings.HasPrefix(k, name) {
			d = 0
		}
		if k != name && d < least {
			nearest, least = k, d
		}
	}
	hint := "known: " + strings.Join(known, ", ")
	if nearest != "" {
		hint = "did you mean " + nearest + "? " + hint
	}
	return fmt.Errorf("unknown %s %q (%s)", what, name, hint)
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
