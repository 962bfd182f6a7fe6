package reports

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFileName(t *testing.T) {
	for give, want := range map[string]string{
		"orders":        "orders",
		"shop/orders:7": "shop=2Forders=3A7",
		"../../etc":     "..=2F..=2Fetc",
		"<b>\x00ä":      "=3Cb=3E=00=C3=A4",
		"{tag}.lock-1":  "=7Btag=7D.lock-1",
	} {
		require.Equal(t, want, fileName(give))
	}
	long := strings.Repeat("x", 1000)
	require.Len(t, fileName(long), maxFileName)
	require.NotEqual(t, fileName(long+"1"), fileName(long+"2"))
}
