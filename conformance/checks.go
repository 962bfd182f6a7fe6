package conformance

import (
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/promises"
)

const (
	// ownerInOneStep is what a user has to change where a release is not one step.
	ownerInOneStep = "compare the owner and delete in one step on the server, with a token that each grant has for itself"
)

// What is promised.
func reentrant(p promises.Promises) bool  { return p.Reentrant }
func extendable(p promises.Promises) bool { return p.Extend }
func readWrite(p promises.Promises) bool  { return p.Kind == history.KindRW }
func permitted(p promises.Promises) bool  { return p.Kind == history.KindSemaphore }

// Checks lists the checks of a driver, in order.
func Checks() []Check {
	return []Check{
		{Name: "a free lock is granted, and given back", play: grantsFree},
		{Name: "the driver exits at the end of its input", play: exitsAtEnd},
		{
			Name: "a grant asks the servers", Needs: func(p promises.Promises) bool { return !p.HandsOver && !p.Reentrant }, play: asksServers, links: true,
			change: "ask the servers for each grant; a process that hands a lock over within itself promises hands_over",
		},
		{
			Name: "a grant needs a majority of the servers", Needs: func(p promises.Promises) bool { return p.Quorum }, play: needsMajority, links: true,
			change: "grant only what more than half of the servers have confirmed",
		},
		{
			Name: "an owner is granted again what it holds, and gives it back as often", Needs: reentrant, play: countsReentry,
			change: "count the grants of an owner, and free the lock with the last release; or do not promise reentrant",
		},
		{
			Name: "readers hold the lock together, and exclude writers", Needs: readWrite, play: sharesReads,
			change: "grant a reader where no other client writes, and a writer where none reads or writes, in one step on the server",
		},
		{
			Name: "a reader's lease ends its own hold alone", Needs: readWrite, play: endsOneReader,
			change: "keep an end for each reader, such as a member of a sorted set, and look at it in each step",
		},
		{
			Name: "a writer goes on as a reader, and readers join it", Needs: func(p promises.Promises) bool { return readWrite(p) && p.Downgrades }, play: goesOnReading,
			change: "grant an owner that writes to read as well, and give back each by its own release; or do not promise downgrades",
		},
		{
			Name: "as many permits are granted as there are", Needs: permitted, play: grantsPermits,
			change: "count the permits that are held and grant one in one step on the server; a permit that is given back is one that is held",
		},
		{
			Name: "an owner is granted several permits", Needs: func(p promises.Promises) bool { return permitted(p) && p.Several }, play: grantsSeveral,
			change: "grant all permits of a request or none, in one step on the server; or do not promise several",
		},
		{
			Name: "a lock that is held is refused to another process", play: refusesOther,
			change: "write the key only where it is not there (SET NX), with one key for a name in all processes",
		},
		{
			Name: "of many clients that ask at once, one is granted the lock", play: grantsOne,
			change: "look and write in one step on the server (SET NX, or a script), and ask the master",
		},
		{
			Name: "a lease that runs out frees the lock, and not before", play: endsWithLease, links: true,
			change: "give the server the lease that was asked for, in milliseconds (PX, not EX of whole seconds)",
		},
		{Name: "a grant is believed for about as long as its lease", play: validForLease},
		{Name: "a grant over slow links is believed for no longer than the servers keep it", play: slowGrant, links: true},
		{Name: "a grant whose first reply is lost is believed for no longer than the servers keep it", play: retriedGrant, links: true},
		{
			Name: "a hold without a lease is kept", Needs: func(p promises.Promises) bool { return p.Watchdog }, play: keepsWatched, links: true,
			change: "extend the key until the release, at least three times a lease; or do not promise watchdog",
		},
		{
			Name: "an extended hold outlives its first lease", Needs: extendable, play: extends,
			change: "prolong the key on the server by the lease of the extension; or do not promise extend",
		},
		{Name: "an extended hold ends with the lease of its extension", Needs: extendable, play: extensionEnds, links: true},
		{Name: "a lock that was released is left alone", play: leavesAlone, links: true},
		{Name: "a second release leaves the next holder alone", play: releasesTwice, change: ownerInOneStep},
		{Name: "a late release leaves the next holder alone", play: releasesLate, change: ownerInOneStep},
		{Name: "a release whose requests are slow leaves the next holder alone", play: releasesSlowly, links: true, redis: true},
		{Name: "a grant that is cut off half way is over with its lease", play: halfGrant, links: true, redis: true},
		{
			Name: "waiters are granted the lock in the order of their requests", Needs: func(p promises.Promises) bool { return p.Fair }, play: servesInOrder, links: true,
			change: "grant in the order of the queue; or do not promise fair",
		},
		{
			Name: "a late extension is refused, and leaves the next holder alone", Needs: extendable, play: extendsLate,
			change: "compare the owner and prolong in one step on the server, and answer fail where the key is gone",
		},
		{Name: "an extension whose requests are slow is believed only while the lock is held", Needs: extendable, play: extendsSlowly, links: true, redis: true},
		{
			Name: "tokens grow from grant to grant", Needs: func(p promises.Promises) bool { return p.Token }, play: tokensGrow,
			change: "take the token from one counter on the servers, in the step that grants (INCR in the script); or do not promise token",
		},
		{Name: "nothing is granted while the links are cut", play: grantsNothingCutOff, links: true, change: "answer ok only once the servers have confirmed the grant"},
		{Name: "a request whose reply is lost is unknown", play: lostReply, links: true},
		{Name: "a request that is answered with refused leaves nothing behind", play: trueRefusal, links: true, redis: true},
		{Name: "a late reply is not taken for the answer to a later request", play: lateReply, links: true},
		{Name: "a release whose reply is lost is unknown", play: lostRelease, links: true},
		{Name: "a lock stays held where the servers forget scripts and close connections", play: surviveForgetting, links: true, redis: true},
		{Name: "an unknown operation is answered with unsupported", play: answersUnsupported},
	}
}
