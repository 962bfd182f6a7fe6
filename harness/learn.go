package harness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/lock"
)

// ParamCommand is the parameter that names a command of a lock.
const ParamCommand = "command"

// mostNames is how many names of a lock are tried.
const mostNames = 1000

// NameOnServerOf is a name that begins with the name of a lock, and whose key is on
// the server that has the slot of that name.
func (st *Session) NameOnServerOf(ctx context.Context, name string) (string, error) {
	want, err := servedBy(ctx, st.deployment, name)
	if err != nil {
		return "", err
	}
	for n := range mostNames {
		other := name
		if n > 0 {
			other = fmt.Sprintf("%s-%d", name, n+1)
		}
		server, err := servedBy(ctx, st.deployment, st.footprint.KeysOf(other)[0])
		if err != nil {
			return "", err
		}
		if server == want {
			return other, nil
		}
	}
	return "", fmt.Errorf("%w: no name was found of which the lock keeps its key on %s: all its keys may be in one slot", ErrUnlearnt, want)
}

// Learn learns what the lock keeps on the servers and sends to them, from the traffic
// of a client that it opens in a zone.
func (st *Session) Learn(ctx context.Context, zone string) error {
	l, err := st.locker(zone)
	if err != nil {
		return err
	}
	return st.learn(ctx, zone, l)
}

// learn learns what the lock keeps on the servers and sends to them, from the
// traffic of a zone.
func (st *Session) learn(ctx context.Context, zone string, l lock.Locker) error {
	f, err := Learn(ctx, st.deployment, zone, l, st.lock.Extend)
	if err != nil {
		return err
	}
	if st.lock.Watchdog && st.run.Scenario == "" {
		if err := f.learnRenewal(ctx, st.deployment, zone, l); err != nil {
			st.notice(err.Error() + ": no fault is aimed at a renewal")
		}
	}
	st.footprint = &f
	for _, name := range st.locks {
		st.keys[name] = f.KeysOf(name)[0]
	}
	st.Log.InfoContext(ctx, "learnt what the lock uses", "keys", f.Keys, "commands", f.Commands)
	return nil
}

// HeldOn reports whether a server says that the owner holds the lock, as far as it
// can be asked.
func (st *Session) HeldOn(ctx context.Context, server *redis.Client, name, owner string) (bool, error) {
	switch {
	case st.lock.HeldOn != nil:
		return st.lock.HeldOn(ctx, server, name, owner)
	case st.lock.HolderOn != nil:
		holder, err := st.lock.HolderOn(ctx, server, name)
		return err == nil && holder == owner, err
	case st.footprint != nil:
		return st.footprint.HeldOn(ctx, server, name, owner)
	default:
		return false, errors.New("the keys of the lock are not known")
	}
}

// usual are the commands that most locks send for a word.
var usual = map[string]string{acquireWord: "SET", acquireLastWord: "SET", releaseWord: "EVALSHA"} //nolint:gochecknoglobals // a constant

// aimAtLock has a fault of commands wait for one that the lock sends, as far as
// that was learnt.
func (st *Session) aimAtLock(s faults.Step) (faults.Step, error) {
	picks := s.Params[ParamCommand]
	if _, other := toResource(s.Target); other || picks == "" || !st.lock.Foreign {
		return s, nil
	}
	var aimed string
	seen := true
	if f := st.footprint; f == nil {
		first, rest, _ := strings.Cut(picks, " ")
		aimed = strings.TrimSpace(cmp.Or(usual[first], first) + " " + rest)
	} else {
		for _, instead := range [][2]string{{renewWord, extendWord}, {extendWord, releaseWord}} {
			// In a random run, what was not seen is drawn all the same: another request of a holder stands in.
			if _, seen := f.Commands[picks]; st.run.Scenario == "" && picks == instead[0] && !seen {
				picks = instead[1]
			}
		}
		aimed, seen = f.Aim(picks)
	}
	if !seen {
		return s, fmt.Errorf("%w: the fault waits for %q, and lock %s sends no such command", ErrUnlearnt, picks, st.lock.Name)
	}
	s.Params = maps.Clone(s.Params)
	s.Params[ParamCommand] = aimed
	return s, nil
}
