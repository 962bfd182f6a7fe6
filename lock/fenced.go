package lock

// A FencedMutex is a [Mutex] whose grants have a fencing token: [Lease.Token].
// Tokens of one name grow strictly from grant to grant; a re-entry has that of
// the hold that it re-enters. A resource that refuses tokens smaller than the
// greatest one that it saw is safe even from a holder that works on after its
// lease: see package fence, and Kleppmann, "How to do distributed locking",
// 2016.
//
// A token is the server's time in microseconds, or one more than the last token
// where that is greater. The last one is remembered for [Config.TokenLife], so
// nothing stays on the server for ever; tokens keep growing after that, and
// after a failover that lost the last one, as long as the new server's clock is
// not behind the old one's by more than has passed since.
//
// A FencedMutex and a [Mutex] of one name exclude each other, but only the
// former's grants have tokens.
type FencedMutex struct{ Mutex }

// FencedMutex returns the fenced mutex of that name, without asking the server.
func (c *Client) FencedMutex(name string) *FencedMutex {
	return &FencedMutex{Mutex{c.object(name, kinds.fenced)}}
}
