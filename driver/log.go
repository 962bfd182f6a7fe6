package driver

import (
	"bytes"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"
)

// limitedLog keeps the beginning of a log, and remembers its last words.
type limitedLog struct {
	mu   sync.Mutex
	to   io.Writer
	left int
	line []byte // that has no end yet
	said lastWords
}

// Write never fails: a log that can't be written must not stop a driver.
func (l *limitedLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range bytes.Lines(b) {
		l.line = append(l.line, line...)
		l.line = l.line[:min(len(l.line), 4*quoteLimit)]
		if line[len(line)-1] == '\n' {
			l.said.add(string(l.line))
			l.line = l.line[:0]
		}
	}
	if n := min(len(b), l.left); n > 0 && l.to != nil {
		l.left -= n
		_, _ = l.to.Write(b[:n])
	}
	return len(b), nil
}

// lastWords quotes the lines that say why the driver ended, for an error.
func (l *limitedLog) lastWords() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	said := l.said
	said.add(string(l.line))
	if reason := said.String(); reason != "" {
		return "; it logged " + reason
	}
	return ""
}

// lastWords are those lines of a log that name a reason: the last uncaught exception, panic or fatal error, with
// what that was caused by. A log has frames of a stack around them, and often ends with what says nothing ("Node.js v20").
// Where no line names a reason, it is the last line with words.
type lastWords struct {
	reason   []string
	last     string // with words
	previous string
	next     bool // the next line that is not indented is part of the reason
}

const (
	pythonTrace = "Traceback (most recent call last):"
	causedBy    = "Caused by: " // of the JVM
)

// reasonLine is how a reason begins where no frame of a stack follows it. Exceptions of Python and of languages
// whose frames begin with "at" are found by their frames, however they are named.
var reasonLine = regexp.MustCompile(`^(panic|fatal error|PHP Fatal error|Fatal error): |^thread '.*' .*panicked at |^terminate called |` +
	`^[\w.:]*(Error|Exception)(: |$)| \([\w:]*(Error|Exception)\)$|^[^ ]+: (line )?\d+: .*not found$|^(Segmentation fault|Aborted|Out of memory)`)

// reasonWords are what a [reasonLine] has one of. To look for them first makes a flood of 2.4 million lines cost 0.3 s and not 3.8.
var reasonWords = []string{"rror", "panic", "xception", "not found", "terminate", "fault", "Aborted", "memory"} //nolint:gochecknoglobals // a constant

func namesReason(line string) bool {
	return slices.ContainsFunc(reasonWords, func(word string) bool { return strings.Contains(line, word) }) && reasonLine.MatchString(line)
}

func (w *lastWords) add(line string) {
	line = strings.TrimRight(line, " \r\n")
	text := strings.TrimSpace(line)
	indented := len(text) < len(line) && line[0] != text[0]
	switch {
	case text == "":
		return
	case w.next && !indented, strings.HasPrefix(line, causedBy) && len(w.reason) < 4, strings.HasPrefix(text, "what(): "):
		w.reason, w.next = append(w.reason, text), false
	case line == pythonTrace:
		w.reason, w.next = nil, true
	case namesReason(line):
		w.reason, w.next = []string{text}, strings.Contains(line, "panicked at ") && strings.HasSuffix(line, ":")
	case strings.HasPrefix(text, "at ") && indented && w.previous != "" && !strings.HasPrefix(w.previous, causedBy):
		w.reason = []string{w.previous}
	}
	w.previous = ""
	if !indented {
		w.previous = text
	}
	if strings.ContainsFunc(text, unicode.IsLetter) { // a frame's marker says nothing
		w.last = text
	}
}

// String quotes them; it is empty where nothing was logged.
func (w *lastWords) String() string {
	reason := w.reason
	if len(reason) == 0 && w.last != "" {
		reason = []string{w.last}
	}
	quoted := make([]string, len(reason))
	for i, line := range reason {
		quoted[i] = quote([]byte(line))
	}
	return strings.Join(quoted, ", ")
}
