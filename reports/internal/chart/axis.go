package chart

import (
	"math"
	"strconv"
	"time"
)

// NiceStep is the smallest 1, 2 or 5 times a power of ten that divides a
// length into at most n parts.
func NiceStep(length time.Duration, n int) time.Duration {
	if length <= 0 {
		return 0
	}
	rough := float64(length) / float64(n)
	power := math.Pow(10, math.Floor(math.Log10(rough)))
	for _, m := range []float64{1, 2, 5, 10} {
		if power*m >= rough*0.999 {
			return max(1, time.Duration(math.Round(power*m)))
		}
	}
	return max(1, time.Duration(math.Round(power*10)))
}

// TickLabel writes a tick in seconds with as many decimals as its step needs.
func TickLabel(t, step time.Duration) string {
	decimals := 0
	for s := time.Second; s > step && decimals < 9; s /= 10 {
		decimals++
	}
	return strconv.FormatFloat(t.Seconds(), 'f', decimals, 64) + " s"
}
