package faults

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/internal/traffic"
	"github.com/lockchaos/lockchaos/topologies"
)

// anyZone is the links of the clients of a zone, or of all.
const anyZone = "zone-a>redis|zone-b>redis|zone>redis"

// messageSpecs are the faults of one command, reply or message, for which they lie in
// wait.
func messageSpecs() []Spec {
	nth := Param{Name: "nth", About: "of those, from 1", Least: 1, Most: most, Default: "1", Draw: "1-8"}
	command := Param{
		Name: "command", About: "the name of a command or script, or a script's SHA-1, and words of its arguments",
		Ask: "which command", Default: "",
	}
	lateBy := Param{Name: "for", Unit: "ms", Least: 1, Most: most, Ask: "for how many ms", Draw: "100-1500"}
	then := Param{Name: "then", Values: []string{"reset", "silent"}, Default: "reset", Draw: "reset|silent", About: "what becomes of the connection"}
	words := Param{Name: "command", About: "words of its channel or text"}
	fewer := nth
	fewer.Draw = "1-3"
	passing := func(e Environment) []Candidate { return e.ofRequests(0, 0, nil) }
	until := func(e Environment) []Candidate { return e.ofRequests(leastFor/2, mostFor, nil) }
	delaying := func(e Environment) []Candidate {
		if e.Lease == 0 {
			return passing(e)
		}
		lease := e.Lease.Milliseconds()
		return e.ofRequests(0, 0, map[string]string{"for": fmt.Sprintf("50-%d|%d-%d", max(lease/2, 50), max(lease/2, 50), max(lease*3/2, 50))})
	}
	// A release that reaches its server only once the lease is over may end the next hold. It takes
	// a third of a short run, in which nothing else happens to the lock.
	heldBack := func(e Environment) []Candidate {
		all := until(e)
		if e.Lock.Own {
			all = append(all, Candidate{
				Target: "zone-a>redis|zone-b>redis", Weight: 1, Seldom: true, Least: 4 * time.Second, Most: 5 * time.Second,
				Params: map[string]string{"command": "release", "nth": "1"},
			})
		}
		return all
	}
	specs := []Spec{
		{
			Name: "delay-command", Summary: "deliver one command late, and what follows it on its connection",
			Params: []Param{command, nth, lateBy}, Effects: []history.Effect{history.Delays}, Candidates: delaying,
			Observed: "the command was seen, kept, and delivered", Healed: bySelf,
			Pitfall: "what follows on the same connection is late as well, as in TCP",
			New:     onMessages(traffic.Command, late),
		},
		{
			Name: "delay-reply", Summary: "deliver the reply to one command late, and what follows it",
			Params: []Param{command, nth, lateBy}, Effects: []history.Effect{history.Delays}, Candidates: delaying,
			Observed: "the reply was seen, kept, and delivered", Healed: bySelf,
			Pitfall: "clients of ours wait a second for a reply",
			New:     onMessages(traffic.Reply, late),
		},
		{
			Name: "drop-command", Summary: "lose one command, and reset its connection, or leave it silent",
			Params: []Param{command, nth, then}, Effects: []history.Effect{history.Loses}, Candidates: passing,
			Observed: "the command was seen, and taken out", Healed: bySelf,
			Pitfall: "to the client it looks like `drop-reply`; that is the point",
			New:     onMessages(traffic.Command, lost),
		},
		{
			Name: "drop-message", Summary: "lose one message to a subscriber", Hits: HitsSubscribers,
			Params: []Param{words, fewer}, Effects: []history.Effect{history.Loses}, Candidates: drawn("zone>redis", 1, never),
			Observed: "the message was seen, and taken out", Healed: bySelf,
			Pitfall: "waiters that ask again now and then only become slow",
			New:     onMessages(traffic.Published, lost),
		},
		{
			Name: "drop-reply", Summary: "lose the reply to one command that was carried out, and reset its connection, or leave it silent",
			Params: []Param{command, nth, then}, Effects: []history.Effect{history.Loses}, Candidates: passing,
			Observed: "the reply was seen, and taken out", Healed: bySelf,
			Pitfall: "a Redis client that asks again by itself hides it: set `retries`",
			New:     onMessages(traffic.Reply, lost),
		},
		{
			Name: "hold-command", Summary: "keep one command from the server until the heal, and what follows it on its connection",
			Params: []Param{command, nth}, Effects: []history.Effect{history.Delays}, Candidates: heldBack,
			Observed: "the command was seen, and kept", Healed: "it is delivered, even if its client has gone",
			Pitfall: "the first use of a script is two commands: EVALSHA that the server does not know, then EVAL; use it once before",
			New:     onMessages(traffic.Command, held),
		},
		{
			Name: "hold-reply", Summary: "keep the reply to one command from the client until the heal, and what follows it",
			Params: []Param{command, nth}, Effects: []history.Effect{history.Delays}, Candidates: until,
			Observed: "the reply was seen, and kept", Healed: "it is delivered, unless the client hung up",
			Pitfall: "a reply that the server does not know the script does not count",
			New:     onMessages(traffic.Reply, held),
		},
	}
	for i := range specs {
		s := &specs[i]
		s.Family, s.Target, s.Needs, s.Life = Network, AtMessages, []topologies.Capability{topologies.Proxies, topologies.Messages}, history.Triggered
		if s.Hits == HitsAnything {
			s.Hits = HitsRequests
		}
	}
	return specs
}

// ofRequests are the candidates of a fault of one message: one for each request of a lock of the
// user's own, which is learnt, and else one for all commands of the lock.
func (e Environment) ofRequests(least, most time.Duration, params map[string]string) []Candidate {
	requests := e.Lock.Requests
	if !e.Lock.Own {
		requests = []string{e.Lock.Commands}
	}
	var all []Candidate
	for _, request := range requests {
		c := Candidate{Target: anyZone, Weight: 1, Brief: e.Lock.Own, Least: least, Most: most, Params: map[string]string{"command": request}}
		if e.Lock.Own {
			c.Params["nth"] = "1-3" // some are seldom sent
		}
		maps.Copy(c.Params, params)
		all = append(all, c)
	}
	return all
}

// onMessages makes a fault of one message of a kind, on the links that a step's target selects, and says what
// becomes of it.
func onMessages(kind traffic.Kind, fate func(t *trigger, s Step)) func(Site, Step) (inject, error) {
	return func(site Site, s Step) (inject, error) {
		links, err := selected(site, s)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) (Injection, error) {
			t := &trigger{
				name: s.Fault, links: links, kind: kind,
				words: strings.Fields(s.Params["command"]), nth: whole(s, "nth"), scripts: site.Scripts,
				fired: make(chan string, 1), passed: make(chan bool, 1),
			}
			t.freed, t.free = context.WithCancel(context.WithoutCancel(ctx))
			fate(t, s)
			return t.inject(ctx)
		}, nil
	}
}

// ScriptDigest is the name that Redis gives to a script.
func ScriptDigest(source string) string {
	sum := sha1.Sum([]byte(source)) //nolint:gosec // it is how Redis names scripts
	return hex.EncodeToString(sum[:])
}

// script is the name of the script that a command runs, empty if it has none, and its
// SHA-1.
func (t *trigger) script(words []string) (name, digest string) {
	if len(words) < 2 {
		return "", ""
	}
	switch strings.ToUpper(words[0]) {
	case "EVALSHA", "EVALSHA_RO":
		digest = strings.ToLower(words[1])
	case "EVAL", "EVAL_RO":
		digest = ScriptDigest(words[1])
	}
	return t.scripts[digest], digest
}

var ordinals = [...]string{"", "first", "second", "third"} //nolint:gochecknoglobals // a constant

// A trigger waits on some links for one message.
type trigger struct {
	name  string
	links []topologies.Proxy // each a [topologies.Interceptor]
	kind  traffic.Kind
	// words are what a command must have: first its name, or the name or SHA-1 of the script that it runs, in any case of
	// letters; the others are each a part of one of its arguments, or the script's name. Of a published message they are
	// parts of its channel or its text. It is the nth, from 1, of those that match. Scripts are the names of scripts, by
	// their SHA-1 as EVALSHA has it.
	words   []string
	nth     int
	scripts map[string]string
	// fate is what becomes of it until it is freed, and did says that.
	fate  func(freed context.Context) traffic.Action
	did   string
	keeps bool // it is passed on in the end
	// after is how long it takes from then until the fault is over; negative: it
	// lasts until the heal.
	after time.Duration

	stops  []func()
	fired  chan string     // told once, on which link
	passed chan bool       // told whether what was kept was passed on
	freed  context.Context //nolint:containedctx // it is how long the trigger is set
	free   context.CancelFunc

	mu   sync.Mutex
	seen int
	over bool // it fired
	lost bool // a heal was told that what was kept is lost
}

// wanted reports whether a message is one of those. A reply that says that the server does not know the script is none:
// nothing was carried out.
func (t *trigger) wanted(m traffic.Message) bool {
	if m.Kind != t.kind || len(m.Words) == 0 || strings.HasPrefix(m.Error, "NOSCRIPT") {
		return false
	}
	script, digest := t.script(m.Words)
	for i, want := range t.words {
		names := i == 0 && t.kind != traffic.Published
		switch {
		case script != "" && strings.EqualFold(want, script):
		case names && digest != "" && strings.EqualFold(want, digest):
		case names && strings.EqualFold(want, m.Words[0]):
		case !names && slices.ContainsFunc(m.Words[1:], func(word string) bool { return strings.Contains(word, want) }):
		default:
			return false
		}
	}
	return true
}

// what says what the message is: "reply to the second SET orders".
func (t *trigger) what() string {
	nth := fmt.Sprintf("%dth", t.nth)
	if t.nth < len(ordinals) {
		nth = ordinals[t.nth]
	}
	switch t.kind {
	case traffic.Reply:
		nth = "reply to the " + nth
	case traffic.Published:
		nth += " message"
	default:
	}
	return strings.Join(append([]string{nth}, t.words...), " ")
}

// inject arms the trigger, and fails if no link answers before: nothing could pass
// there.
func (t *trigger) inject(ctx context.Context) (Injection, error) {
	working, _ := probed(ctx, t.links)
	if len(working) == 0 {
		return Injection{}, fmt.Errorf("%s can't be set: no link answered before it", t.name)
	}
	for _, l := range t.links {
		stop, err := l.(topologies.Interceptor).Judge(func(m traffic.Message) traffic.Action { return t.judge(l.Name(), m) })
		if err != nil {
			t.disarm()
			return Injection{}, fmt.Errorf("%s: %w", t.name, err)
		}
		t.stops = append(t.stops, stop)
	}
	return Injection{
		Effect:      "waits for the " + t.what() + " on " + say.Count(len(t.links), "link"),
		AwaitFiring: t.awaitFiring,
		Heal: Once(func(ctx context.Context) (string, error) {
			t.disarm()
			kept, err := t.delivered(ctx)
			if err != nil {
				return "", fmt.Errorf("heal %s: %w", t.name, err)
			}
			again, err := answerAgain(ctx, t.name, working)
			return kept + say.Count(len(working), "link") + " let everything pass, " + again, err
		}),
	}, nil
}

// judge lets everything pass but the one message.
func (t *trigger) judge(link string, m traffic.Message) traffic.Action {
	if !t.wanted(m) {
		return traffic.Action{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.seen++; t.seen != t.nth || t.freed.Err() != nil {
		return traffic.Action{}
	}
	t.fired <- link
	t.over = true
	fate := t.fate(t.freed)
	if t.keeps {
		fate.Passed = t.passed
	}
	return fate
}

// disarm lets go what is kept, and everything after it.
func (t *trigger) disarm() {
	t.mu.Lock()
	t.free()
	t.mu.Unlock()
	for _, stop := range t.stops {
		stop()
	}
}

// awaitFiring waits for the message. Of a fault that is over by itself it waits for
// that, too.
func (t *trigger) awaitFiring(ctx context.Context) (string, error) {
	link := ""
	select {
	case link = <-t.fired:
	case <-ctx.Done():
		return "", fmt.Errorf("%s never fired: %w", t.name, ctx.Err())
	case <-t.freed.Done():
		t.mu.Lock() // no judge is at it any more
		defer t.mu.Unlock()
		if !t.over {
			return "", fmt.Errorf("%s never fired: the %s never came (%d of that kind passed)", t.name, t.what(), t.seen)
		}
		link = <-t.fired
	}
	if t.after > 0 {
		over, cancel := context.WithTimeout(t.freed, t.after)
		defer cancel()
		select {
		case <-over.Done():
		case <-ctx.Done():
		}
	}
	return fmt.Sprintf("the %s on %s was %s", t.what(), link, t.did), nil
}

// delivered waits until what was kept was passed on, if it can be.
func (t *trigger) delivered(ctx context.Context) (string, error) {
	t.mu.Lock()
	waits := t.keeps && t.over
	t.mu.Unlock()
	if !waits {
		return "", nil
	}
	select {
	case passed := <-t.passed:
		t.passed <- passed // a heal may be tried again
		again := t.lost
		switch t.lost = !passed; {
		case passed:
			return "the " + t.what() + " was delivered, ", nil
		case t.kind == traffic.Command && t.after < 0 && !again: // a second heal can do no more
			return "", fmt.Errorf("the %s is lost with its connection", t.what())
		}
		return "the " + t.what() + " is lost with its connection, ", nil
	case <-ctx.Done():
		return "", fmt.Errorf("the %s was not delivered: %w", t.what(), ctx.Err())
	}
}

// held keeps the message, and what follows it on its connection, until the heal. A command is delivered then even
// if the client has given up and closed the connection: a request that is late.
func held(t *trigger, _ Step) {
	t.did, t.keeps, t.after = "held back", true, -1
	t.fate = func(freed context.Context) traffic.Action { return traffic.Action{Until: freed.Done()} }
}

// late holds the message, and what follows it, back for so long.
func late(t *trigger, s Step) {
	t.after, t.keeps = millis(s, "for"), true
	t.did = fmt.Sprintf("held back for %v", t.after)
	t.fate = func(freed context.Context) traffic.Action {
		until, cancel := context.WithTimeout(freed, t.after)
		context.AfterFunc(until, cancel)
		return traffic.Action{Until: until.Done()}
	}
}

// lost takes the message out of its stream. One to a subscriber is lost as if it had been published while
// the subscriber had no connection.
func lost(t *trigger, s Step) {
	end := traffic.GoesOn
	switch s.Params["then"] {
	case "reset":
		end, t.did = traffic.Resets, "lost, and the connection reset"
	case "silent":
		end, t.did = traffic.GoesSilent, "lost, and the connection silent from then on"
	default:
		t.did = "lost"
	}
	t.fate = func(context.Context) traffic.Action { return traffic.Action{Lost: true, Ends: end} }
}
