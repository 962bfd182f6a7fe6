package holding

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each owner of a lock is found again, however many there are, and in the order in
// which they came.
func TestLockOwners_find(t *testing.T) {
	t.Parallel()
	var l lockOwners
	for n := range 3000 {
		p := l.owner(strconv.Itoa(n))
		require.EqualValues(t, -1, p.account, "owner %d is new", n)
		p.account = int32(n)
		for _, known := range []int{0, n / 2, n} {
			require.EqualValues(t, known, l.owner(strconv.Itoa(known)).account)
		}
		require.Len(t, l.list, n+1)
	}
}
