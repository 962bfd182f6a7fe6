package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/reports"
)

// A served folder shows its runs, and of the one that is under way what there
// is, to this machine alone, until it is stopped.
func TestServe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	run := filepath.Join(dir, "one")
	require.NoError(t, os.Mkdir(run, 0o755))
	record := func(name, content string) {
		require.NoError(t, os.WriteFile(filepath.Join(run, name), []byte(content), 0o644))
	}
	record(reports.RunFile, `{"version":1,"seed":1,"topology":{"name":"single","nodes":[],"links":[]},"lock":"mutex"}`)
	record(reports.HistoryFile, `{"time":0,"process":1,"type":"invoke","op":"acquire","lock":"k","owner":"a"}`+"\n"+`{"time":1`)
	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(dir), "secret"), []byte("secret"), 0o600))

	ctx, stop := context.WithCancel(t.Context())
	r, w := io.Pipe()
	a := &app{stdout: w, stderr: io.Discard}
	ended := make(chan error, 1)
	go func() { ended <- a.serve(ctx, dir, 0) }()
	line, err := bufio.NewReader(r).ReadString('\n')
	require.NoError(t, err)
	base := strings.TrimSpace(line)
	require.Regexp(t, `^http://127\.0\.0\.1:\d+/$`, base)

	ask := func(path string) (int, string, http.Header) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, http.NoBody)
		require.NoError(t, err)
		resp, err := http.DefaultTransport.RoundTrip(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(body), resp.Header
	}
	code, body, header := ask("")
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, body, `href="./one/report.html"`)
	require.NotEmpty(t, header.Get("Refresh"))
	code, body, header = ask("one/report.html")
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, body, "results.json is missing")
	require.NotEmpty(t, header.Get("Refresh"))
	require.NoFileExists(t, filepath.Join(run, reports.HTMLFile))

	record(reports.HTMLFile, "the report")
	_, body, header = ask("one/report.html")
	require.Equal(t, "the report", body)
	require.Empty(t, header.Get("Refresh"))
	for _, path := range []string{"../secret", "..%2fsecret", "%2e%2e/secret", "one/../../secret"} {
		code, body, _ = ask(path)
		require.NotEqual(t, http.StatusOK, code, path)
		require.NotEqual(t, "secret", body, path)
	}
	stop()
	require.NoError(t, <-ended)
}
