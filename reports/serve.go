package reports

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/lockchaos/lockchaos/checker"
)

const (
	// refreshSeconds is how often a browser loads what can still change.
	refreshSeconds = 3
	// maxLiveHistory is the longest history, in bytes, of which a page is drawn
	// while the run is under way.
	maxLiveHistory = 64 << 20
	// maxJudgedEvents is the longest record that is judged at every look.
	maxJudgedEvents = 200_000
	// isolation is the policy of every page. A run directory may come from another
	// author, with pages and scripts in it: each page is alone in an origin of its own,
	// and loads, sends, frames and opens nothing. Which scripts run, the pages of this version say
	// themselves, by their hashes; those of other versions have others.
	isolation = "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

// NewHandler serves a folder of runs to browsers on this machine: the index, the
// files of runs, and of a run that is under way what is recorded so far. It opens
// regular files and folders alone, and none that a link leads to out of the folder.
func NewHandler(root *os.Root) http.Handler {
	return &handler{root: root, files: http.FileServerFS(served{root})}
}

type handler struct {
	root  *os.Root
	files http.Handler

	drawing sync.Mutex // one page at a time is drawn
}

// ServeHTTP implements [http.Handler].
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", isolation)
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-cache")
	// A page of another author must not read the runs by a name that leads here.
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host
	}
	switch {
	case host != "127.0.0.1" && host != "localhost":
		http.Error(w, "this server answers to 127.0.0.1 and localhost alone", http.StatusForbidden)
		return
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
		return
	}
	dir, file := path.Split(strings.TrimPrefix(path.Clean(r.URL.Path), "/"))
	dir = path.Clean(dir)
	switch {
	case dir == "." && (file == "" || file == IndexFile):
		h.page(w, h.index)
	case file == HTMLFile && h.underWay(dir):
		in := h.soFar(r.Context(), dir)
		h.page(w, func(b io.Writer) error { return WriteHTML(b, in) })
	default:
		if path.Ext(file) == path.Ext(MarkdownFile) { // browsers store what they don't show, and isolated pages may not
			header.Set("Content-Type", "text/plain; charset=utf-8")
		}
		h.files.ServeHTTP(w, r)
	}
}

// index writes the index; it leads also to the run that is under way.
func (h *handler) index(w io.Writer) error {
	runs, err := readRuns(h.root)
	if err != nil {
		return err
	}
	for i := range runs {
		runs[i].Live = h.underWay(runs[i].Name)
		runs[i].Page = runs[i].Page || runs[i].Live
	}
	return WriteIndex(w, runs, nil)
}

// underWay reports whether a run has a record but no report yet, and the record
// is short enough to be drawn at every look.
func (h *handler) underWay(run string) bool {
	if run == "." || strings.Contains(run, "/") {
		return false
	}
	if _, err := h.root.Lstat(path.Join(run, HTMLFile)); err == nil {
		return false
	}
	info, err := h.root.Lstat(path.Join(run, HistoryFile))
	return err == nil && info.Mode().IsRegular() && info.Size() <= maxLiveHistory
}

// soFar is a run that is under way, with the violations that there are in its record so far: that there are none is no
// verdict. The page says what is missing.
func (h *handler) soFar(ctx context.Context, dir string) Input {
	in, _ := readDir(inside(h.root), dir)
	if in.Pending && len(in.History.Events) <= maxJudgedEvents {
		in.Report = checker.CheckRun(ctx, in.Run, in.History, checker.RunOptions{
			Properties: []string{"mutual-exclusion", "capacity", "ownership", "use-within-lease", "protected-resource", "fencing-order"},
		})
		in.Report.Results = slices.DeleteFunc(in.Report.Results, func(r checker.Result) bool { return r.Verdict != checker.Invalid })
	}
	return in
}

// page answers with a page that is drawn anew, and that browsers load again.
func (h *handler) page(w http.ResponseWriter, write func(io.Writer) error) {
	h.drawing.Lock()
	defer h.drawing.Unlock()
	var b bytes.Buffer
	if err := write(&b); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Refresh", strconv.Itoa(refreshSeconds))
	_, _ = w.Write(b.Bytes()) // who asked may have gone
}

// served are the files of a folder that browsers may read.
type served struct{ root *os.Root }

// Open implements [fs.FS]. What it refuses is not permitted, whatever the reason.
func (s served) Open(name string) (fs.File, error) {
	f, err := openIn(s.root, name, func(m fs.FileMode) bool { return m.IsRegular() || m.IsDir() })
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	case err != nil:
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	return f, nil
}
