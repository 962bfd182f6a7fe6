package reports

import (
	"fmt"
	"strings"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
)

// aboutLock is what a reader has to know of the lock to weigh the verdict: what it
// does not promise, and what came of the control.
func (m *model) aboutLock() []string {
	var all []string
	if words := m.unpromisedWords(); words != "" {
		all = append(all, words)
	}
	if m.Run.Spared != "" {
		all = append(all, "The lock did not show the bug that the scenario is about, and the script ended there: "+stop(m.Run.Spared))
	}
	if words := m.controlWords(); words != "" {
		all = append(all, words)
	}
	return all
}

// unpromisedWords lists what is not judged.
func (m *model) unpromisedWords() string {
	var list []string
	for _, name := range m.Run.Unpromised {
		switch name {
		case history.UnpromisedToken:
			list = append(list, "fencing tokens (their order is not judged)")
		case history.UnpromisedPlace:
			list = append(list, "places in a queue (the order of waiters is not judged)")
		case history.UnpromisedRelease:
			list = append(list, "a refusal of a release of what is not held (an ok after the lease counts as unknown)")
		case history.UnpromisedLost:
			list = append(list, "a notice of a loss (a hold counts until its lease ends)")
		case history.UnpromisedExtend:
			list = append(list, "extension (no client extends)")
		default: // another version knows it
		}
	}
	if len(list) == 0 {
		return ""
	}
	return "The lock does not promise " + strings.Join(list, ", ") + "."
}

// controlWords say whether the control withstood what the lock did not.
func (m *model) controlWords() string {
	c := m.Run.Control
	if c == nil {
		return ""
	}
	same := fmt.Sprintf("Control: with the same seed and faults, the lock %s ", c.Lock)
	switch found := m.Report.Verdict; {
	case c.Verdict == string(checker.Unknown) || found == checker.Unknown || found == "":
		return same + "was " + c.Verdict + ", which decides nothing."
	case c.Verdict == string(found) && found == checker.Invalid:
		return same + "was invalid too: a limit of these servers under these faults explains it, though not that your lock has no defect of its own."
	case found == checker.Invalid:
		return same + "was valid: these servers do not explain it, so look for the cause in your lock."
	default:
		return same + "was " + c.Verdict + "."
	}
}
