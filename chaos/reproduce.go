package chaos

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/reports"
	"github.com/lockchaos/lockchaos/scenarios"
)

// The verdicts that [Reproduce] can expect.
const (
	Valid   = checker.Valid
	Invalid = checker.Invalid
)

// Reproduce has a lock play a known failure as one subtest, which fails unless the
// verdict is the expected one: [Valid] of a lock that prevents the failure, [Invalid]
// of one that does not. A scenario that does not come about is played once more.
//
// The scenario is one of the catalogue ("failover-double-grant"), a variant of it
// ("late-release-double-grant/owner-checked"), or a YAML file. What its steps require
// of the servers is asked of the keys that the lock was seen to use.
func Reproduce(t *testing.T, l Lock, scenario string, expect checker.Verdict) {
	t.Helper()
	begin(t)
	g := &guard{}
	s, err := reproducible(l, g, scenario, expect)
	if err != nil {
		t.Fatalf("chaos.Reproduce: %v", err)
	}
	t.Run(strings.ReplaceAll(s.Name, "/", ","), func(t *testing.T) {
		report(t, playTwice(t, "", g, scripted(s), func(reports.Input) playable { return scripted(s) }, 0))
	})
}

// reproducible is the scenario under the lock, whose calls are guarded.
func reproducible(l Lock, g *guard, scenario string, expect checker.Verdict) (scenarios.Scenario, error) {
	if expect != Valid && expect != Invalid {
		return scenarios.Scenario{}, names.Unknown("verdict", string(expect), []string{string(Valid), string(Invalid)})
	}
	s, err := underLock(scenario, g.of(l), expect)
	if err == nil && len(s.Apart()) > 0 && !slices.Contains(served, l.Name) {
		err = fmt.Errorf("scenario %s pauses or kills a client, which must be a process of its own: add func TestMain(m *testing.M) { chaos.Main(m, LOCK) } with lock %s", s.Name, l.Name)
	}
	return s, errors.Join(l.Validate(), err)
}
