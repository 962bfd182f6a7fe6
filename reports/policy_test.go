package reports_test

import (
	"crypto/sha256"
	"encoding/base64"
	"html"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/reports"
)

// scripted are the pages with a script of a folder that is served: their text, and what allows the script.
func scripted(t *testing.T, dir string) map[string][2]string {
	t.Helper()
	writeRun(t, filepath.Join(dir, "one"), failover())
	require.NoError(t, reports.WriteDir(filepath.Join(dir, "one"), failover()))
	writeRun(t, filepath.Join(dir, "running"), failover())
	server := serving(t, dir)
	pages := map[string][2]string{}
	for _, path := range []string{"/", "/one/report.html", "/one/porcupine-orders.html", "/running/report.html"} {
		resp, page := ask(t, server, http.MethodGet, path)
		require.Equal(t, http.StatusOK, resp.StatusCode, path)
		policy := resp.Header.Get("Content-Security-Policy")
		if inPage := regexp.MustCompile(`http-equiv="Content-Security-Policy" content="(.*?)"`).FindStringSubmatch(page); inPage != nil {
			policy = html.UnescapeString(inPage[1])
		}
		pages[path] = [2]string{page, policy}
	}
	return pages
}

// Each page allows the script that it was written with, and no other.
func TestPagesAllowTheirOwnScriptAlone(t *testing.T) {
	t.Parallel()
	for path, of := range scripted(t, t.TempDir()) {
		page, policy := of[0], of[1]
		require.Equal(t, 1, strings.Count(page, "<script"), path)
		_, script, _ := strings.Cut(page, "<script>")
		script, _, _ = strings.Cut(script, "</script>")
		sum := sha256.Sum256([]byte(script))
		require.Regexp(t, `script-src `+regexp.QuoteMeta("'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'")+`(;|$)`, policy, path)
		require.NotContains(t, policy, "script-src 'unsafe-inline'", path)
	}
}

// A script that gets into a page is not run, and the page's own is.
func TestPoliciesInABrowser(t *testing.T) {
	t.Parallel()
	tab := newTab(t)
	dir := t.TempDir()
	works := map[string]string{
		"/":                          `document.documentElement.classList.contains("has-js")`,
		"/one/report.html":           `document.documentElement.classList.contains("has-chart")`,
		"/one/porcupine-orders.html": `document.querySelectorAll("#canvas rect").length > 0`,
		"/running/report.html":       `document.documentElement.classList.contains("has-chart")`,
	}
	for path, of := range scripted(t, dir) {
		page := regexp.MustCompile("<body.*?>").ReplaceAllString(of[0], `$0<script>window.injected = true</script><img src="data:," onerror="window.injected = true">`)
		require.Contains(t, page, "window.injected", path)
		file := filepath.Join(dir, "page.html")
		require.NoError(t, os.WriteFile(file, []byte(page), 0o600))
		tab.visit("file://"+file, "")
		tab.until(works[path])
		require.False(t, eval[bool](tab, `window.injected === true`), path)
		require.NotEmpty(t, tab.forgive(), "%s: the browser says what it refused", path)
	}
}
