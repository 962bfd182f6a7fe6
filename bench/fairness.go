package bench

import "sync/atomic"

// share says how evenly the grants fell on the workers. The index is Jain's: R.
// Jain, D. Chiu and W. Hawe, "A Quantitative Measure of Fairness and
// Discrimination for Resource Allocation in Shared Computer Systems", 1984.
func (s *Slice) share(grants []atomic.Int64) {
	var sum, squares float64
	for i := range grants {
		n := grants[i].Load()
		if i == 0 || n < s.Least {
			s.Least = n
		}
		s.Most = max(s.Most, n)
		if n == 0 {
			s.Starved++
		}
		sum += float64(n)
		squares += float64(n) * float64(n)
	}
	if squares > 0 {
		s.Jain = sum * sum / (float64(len(grants)) * squares)
	}
}
