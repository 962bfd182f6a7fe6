package reports

import (
	"fmt"
	"io"
	"strings"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/internal/say"
)

// WriteAnnotation writes what GitHub Actions shows as an annotation of a job: an error for a
// run that is invalid, and a warning for one that is unknown. Of a valid run, and of a
// scenario that gave the verdict that it must, there is none.
func WriteAnnotation(w io.Writer, r Results, dir string) error {
	if r.Verdict == checker.Valid && r.Expect != string(checker.Invalid) || r.AbortReason == "" && r.Expect == string(r.Verdict) {
		return nil
	}
	level := "error"
	if r.Verdict == checker.Unknown {
		level = "warning"
	}
	message := r.Story.Headline
	if r.Expect != "" {
		message = fmt.Sprintf("expected %s, got %s: %s", r.Expect, r.Verdict, message)
	}
	for _, m := range r.Story.Events {
		if m.Kind == EventViolation {
			message += "\n" + say.Instant(m.At) + " " + m.Text
		}
	}
	for _, c := range []struct{ name, value string }{{"again: ", r.Command}, {"report: ", dir}} {
		if c.value != "" {
			message += "\n" + c.name + say.OneLine(c.value)
		}
	}
	// What ends a command or a property of it is escaped.
	data := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	property := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
	title := "lockchaos: " + strings.Join(append([]string{string(r.Verdict)}, junitNames(&r)...), " ")
	if _, err := fmt.Fprintf(w, "::%s title=%s::%s\n", level, property.Replace(title), data.Replace(say.Plain(message))); err != nil {
		return fmt.Errorf("write annotation: %w", err)
	}
	return nil
}
