package broken

// HalfQuorum returns a quorum lock that counts one server too few for a majority:
// two of five, and one of three. Two callers that reach different servers are both
// granted it.
//
// It is n/2 where n/2+1 is meant.
func HalfQuorum(s Setup) *Lock {
	q := newQuorum(s)
	q.majority = len(s.Servers) / 2
	return q.Lock
}

// NoCleanup returns a quorum lock that leaves the keys of a request without a
// majority where they are. After a few of them no client finds a majority until a
// lease is over.
//
// It was reported of node-redlock (#168): a caller that tried again was kept out by
// what it had left itself.
func NoCleanup(s Setup) *Lock {
	q := newQuorum(s)
	q.certain, q.swept = true, func(granted []bool) []bool { return make([]bool, len(granted)) }
	return q.Lock
}

// PartialCleanup returns a quorum lock that takes a request without a majority
// back only from the servers that granted it. One whose answer was lost keeps it.
// The Gate is before that, as it is in [CorrectQuorum].
//
// The Redis documentation (as above) says why all servers must be asked, "even the
// ones where it believed it had not acquired a lock"; see also node-redlock (#369).
func PartialCleanup(s Setup) *Lock {
	q := newQuorum(s)
	q.certain, q.swept = true, func(granted []bool) []bool { return granted }
	return q.Lock
}
