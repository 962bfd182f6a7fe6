package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockchaos/lockchaos/reports"
)

const (
	// refreshSeconds is how often a browser loads what can still change.
	refreshSeconds = 3
	// maxLiveHistory is the longest history, in bytes, of which a page is drawn
	// while the run is under way.
	maxLiveHistory = 64 << 20
	// serveTimeout bounds reading a request, and the wait for the last answers
	// at the end.
	serveTimeout = 5 * time.Second
)

func (a *app) serveCommand() *cobra.Command {
	var port uint16
	cmd := &cobra.Command{
		Use:   "serve [DIR]",
		Short: "Browse stored runs, and watch the one that is under way",
		Long: `Show the runs in a folder (default ` + runsDir + `) to a browser on this machine:
the index, which keeps itself up to date, every report, and of a run that is
under way what is recorded so far. It listens on 127.0.0.1 alone, until Ctrl-C.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := runsDir
			if len(args) > 0 {
				dir = args[0]
			}
			return a.serve(cmd.Context(), dir, port)
		},
	}
	cmd.Flags().Uint16Var(&port, "port", 8080, "the port on 127.0.0.1; 0 takes a free one")
	return cmd
}

// serve answers until ctx ends.
func (a *app) serve(ctx context.Context, dir string, port uint16) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	defer root.Close()
	if exists(filepath.Join(dir, reports.RunFile)) {
		return fmt.Errorf("%s is a run directory: serve the folder that it is in", dir)
	}
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
	if err != nil {
		return fmt.Errorf("serve: %w (--port chooses another)", err)
	}
	server := &http.Server{
		Handler:           newRunServer(dir, root.FS()),
		ReadHeaderTimeout: serveTimeout, ReadTimeout: serveTimeout, WriteTimeout: time.Minute, IdleTimeout: time.Minute,
		MaxHeaderBytes: 16 << 10,
	}
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), serveTimeout)
		defer cancel()
		stopped <- errors.Join(server.Shutdown(last), server.Close())
	})
	defer stop()
	a.printf("http://%s/\n", l.Addr())
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return harnessError{fmt.Errorf("serve: %w", err)}
	}
	return asHarness(<-stopped)
}

// A runServer answers with the index, with the files of runs, and with what a
// run that is under way has recorded so far.
type runServer struct {
	dir   string
	files http.Handler

	drawing sync.Mutex // one page at a time is drawn
}

func newRunServer(dir string, files fs.FS) *runServer {
	return &runServer{dir: dir, files: http.FileServerFS(files)}
}

// ServeHTTP implements [http.Handler].
func (s *runServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// A page of somebody else must not read the runs by a name that leads here.
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
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	name, file := path.Split(strings.TrimPrefix(path.Clean(r.URL.Path), "/"))
	switch {
	case name == "" && (file == "" || file == reports.IndexFile):
		s.page(w, s.index)
	case file == reports.HTMLFile && s.underWay(path.Clean(name)):
		s.page(w, func(b io.Writer) error {
			in, _ := reports.ReadDir(s.runDir(path.Clean(name))) // the page says what is missing
			return reports.WriteHTML(b, in)
		})
	default:
		s.files.ServeHTTP(w, r)
	}
}

// index writes the index; it leads also to the run that is under way.
func (s *runServer) index(w io.Writer) error {
	runs, err := reports.ReadRuns(s.dir)
	if err != nil {
		return err
	}
	for i := range runs {
		runs[i].Page = runs[i].Page || s.underWay(runs[i].Name)
	}
	return reports.WriteIndex(w, runs)
}

// runDir is the run directory of a name from outside; empty if it is none.
func (s *runServer) runDir(name string) string {
	if name == "." || name == ".." || strings.ContainsAny(name, `/\`) {
		return ""
	}
	return filepath.Join(s.dir, name)
}

// underWay reports whether a run has a record but no report yet, and the record
// is short enough to be drawn at every look.
func (s *runServer) underWay(name string) bool {
	dir := s.runDir(name)
	if dir == "" || exists(filepath.Join(dir, reports.HTMLFile)) {
		return false
	}
	info, err := os.Lstat(filepath.Join(dir, reports.HistoryFile))
	return err == nil && info.Mode().IsRegular() && info.Size() <= maxLiveHistory
}

// page answers with a page that is drawn anew, and that browsers load again.
func (s *runServer) page(w http.ResponseWriter, write func(io.Writer) error) {
	s.drawing.Lock()
	defer s.drawing.Unlock()
	var b bytes.Buffer
	if err := write(&b); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Refresh", strconv.Itoa(refreshSeconds))
	_, _ = w.Write(b.Bytes()) // who asked may have gone
}
