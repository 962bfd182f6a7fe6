package story

import (
	"cmp"
	"slices"
	"strings"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/reports/internal/facts"
)

// A kindRow is what reports say of a kind of violation. The words in braces are filled in by
// [telling.fill].
type kindRow struct {
	Kind     string
	Headline string
	// OneOwner is the headline where the record names one owner for all holds: empty for Headline.
	OneOwner string
	// NoHold is the headline where the client had no hold at all: empty for Headline.
	NoHold string
	// Left is the headline where the lock was left to a request that was refused: empty for Headline.
	Left    string
	Mark    string // on the flag of the timeline; empty for the name of the kind
	Outcome string // a sentence that is true of each such violation; empty: that of the checker
	Plain   bool   // the events say it all
	// Look is where the code of a lock can be wrong, and SharedLook the same of a lock that several
	// may hold.
	Look, SharedLook string
	WatchedLook      string // the same of a hold that a watchdog is to extend until its release; empty for Look
	// ReentryLook and MajorityLook come before it, where clients were granted the lock again, and on independent servers.
	ReentryLook, MajorityLook string
	Followed                  bool // what other clients were answered next is told: it shows whether the lock stayed taken
	Looks                     bool // what was seen of the lock's key is told first
}

// watchedLook is where a lock can be wrong whose watchdog did not keep a hold.
const watchedLook = "whether the watchdog extends in time and looks at each answer, whether an error or the release of an inner hold stops it, and whether it tells the holder once the lease is over"

// Where a lock can be wrong that counts nested grants, and one that counts servers.
const (
	reentryLook  = "whether nested grants are counted, so that the release of an inner one, or its end, leaves the outer one"
	majorityLook = "whether a grant and an extension take a majority of the servers while the lease lasts, and whether what fewer gave is taken back on all"
)

// kindRows are those of all kinds that the checkers know.
func kindRows() []kindRow {
	return []kindRow{
		{
			Kind: checker.DoubleGrant, Plain: true,
			Mark:        "both hold{for}",
			Headline:    "Two clients held {lock} at the same time{for}",
			OneOwner:    "Two holds of {lock} overlapped{for}, both under the owner {first}{processes}",
			Look:        "whether to find the lock free and to acquire it is one step on the server, whether the key lives as long as the lease, whether a release and an extension compare the owner in the step that changes the key, whether a grant counts from before its request, and whether no connection takes an error or a late reply for one",
			WatchedLook: watchedLook, ReentryLook: reentryLook, MajorityLook: majorityLook,
			SharedLook: "whether a writer looks for readers, and a reader for the writer, in the step on the server that acquires the lock, and whether a release removes its own grant only",
		},
		{
			Kind:       checker.OverCapacity,
			Mark:       "more permits out than there are",
			Headline:   "More permits of {name} were out than {capacity}{for}",
			SharedLook: "whether one step on the server counts the permits that are out and adds the new one, and whether a release removes permits of its own grant only",
		},
		{
			Kind:     checker.Reentrancy,
			Mark:     "granted again to its holder",
			Headline: "Client {actor} was granted {lock} again while it held it, as it must not be",
			OneOwner: "{lock} was granted twice under the owner {actor}{processes}",
			Look:     "how it finds out that a client holds the lock already: such a request waits or is refused where the lock is not re-entrant, and has the token of the first grant where it is",
		},
		{
			Kind: checker.ForeignRelease, Followed: true,
			Mark:     "confirmed for a client that does not hold",
			Headline: "The {op} of {lock} by client {actor} was confirmed, though it did not hold it",
			Look:     "whether a release and an extension compare the owner in the step that changes the key, and what they take for a confirmation",
		},
		{
			Kind: checker.PrematureLoss, Followed: true, Plain: true,
			Mark:        "lost before its time",
			Headline:    "Client {actor} was told that it does not hold {lock}{early}",
			WatchedLook: watchedLook, ReentryLook: reentryLook, MajorityLook: majorityLook,
			Look: "what made that answer: a key that was gone before its lease was over, or an answer that is wrong while the key is there",
		},
		{
			Kind:     checker.FenceRegress,
			Mark:     "its token is not greater",
			Headline: "A later grant of {name} has the smaller token: {token2} after {token1}",
			Outcome:  "A resource that refuses old tokens would refuse the rightful holder, or let the wrong one in.",
		},
		{
			Kind:     checker.FenceDuplicate,
			Mark:     "its token is not greater",
			Headline: "Two grants of {name} have the same token, {token2}",
			Outcome:  "A resource that refuses old tokens would refuse the rightful holder, or let the wrong one in.",
		},
		{
			Kind:     checker.StaleAccess,
			Mark:     "an old token was accepted",
			Headline: "The resource {resource} accepted an access whose token was out of date",
		},
		{
			Kind:     checker.UseAfterLease,
			Mark:     "used after its lease",
			Headline: "Client {actor} used {resource} {late} after its time on {name} was over",
			NoHold:   "Client {actor} used {resource} without holding {name}",
		},
		{
			Kind:     checker.LostUpdate,
			Mark:     "an update is lost",
			Headline: "An update of {resource} was lost",
		},
		{
			Kind: checker.Stuck, Looks: true,
			Mark:     "no client could acquire it",
			Headline: "No client could acquire {lock} for {length}, although it was free",
			Left:     "Client {actor} was refused {lock}, which was left to that request: no client holds it, and none can acquire it",
			Look:     "what the last holder, or a request that gave up, left on the servers, and what ends it",
		},
		{
			Kind:     checker.Overtaken,
			Mark:     "overtaken in the queue",
			Headline: "Client {first} was granted {lock} before client {second}, which was before it in the queue",
			Look:     "whether a request can be granted before those that wait, whether a release grants the lock to the first of the queue, and what counts the places",
		},
		{
			Kind:     checker.NotLinearizable,
			Headline: "No order of the operations on {what} explains their answers",
		},
	}
}

// rowOf is the row of a kind; one that is not known has its name for a headline.
func rowOf(kind string) kindRow {
	rows := kindRows()
	if i := slices.IndexFunc(rows, func(r kindRow) bool { return r.Kind == kind }); i >= 0 {
		return rows[i]
	}
	return kindRow{Kind: kind, Headline: KindWords(kind) + " on {what}"}
}

// KindWords is a kind of violation as the start of a headline.
func KindWords(kind string) string {
	words := strings.ReplaceAll(cmp.Or(kind, "violation"), "-", " ")
	return strings.ToUpper(words[:1]) + words[1:]
}

// Mark are the words on the flag of a violation in the timeline.
func Mark(r *facts.Facts, v *checker.Violation) string {
	words := cmp.Or(rowOf(v.Kind).Mark, strings.ReplaceAll(v.Kind, "-", " "))
	return strings.ReplaceAll(words, "{for}", forHowLong(r, v.From, r.Together(v, r.HoldsOf(v))))
}
