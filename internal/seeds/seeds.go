// Package seeds reads lists of seeds.
package seeds

import (
	"fmt"
	"strconv"
	"strings"
)

// Most bounds how many seeds a list may have.
const Most = 1_000_000

// Parse reads "1-200" or "3,7,20-29", in the order of the list.
func Parse(list string) ([]uint64, error) {
	var seeds []uint64
	named := map[uint64]bool{}
	for part := range strings.SplitSeq(list, ",") {
		from, to, ranged := strings.Cut(part, "-")
		first, err := strconv.ParseUint(from, 10, 64)
		last := first
		if err == nil && ranged {
			last, err = strconv.ParseUint(to, 10, 64)
		}
		if err != nil || last < first {
			return nil, fmt.Errorf("want whole numbers and ranges such as 1-200 or 3,7,20-29, and not %q", part)
		}
		if last-first >= uint64(Most-len(seeds)) {
			return nil, fmt.Errorf("%q are too many; want at most %d", list, Most)
		}
		for n := range last - first + 1 {
			seed := first + n
			if named[seed] {
				return nil, fmt.Errorf("%d is named twice", seed)
			}
			named[seed] = true
			seeds = append(seeds, seed)
		}
	}
	return seeds, nil
}
