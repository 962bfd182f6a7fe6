package faultstest

import (
	"context"
	"testing"
	"time"

	"github.com/lockchaos/lockchaos/faults"
)

// limit bounds one injection or heal, on a machine that may be busy.
const limit = time.Minute

// Run injects a fault, heals it, and checks that
//
//   - the fault says what it did, and what was seen of its end;
//   - what worked before works again: whole returns nil;
//   - a heal works although the run's context has ended;
//   - a second heal does nothing;
//   - it can be done all over again.
//
// While the fault lasts, or once it happened, broken must return nil: it is the test's own
// look at the effect. For an armed fault, broken makes its trigger happen, and looks at what became of that; Run checks that
// the fault reports that it fired, and, where the trigger does not happen, that it did
// not.
func Run(t *testing.T, f faults.Fault, broken, whole func(ctx context.Context) error) {
	t.Helper()
	armed := false
	for round := range 2 {
		run, end := context.WithTimeout(t.Context(), limit)
		if err := whole(run); err != nil {
			t.Fatalf("round %d: not whole before the fault: %v", round, err)
		}
		injection, err := f.Inject(run)
		if err != nil {
			t.Fatalf("round %d: inject %s: %v", round, f.Fault, err)
		}
		if injection.Effect == "" {
			t.Errorf("round %d: %s does not say what it did", round, f.Fault)
		}
		if err := broken(run); err != nil {
			t.Errorf("round %d: %s shows no effect: %v", round, f.Fault, err)
		}
		armed = armed || injection.AwaitFiring != nil
		if injection.AwaitFiring != nil {
			if effect, err := injection.AwaitFiring(run); err != nil || effect == "" {
				t.Errorf("round %d: %s reports that it fired: %q, %v", round, f.Fault, effect, err)
			}
		}
		end() // as Ctrl-C does
		healing, cancel := context.WithTimeout(context.WithoutCancel(run), limit)
		for again := range 2 {
			if injection.Heal == nil {
				break
			}
			effect, err := injection.Heal(healing)
			if err != nil {
				t.Fatalf("round %d: heal %s, time %d: %v", round, f.Fault, again+1, err)
			}
			if first := again == 0; first == (effect == "") {
				t.Errorf("round %d: heal %s, time %d, says %q", round, f.Fault, again+1, effect)
			}
		}
		if err := whole(healing); err != nil {
			t.Errorf("round %d: not whole after %s: %v", round, f.Fault, err)
		}
		cancel()
	}
	if armed {
		neverFires(t, f, whole)
	}
}

// neverFires heals an armed fault before it fired.
func neverFires(t *testing.T, f faults.Fault, whole func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	injection, err := f.Inject(ctx)
	if err == nil && injection.Heal != nil {
		_, err = injection.Heal(ctx)
	}
	if err != nil {
		t.Fatalf("inject %s, and heal it at once: %v", f.Fault, err)
	}
	if effect, err := injection.AwaitFiring(ctx); err == nil || effect != "" {
		t.Errorf("%s was healed before it fired, and says that it did: %q", f.Fault, effect)
	}
	if err := whole(ctx); err != nil {
		t.Errorf("not whole after %s never fired: %v", f.Fault, err)
	}
}
