package worker

import "time"

// readings is how many pairs of readings are taken, of which the one counts
// that was taken in the shortest time.
const readings = 16

// sinceZero is how long before t, an instant with a monotonic reading, the clock
// stood at 0.
func sinceZero(t time.Time) (time.Duration, error) {
	var at time.Duration
	shortest := time.Duration(-1)
	for range readings {
		before := time.Now()
		now, err := monotonic()
		if err != nil {
			return 0, err
		}
		if took := time.Since(before); shortest < 0 || took < shortest {
			shortest = took
			at = time.Duration(now) - before.Add(took/2).Sub(t)
		}
	}
	return at, nil
}

// instant is when the clock stood there, with a monotonic reading.
func instant(at int64) (time.Time, error) {
	now := time.Now()
	zero, err := sinceZero(now)
	if err != nil {
		return time.Time{}, err
	}
	return now.Add(time.Duration(at) - zero), nil
}
