package reports

import (
	"bufio"
	"cmp"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
)

// A logLine is what a server wrote into its log, at a time of the run by the server's
// own clock.
type logLine struct {
	Server string
	At     time.Duration
	Text   string
}

// How much of the logs a page shows: the lines nearest to the moment, and how much of a
// log is read for them.
const (
	aroundMoment   = 2 * time.Second
	maxLogLines    = 40
	maxServerLines = 12
	maxLogWidth    = 240
	maxLogBytes    = 16 << 20
	maxLogs        = 64
)

// logStamp is how Redis and Sentinel begin a line: process and role, date, level, text.
var logStamp = regexp.MustCompile(`^\d+:[A-Z] (\d{1,2} [A-Z][a-z]{2} \d{4} \d{2}:\d{2}:\d{2}\.\d{3}) [.*#-] (.*)`)

// readLogs finds the logs of the servers in a run directory, and what they have around a
// moment of the run. It reads nothing outside of the directory. What can't be read, or
// has no times, adds nothing.
func readLogs(dir string, run history.Run, moment *time.Duration) (names []string, lines []logLine) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, nil
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), history.LogsDir)
	if err != nil {
		return nil, nil
	}
	for _, e := range entries {
		name, isLog := strings.CutSuffix(e.Name(), ".log")
		if !isLog || !e.Type().IsRegular() || len(names) == maxLogs {
			continue
		}
		names = append(names, name)
		f, err := root.Open(path.Join(history.LogsDir, e.Name()))
		if err != nil {
			continue
		}
		if moment != nil {
			lines = append(lines, nearest(linesAround(f, name, run, *moment), *moment, maxServerLines)...)
		}
		_ = f.Close()
	}
	if moment != nil {
		lines = nearest(lines, *moment, maxLogLines)
	}
	slices.SortStableFunc(lines, func(a, b logLine) int { return cmp.Compare(a.At, b.At) })
	return names, lines
}

// nearest are so many lines around a moment.
func nearest(lines []logLine, moment time.Duration, most int) []logLine {
	slices.SortStableFunc(lines, func(a, b logLine) int { return cmp.Compare((a.At - moment).Abs(), (b.At - moment).Abs()) })
	return lines[:min(len(lines), most)]
}

// linesAround are the lines of a log near a moment. A log does not say its time zone: a
// server in a container writes UTC, a local one what the run began in.
func linesAround(r io.Reader, server string, run history.Run, moment time.Duration) []logLine {
	type stamped struct{ at, text string }
	var all []stamped
	scan := bufio.NewScanner(io.LimitReader(r, maxLogBytes))
	for scan.Scan() {
		if m := logStamp.FindStringSubmatch(scan.Text()); m != nil {
			all = append(all, stamped{m[1], m[2]})
		}
	}
	for _, zone := range []*time.Location{run.Started.Location(), time.UTC} {
		var lines []logLine
		within := false
		for _, s := range all {
			t, err := time.ParseInLocation("2 Jan 2006 15:04:05.000", s.at, zone)
			if err != nil {
				continue
			}
			at := t.Sub(run.Started)
			within = within || at > -time.Minute && at < run.Duration+time.Minute
			if at >= 0 && (at-moment).Abs() <= aroundMoment {
				lines = append(lines, logLine{server, at, say.Shorten(say.OneLine(s.text), maxLogWidth)})
			}
		}
		if within {
			return lines
		}
	}
	return nil
}
