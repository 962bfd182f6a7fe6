package reports

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
)

// A picture is porcupine's own page of the window in which a lock fails.
type picture struct {
	Lock, File string
	page       []byte
}

// drawPictures draws the first violation of each lock, where it can be drawn.
func (m *model) drawPictures() ([]picture, error) {
	if m.pictures != nil {
		return m.pictures, nil
	}
	pictures := []picture{}
	drawn := map[string]bool{}
	for _, r := range m.Report.Results {
		for _, v := range r.Violations {
			if v.Lock == "" || drawn[v.Lock] {
				continue
			}
			var b bytes.Buffer
			switch err := checker.Picture(&b, m.historyOf(v.Lock), v); {
			case errors.Is(err, checker.ErrNoPicture):
				continue
			case err != nil:
				return nil, fmt.Errorf("draw violation: %w", err)
			}
			page, err := allowScript([]byte(say.Plain(b.String())))
			if err != nil {
				return nil, fmt.Errorf("draw violation: %w", err)
			}
			drawn[v.Lock] = true
			pictures = append(pictures, picture{Lock: v.Lock, File: "porcupine-" + fileName(v.Lock) + ".html", page: page})
		}
	}
	m.pictures = pictures
	return pictures, nil
}

// historyOf is the part of the history that concerns a lock, up to the same end.
func (m *model) historyOf(lock string) *history.History {
	events := m.History.Events
	concerns := func(i int) bool {
		return events[i].Lock == lock || events[i].Lock == "" || i == len(events)-1
	}
	n := 0
	for i := range events {
		if concerns(i) {
			n++
		}
	}
	part := &history.History{Events: make([]history.Event, 0, n), Truncated: m.History.Truncated}
	for i := range events {
		if concerns(i) {
			part.Events = append(part.Events, events[i])
		}
	}
	return part
}

// fileName makes a lock's name part of a file's: what is not a letter, a digit,
// a dot or a dash becomes =XX, so that a link to it needs no escapes.
func fileName(lock string) string {
	var b strings.Builder
	for _, c := range []byte(lock) {
		if c == '-' || c == '.' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "=%02X", c)
		}
	}
	if b.Len() <= maxFileName {
		return b.String()
	}
	// Two long names with the same beginning are two files.
	sum := sha256.Sum256([]byte(lock))
	const digits = 16
	return b.String()[:maxFileName-digits-1] + "-" + fmt.Sprintf("%x", sum[:digits/2])
}

// maxFileName leaves room for the rest of a file's name, which has 255 bytes.
const maxFileName = 200
