package main

import (
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/internal/locks"
)

// On a terminal a table keeps to its width, and loses nothing of it.
func TestTablesFitTheTerminal(t *testing.T) {
	a := &app{stdout: io.Discard, stderr: io.Discard, locks: locks.All()}
	for name, list := range map[string]func() (listing, error){
		"topologies": listTopologies, "locks": a.listLocks, "workloads": a.listWorkloads, "faults": listFaults, "mixes": listMixes, "scenarios": a.listScenarios,
	} {
		l, err := list()
		require.NoError(t, err)
		letters := func(text string) map[rune]int {
			n := map[rune]int{}
			for _, r := range strings.Join(strings.Fields(text), "") {
				n[r]++
			}
			return n
		}
		whole := l.text(0)
		require.Equal(t, len(l.rows)+1, strings.Count(whole, "\n"), "without a terminal each row is a line")
		cells := ""
		for _, row := range l.rows {
			cells += strings.Join(row, " ")
		}
		for _, width := range []int{100, 80, 60, 40} {
			text := l.text(width)
			got := letters(text)
			for letter, n := range letters(cells) {
				require.GreaterOrEqual(t, got[letter], n, "%c of %s at %d columns", letter, name, width)
			}
			for line := range strings.Lines(text) {
				require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), width, "%s at %d columns: %s", name, width, line)
			}
		}
	}
}
