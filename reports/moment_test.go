package reports_test

import (
	"fmt"
	"io"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/lockchaos/lockchaos/reports"
)

// The moment at which a story has its violation is that of the table, the evidence, the
// mark on the plots and of the causes.
func TestViolationsHaveOneTime(t *testing.T) {
	t.Parallel()
	row := regexp.MustCompile(`<tr class="told"><td class="num"><a [^>]*>([0-9.]+ s)</a>`)
	head := regexp.MustCompile(`at ([0-9.]+ s), as told above: the evidence`)
	for name, fixture := range fixtures() {
		if name == "foreign-extension" { // its story marks the second grant, which an extension of the first hold made wrong later
			continue
		}
		in := fixture()
		causes := reports.Summarize(in).Causes
		page := string(written(t, func(w io.Writer) error { return reports.WriteHTML(w, in) }))
		at := []string{}
		for _, c := range causes {
			for _, m := range c.Story.Events {
				if m.Kind == reports.EventViolation {
					at = append(at, fmt.Sprintf("%.3f s", m.At.Truncate(time.Millisecond).Seconds()))
				}
			}
		}
		for _, found := range [][][]string{row.FindAllStringSubmatch(page, -1), head.FindAllStringSubmatch(page, -1)} {
			said := []string{}
			for _, f := range found {
				said = append(said, f[1])
			}
			assert.ElementsMatch(t, at, said, name)
		}
	}
}
