package network

import (
	"context"
	"crypto/sha1" //nolint:gosec // it is how Redis names scripts
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/internal/traffic"
)

// A Reader is a link on which every message can be judged.
type Reader interface {
	Link
	// Judge asks what is to become of each message that passes, until it is
	// stopped.
	Judge(judge func(traffic.Message) traffic.Fate) (stop func(), err error)
}

// A Pattern says which commands a fault is aimed at.
type Pattern struct {
	// Words are what a command must have: first its name, or that of the script
	// that it runs, in any case of letters; the others are each a part of one of
	// its arguments, or the script's name. Of a published message they are parts
	// of its channel or its text.
	Words []string
	// Nth is which of those that match; below 2 the first.
	Nth int
	// Scripts are the names of scripts, by their SHA-1 as EVALSHA has it.
	Scripts map[string]string
}

// Digest is the name that Redis gives to a script.
func Digest(source string) string {
	sum := sha1.Sum([]byte(source)) //nolint:gosec // it is how Redis names scripts
	return hex.EncodeToString(sum[:])
}

// matches reports whether a command is one of those.
func (p Pattern) matches(words []string) bool {
	if len(words) == 0 || len(p.Words) == 0 {
		return false
	}
	script := p.script(words)
	for i, want := range p.Words {
		switch {
		case script != "" && strings.EqualFold(want, script):
		case i == 0 && strings.EqualFold(want, words[0]):
		case i > 0 && slices.ContainsFunc(words[1:], func(word string) bool { return strings.Contains(word, want) }):
		default:
			return false
		}
	}
	return true
}

// script is the name of the script that a command runs; empty if it has none.
func (p Pattern) script(words []string) string {
	if len(words) < 2 {
		return ""
	}
	switch strings.ToUpper(words[0]) {
	case "EVALSHA", "EVALSHA_RO":
		return p.Scripts[strings.ToLower(words[1])]
	case "EVAL", "EVAL_RO":
		return p.Scripts[Digest(words[1])]
	default:
		return ""
	}
}

// announces reports whether a published message is one of those.
func (p Pattern) announces(words []string) bool {
	if len(words) == 0 {
		return false
	}
	for _, want := range p.Words {
		if !slices.ContainsFunc(words[1:], func(word string) bool { return strings.Contains(word, want) }) {
			return false
		}
	}
	return true
}

// String is the pattern in words: "second SET orders".
func (p Pattern) String() string {
	what := strings.Join(p.Words, " ")
	switch {
	case p.Nth < 2:
		return strings.TrimSpace("first " + what)
	case p.Nth == 2:
		return strings.TrimSpace("second " + what)
	case p.Nth == 3:
		return strings.TrimSpace("third " + what)
	default:
		return strings.TrimSpace(fmt.Sprintf("%dth %s", p.Nth, what))
	}
}

// A trap lies in wait on some links for one message.
type trap struct {
	name  string
	links []Reader
	// wanted finds the message, of which what says what it is.
	wanted func(traffic.Message) bool
	what   string
	nth    int
	// fate is what becomes of it, and did says that; freed is closed by the heal.
	fate  func(freed <-chan struct{}) traffic.Fate
	keeps bool // it is passed on in the end
	must  bool // that it is lost instead is an error
	did   string
	// after is how long it takes from then until the fault is over; negative: it
	// lasts until the heal.
	after time.Duration
}

// Name returns the fault's name.
func (t *trap) Name() string { return t.name }

// Inject sets the trap, and fails if no link answers before: nothing could pass
// there.
func (t *trap) Inject(ctx context.Context) (faults.Injection, error) {
	links := make([]Link, 0, len(t.links))
	for _, l := range t.links {
		links = append(links, l)
	}
	working := answering(ctx, links)
	if len(working) == 0 {
		return faults.Injection{}, fmt.Errorf("%s can't be set: no link answered before it", t.name)
	}
	s := &snare{trap: t, struck: make(chan string, 1), passed: make(chan bool, 1), freed: make(chan struct{}), healed: make(chan struct{})}
	for _, l := range t.links {
		stop, err := l.Judge(func(m traffic.Message) traffic.Fate { return s.judge(l.Name(), m) })
		if err != nil {
			s.free()
			return faults.Injection{}, fmt.Errorf("%s: %w", t.name, err)
		}
		s.stops = append(s.stops, stop)
	}
	return faults.Injection{
		Effect:  "waits for the " + t.what + " on " + count(len(t.links), "link"),
		Strikes: s.strikes,
		Spent:   t.after >= 0,
		Heal:    faults.Once(func(ctx context.Context) (string, error) { return s.heal(ctx, working) }),
	}, nil
}

// A snare is a trap that was set.
type snare struct {
	*trap

	stops  []func()
	struck chan string // told once, on which link
	passed chan bool   // told whether what was kept was passed on
	freed  chan struct{}
	healed chan struct{}
	once   sync.Once // closes healed

	mu   sync.Mutex
	seen int
	over bool // it struck
	lost bool // it was told that what was kept is lost
}

// judge lets everything pass but the one message.
func (s *snare) judge(link string, m traffic.Message) traffic.Fate {
	if !s.wanted(m) {
		return traffic.Fate{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen++
	if s.seen != max(s.nth, 1) {
		return traffic.Fate{}
	}
	select {
	case <-s.healed: // it comes too late
		return traffic.Fate{}
	default:
	}
	s.struck <- link
	s.over = true
	fate := s.fate(s.freed)
	if s.keeps {
		fate.Passed = s.passed
	}
	return fate
}

// strikes waits for the message. Of a fault that is over by itself it waits for
// that, too.
func (s *snare) strikes(ctx context.Context) (string, error) {
	select {
	case link := <-s.struck:
		return s.sprung(ctx, link)
	case <-ctx.Done():
		return "", fmt.Errorf("%s never struck: %w", s.name, ctx.Err())
	case <-s.healed:
	}
	s.mu.Lock() // no judge is at it any more
	defer s.mu.Unlock()
	select {
	case link := <-s.struck:
		return s.sprung(ctx, link)
	default:
		return "", fmt.Errorf("%s never struck: it waited for the %s in vain (%d of that kind passed)", s.name, s.what, s.seen)
	}
}

func (s *snare) sprung(ctx context.Context, link string) (string, error) {
	effect := fmt.Sprintf("the %s on %s was %s", s.what, link, s.did)
	if s.after > 0 {
		timer := time.NewTimer(s.after)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return effect, nil
		case <-s.healed:
		}
	}
	return effect, nil
}

// free takes the trap away, and lets go what is in it.
func (s *snare) free() {
	s.once.Do(func() {
		s.mu.Lock()
		close(s.healed)
		s.mu.Unlock()
		for _, stop := range s.stops {
			stop()
		}
		close(s.freed)
	})
}

func (s *snare) heal(ctx context.Context, links []Link) (string, error) {
	s.free()
	kept, err := s.delivered(ctx)
	if err != nil {
		return "", err
	}
	again, err := (&fault{name: s.name}).mended(ctx, links)
	return kept + count(len(links), "link") + " let everything pass, " + again, err
}

// delivered waits until what was kept was passed on, if it can be.
func (s *snare) delivered(ctx context.Context) (string, error) {
	s.mu.Lock()
	waits := s.keeps && s.over
	s.mu.Unlock()
	if !waits {
		return "", nil
	}
	select {
	case passed := <-s.passed:
		s.passed <- passed // a heal may be tried again
		if passed {
			return "the " + s.what + " was delivered, ", nil
		}
		s.mu.Lock()
		first := !s.lost
		s.lost = true
		s.mu.Unlock()
		if s.must && first { // a second heal can do no more
			return "", fmt.Errorf("heal %s: the %s is lost with its connection", s.name, s.what)
		}
		return "the " + s.what + " is lost with its connection, ", nil
	case <-ctx.Done():
		return "", fmt.Errorf("heal %s: the %s was not delivered: %w", s.name, s.what, ctx.Err())
	}
}

// commands is a trap for the nth command that matches.
func commands(name string, links []Reader, p Pattern) *trap {
	return &trap{
		name: name, links: links, nth: p.Nth, what: p.String(), after: -1,
		wanted: func(m traffic.Message) bool { return m.Kind == traffic.Command && p.matches(m.Words) },
	}
}

// replies is a trap for the reply to the nth command that matches and that the
// server carried out: one that says that it does not know the script is none.
func replies(name string, links []Reader, p Pattern) *trap {
	return &trap{
		name: name, links: links, nth: p.Nth, what: "reply to the " + p.String(), after: -1,
		wanted: func(m traffic.Message) bool {
			return m.Kind == traffic.Reply && p.matches(m.Words) && !strings.HasPrefix(m.Error, "NOSCRIPT")
		},
	}
}

// keep holds the message, and what follows it, back.
func (t *trap) keep() *trap {
	t.did, t.keeps = "held back", true
	t.fate = func(freed <-chan struct{}) traffic.Fate { return traffic.Fate{Until: freed} }
	return t
}

// late holds the message, and what follows it, back for so long.
func (t *trap) late(d time.Duration) *trap {
	t.did, t.after, t.keeps = fmt.Sprintf("held back for %v", d), d, true
	t.fate = func(freed <-chan struct{}) traffic.Fate {
		until := make(chan struct{})
		timer := time.NewTimer(d)
		go func() {
			defer close(until)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-freed:
			}
		}()
		return traffic.Fate{Until: until}
	}
	return t
}

// lose takes the message out of its stream.
func (t *trap) lose(end traffic.End) *trap {
	t.after = 0
	switch end {
	case traffic.Resets:
		t.did = "lost, and the connection reset"
	case traffic.GoesDumb:
		t.did = "lost, and the connection silent from then on"
	default:
		t.did = "lost"
	}
	t.fate = func(<-chan struct{}) traffic.Fate { return traffic.Fate{Lost: true, Ends: end} }
	return t
}

// HoldCommand keeps a command, and all that follows it on its connection, from
// the server until the heal. It is delivered then even if the client has given
// up and closed the connection: a request that is late.
func HoldCommand(links []Reader, p Pattern) faults.Fault {
	t := commands("hold-command", links, p).keep()
	t.must = true
	return t
}

// HoldReply keeps the reply to a command, and all that follows it on its
// connection, from the client until the heal.
func HoldReply(links []Reader, p Pattern) faults.Fault {
	return replies("hold-reply", links, p).keep()
}

// DelayCommand is [HoldCommand] for so long.
func DelayCommand(links []Reader, p Pattern, d time.Duration) faults.Fault {
	return commands("delay-command", links, p).late(d)
}

// DelayReply is [HoldReply] for so long.
func DelayReply(links []Reader, p Pattern, d time.Duration) faults.Fault {
	return replies("delay-reply", links, p).late(d)
}

// DropCommand loses a command: the server never sees it. Then the connection is
// reset, or, if it is to be silent, nothing more passes to the server.
func DropCommand(links []Reader, p Pattern, silent bool) faults.Fault {
	return commands("drop-command", links, p).lose(end(silent))
}

// DropReply loses the reply to a command that the server carried out. Then the
// connection is reset, or, if it is to be silent, nothing more passes to the
// client.
func DropReply(links []Reader, p Pattern, silent bool) faults.Fault {
	return replies("drop-reply", links, p).lose(end(silent))
}

func end(silent bool) traffic.End {
	if silent {
		return traffic.GoesDumb
	}
	return traffic.Resets
}

// DropMessage loses one message to a subscriber, as if it had been published
// while the subscriber had no connection.
func DropMessage(links []Reader, p Pattern) faults.Fault {
	t := &trap{
		name: "drop-message", links: links, nth: p.Nth, after: -1,
		what:   "message on the channel",
		wanted: func(m traffic.Message) bool { return m.Kind == traffic.Published && p.announces(m.Words) },
	}
	t.what = strings.TrimSuffix(strings.Fields(p.String())[0]+" message "+strings.Join(p.Words, " "), " ")
	return t.lose(traffic.GoesOn)
}

// ErrUnread says that a link does not read what passes it.
var ErrUnread = errors.New("what passes these links is not read")

// Readers are links as traps need them.
func Readers(links []Link) ([]Reader, error) {
	readers := make([]Reader, 0, len(links))
	for _, l := range links {
		r, ok := l.(Reader)
		if !ok {
			return nil, fmt.Errorf("%s: %w", l.Name(), ErrUnread)
		}
		readers = append(readers, r)
	}
	return readers, nil
}
