package reports_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/reports"
)

// serving serves a folder until the test ends.
func serving(tb testing.TB, dir string) *httptest.Server {
	tb.Helper()
	root, err := os.OpenRoot(dir)
	require.NoError(tb, err)
	server := httptest.NewServer(reports.NewHandler(root))
	tb.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		require.NoError(tb, root.Close())
	})
	return server
}

// ask asks a server for a path as it stands, and follows no redirect.
func ask(tb testing.TB, server *httptest.Server, method, path string) (*http.Response, string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, server.URL+path, http.NoBody)
	require.NoError(tb, err)
	resp, err := http.DefaultTransport.RoundTrip(req)
	require.NoError(tb, err, path)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(tb, err, path)
	return resp, string(body)
}

// A link that leads out of the folder shows nothing of what is there, whatever
// part of a run it stands for.
func TestHandlerRefusesLinksOut(t *testing.T) {
	t.Parallel()
	dir, outside := t.TempDir(), t.TempDir()
	in := failover()
	in.Run.Scenario = "kept-outside"
	writeRun(t, outside, in)
	link := func(from, to string) { require.NoError(t, os.Symlink(from, filepath.Join(dir, to))) }
	link(outside, "linked")
	writeRun(t, filepath.Join(dir, "parts"), failover())
	require.NoError(t, os.Remove(filepath.Join(dir, "parts", reports.RunFile)))
	link(filepath.Join(outside, reports.RunFile), "parts/"+reports.RunFile)
	writeRun(t, filepath.Join(dir, "own"), failover())
	link("own", "latest")
	server := serving(t, dir)

	for _, path := range []string{"/linked/", "/linked/report.html", "/linked/run.json", "/linked/history.jsonl", "/parts/run.json"} {
		resp, body := ask(t, server, http.MethodGet, path)
		require.Equal(t, http.StatusForbidden, resp.StatusCode, path)
		require.NotContains(t, body, "kept-outside")
	}
	for _, path := range []string{"/", "/parts/report.html"} {
		resp, body := ask(t, server, http.MethodGet, path)
		require.Equal(t, http.StatusOK, resp.StatusCode, path)
		require.NotContains(t, body, "kept-outside")
	}
	for _, path := range []string{"/latest/", "/latest/report.html", "/latest/run.json"} {
		resp, _ := ask(t, server, http.MethodGet, path)
		require.Equal(t, http.StatusOK, resp.StatusCode, "%s leads to another run of the folder", path)
	}
}

// A pipe or a socket in a run directory keeps no browser waiting.
func TestHandlerOpensRegularFilesAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	special := func(path string, kind uint32) {
		require.NoError(t, syscall.Mknod(filepath.Join(dir, path), kind|0o600, 0))
	}
	for _, name := range []string{reports.RunFile, reports.HistoryFile, reports.ResultsFile, reports.HTMLFile, "index.html", "socket"} {
		run := filepath.Join(dir, "with-"+name)
		writeRun(t, run, failover())
		require.NoError(t, os.RemoveAll(filepath.Join(run, name)))
		kind := uint32(syscall.S_IFIFO)
		if name == "socket" {
			kind = syscall.S_IFSOCK
		}
		special("with-"+name+"/"+name, kind)
	}
	special(reports.IndexFile, syscall.S_IFIFO)
	special("pipe", syscall.S_IFIFO)
	server := serving(t, dir)

	for path, want := range map[string]int{
		"/":                                 http.StatusOK,
		"/pipe":                             http.StatusForbidden,
		"/with-run.json/run.json":           http.StatusForbidden,
		"/with-run.json/report.html":        http.StatusOK,
		"/with-history.jsonl/history.jsonl": http.StatusForbidden,
		"/with-history.jsonl/report.html":   http.StatusNotFound,
		"/with-results.json/results.json":   http.StatusForbidden,
		"/with-results.json/report.html":    http.StatusOK,
		"/with-report.html/report.html":     http.StatusForbidden,
		"/with-index.html/":                 http.StatusOK, // the list of its files
		"/with-socket/socket":               http.StatusForbidden,
	} {
		resp, _ := ask(t, server, http.MethodGet, path)
		require.Equal(t, want, resp.StatusCode, path)
	}
}

// Every answer keeps the pages of runs apart from one another, also an error.
func TestHandlerIsolatesPages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeRun(t, filepath.Join(dir, "one"), failover())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "one", reports.MarkdownFile), []byte("# one"), 0o600))
	server := serving(t, dir)

	for path, want := range map[string]int{
		"/": http.StatusOK, "/one": http.StatusMovedPermanently, "/one/": http.StatusOK, "/one/run.json": http.StatusOK,
		"/one/report.html": http.StatusOK, "/nowhere": http.StatusNotFound,
	} {
		resp, _ := ask(t, server, http.MethodGet, path)
		require.Equal(t, want, resp.StatusCode, path)
		isolated(t, resp)
	}
	resp, _ := ask(t, server, http.MethodPost, "/")
	require.Equal(t, http.StatusMethodNotAllowed, resp.StatusCode)
	isolated(t, resp)
	named := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://evil.example/", http.NoBody)
	refused := httptest.NewRecorder()
	server.Config.Handler.ServeHTTP(refused, named)
	require.Equal(t, http.StatusForbidden, refused.Code)
	isolated(t, refused.Result())

	writeRun(t, filepath.Join(dir, "running"), failover())
	_, page := ask(t, server, http.MethodGet, "/running/report.html")
	require.Contains(t, page, "<h1>Two clients held", "what is recorded so far is judged")

	resp, _ = ask(t, server, http.MethodGet, "/one/"+reports.MarkdownFile)
	require.Equal(t, "text/plain; charset=utf-8", resp.Header.Get("Content-Type"), "browsers show it: a page that is kept apart may not download")
}

func isolated(tb testing.TB, resp *http.Response) {
	tb.Helper()
	policy := resp.Header.Get("Content-Security-Policy")
	for _, part := range []string{"sandbox allow-scripts;", "default-src 'none';", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"} {
		require.Contains(tb, policy, part)
	}
	require.Equal(tb, "same-origin", resp.Header.Get("Cross-Origin-Resource-Policy"))
	require.Equal(tb, "nosniff", resp.Header.Get("X-Content-Type-Options"))
}
