//go:build linux

package simredis_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/simulation/simredis"
)

// step is a command of one of the sessions of a case, after the clocks have gone
// on.
type step struct {
	session int
	later   time.Duration
	args    []string
}

func (s step) String() string {
	args := make([]string, len(s.args))
	for i, a := range s.args {
		args[i] = fmt.Sprintf("%q", a)
		for name, source := range lock.Scripts() {
			if a == source {
				args[i] = "<" + name + ">"
			}
		}
	}
	later := ""
	if s.later > 0 {
		later = fmt.Sprintf("after %v ", s.later)
	}
	return fmt.Sprintf("%s%d: %s", later, s.session, strings.Join(args, " "))
}

// pair is a real and a simulated server that are given the same.
type pair struct {
	tb      testing.TB
	real    *realServer
	control *realConn
	conns   []*realConn
	cluster *simredis.Cluster
	replica *realServer // of the real one, if there is one
	batches []simredis.Batch
	steps   int
}

// set sets the clocks.
func (p *pair) set(micros int64) {
	p.real.set(micros)
	if p.replica != nil {
		p.replica.set(micros)
	}
}

func newPair(tb testing.TB, args ...string) *pair {
	tb.Helper()
	p := &pair{tb: tb, real: startReal(tb, args...)}
	p.control = p.real.dial(tb)
	return p
}

// difference is the first reply that differs.
type difference struct {
	at         int
	step       step
	real, mine string
}

func (d *difference) String() string {
	return fmt.Sprintf("step %d, %v\n   real %q\n   mine %q", d.at, d.step, d.real, d.mine)
}

// engine is the simulated server of a case.
type engine struct {
	*simredis.Server

	sessions []*simredis.Session
	out      []bytes.Buffer
	batches  []simredis.Batch
}

// alone is what surrounds a master without replicas, of which no command that blocks ends by itself.
func alone(clock func() int64) simredis.Host {
	return simredis.Host{
		Now: clock, After: func(time.Duration, func()) func() { return func() {} }, Propagate: func(simredis.Batch) {},
		Acked: func(int64) int64 { return 0 }, Role: func() simredis.Role { return simredis.Role{} },
	}
}

func newEngine(clock func() int64, cluster *simredis.Cluster, sessions int) *engine {
	e := &engine{sessions: make([]*simredis.Session, sessions), out: make([]bytes.Buffer, sessions)}
	host := alone(clock)
	host.Cluster, host.Propagate = cluster, func(b simredis.Batch) { e.batches = append(e.batches, b) }
	e.Server = simredis.New(host)
	for i := range e.sessions {
		e.sessions[i] = e.Open(func(b []byte) { e.out[i].Write(b) })
	}
	return e
}

// play gives both servers the steps, beginning with nothing, and returns the
// first difference.
func (p *pair) play(tb testing.TB, steps []step) *difference {
	tb.Helper()
	require.Equal(tb, "+OK\r\n", p.control.do(tb, "FLUSHALL"))
	require.Equal(tb, "$-1\r\n", p.control.do(tb, "EVAL", "math.randomseed(1)", "0"))
	require.Equal(tb, "+OK\r\n", p.control.do(tb, "SCRIPT", "FLUSH"))
	p.set(start)
	for _, c := range p.conns {
		require.Equal(tb, "+RESET\r\n", c.do(tb, "RESET"))
	}
	sessions := 0
	for _, s := range steps {
		sessions = max(sessions, s.session+1)
	}
	for len(p.conns) < sessions {
		p.conns = append(p.conns, p.real.dial(p.tb))
	}
	e := newEngine(func() int64 { return p.real.micros }, p.cluster, sessions)
	defer e.Close()
	e.Do("EVAL", "math.randomseed(1)", "0")
	e.ForgetScripts()
	for at, s := range steps {
		p.steps++
		if s.later > 0 {
			p.set(p.real.micros + s.later.Microseconds())
		}
		_, err := p.conns[s.session].Write(simredis.AppendCommand(nil, s.args...))
		require.NoError(tb, err)
		before := e.blocked()
		e.sessions[s.session].Take([][]string{s.args})
		if n := e.blocked(); n > before {
			p.awaitBlocked(tb, n)
		}
		if d := p.compare(e, at, s); d != nil {
			p.reconnect(tb)
			return d
		}
	}
	p.batches = e.batches
	if slices.ContainsFunc(e.sessions, (*simredis.Session).Blocked) {
		p.reconnect(tb)
	}
	return nil
}

// blocked is how many sessions wait.
func (e *engine) blocked() int {
	n := 0
	for _, c := range e.sessions {
		if c.Blocked() {
			n++
		}
	}
	return n
}

// awaitBlocked waits until as many clients of the real server are blocked, since
// no reply says that it has got there. If they never are, the replies will tell.
func (p *pair) awaitBlocked(tb testing.TB, n int) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 5*time.Second)
	defer cancel()
	line := fmt.Sprintf("\nblocked_clients:%d\r\n", n)
	_ = await.Until(ctx, func() error {
		if strings.Contains(p.control.do(tb, "INFO", "clients"), line) {
			return nil
		}
		return errors.New("not yet")
	})
}

// reconnect forgets replies that are left over.
func (p *pair) reconnect(tb testing.TB) {
	tb.Helper()
	for i, c := range p.conns {
		_ = c.Close()
		p.conns[i] = p.real.dial(p.tb)
	}
	p.awaitBlocked(tb, 0)
}

// compare compares what the sessions were sent after a step.
func (p *pair) compare(e *engine, at int, s step) *difference {
	for i := range e.sessions {
		mine := e.out[i].String()
		e.out[i].Reset()
		answers := i == s.session && !e.sessions[i].Blocked()
		for first := answers; first || mine != ""; first = false {
			limit := 10 * time.Second
			if mine == "" || i != s.session {
				limit = 300 * time.Millisecond
			}
			theirs, err := p.conns[i].read(limit)
			if err != nil {
				theirs += "<" + err.Error() + ">"
			}
			one := firstReply(mine)
			// What another session gets may answer what it sent while it was blocked.
			late := i != s.session && sorted(withoutWords(theirs)) == sorted(withoutWords(one))
			if !late && !alike(s.args, theirs, one) {
				return &difference{at, s, theirs, mine}
			}
			mine = mine[len(one):]
		}
	}
	return nil
}

// firstReply is the first of several replies.
func firstReply(all string) string {
	if all == "" {
		return ""
	}
	end := strings.Index(all, "\r\n") + 2
	n := 0
	if _, err := fmt.Sscanf(all[1:end], "%d\r\n", &n); err != nil {
		return all[:end]
	}
	switch all[0] {
	case '$', '=':
		if n < 0 {
			return all[:end]
		}
		return all[:end+n+2]
	case '%':
		n *= 2
		fallthrough
	case '*', '~', '>':
		for range n {
			end += len(firstReply(all[end:]))
		}
	}
	return all[:end]
}

// unordered are commands whose replies have no order: members of sets and names, also of
// those in transactions and scripts.
func unordered(args []string) bool {
	return slices.Contains([]string{"smembers", "keys", "exec"}, strings.ToLower(args[0])) ||
		len(args) > 1 && strings.Contains(args[1], "SMEMBERS") ||
		slices.Contains(args, simredis.Sha("return redis.call('SMEMBERS', KEYS[1])"))
}

// The interpreters have other words for the same errors in scripts. That there
// is one, and in which line, is the same.
var (
	compiling = regexp.MustCompile(`-ERR Error compiling script \(new function\): [^\r]*`)
	inScript  = regexp.MustCompile(`-ERR (user_script:\d+: )(attempt to|bad argument|table index is|invalid option|cannot|__len|'for'|for statement)[^\r]*( script: [0-9a-fA-F]{40}, on @user_script:\d+\.\r\n)`)
)

func withoutWords(reply string) string {
	reply = compiling.ReplaceAllString(reply, "-ERR compiling")
	return inScript.ReplaceAllString(reply, "-ERR $1$3")
}

// id is in the reply to HELLO.
var id = regexp.MustCompile(`(\$2\r\nid\r\n:)[0-9]+`)

// alike reports whether replies to a command are the same.
func alike(args []string, theirs, mine string) bool {
	if theirs == mine {
		return true
	}
	if strings.EqualFold(args[0], "hello") {
		return id.ReplaceAllString(theirs, "$1") == id.ReplaceAllString(mine, "$1")
	}
	theirs, mine = withoutWords(theirs), withoutWords(mine)
	return theirs == mine || unordered(args) && sorted(theirs) == sorted(mine)
}

func sorted(reply string) string {
	words := strings.Split(reply, "\r\n")
	slices.Sort(words)
	return strings.Join(words, "\r\n")
}

// fail reports a difference with the steps that lead to it.
func (p *pair) fail(t *testing.T, seed uint64, steps []step, d *difference) {
	t.Helper()
	var b strings.Builder
	for _, s := range steps[:d.at+1] {
		fmt.Fprintf(&b, "   %v\n", s)
	}
	t.Errorf("seed %d: %v\nsteps:\n%s", seed, d, b.String())
}
