package reports_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/history"
)

// The page says what the run was told, and leads to the logs where there are some.
func TestEnvironment(t *testing.T) {
	in := failover()
	in.Run.Backend, in.Run.Settings = "process", json.RawMessage(`{"length":25000000000,"clients":8,"hold":20000000,"node_timeout":5000000,"careless":false,"min_replicas":0,"new_one":3}`)
	in.Run.Topology.Options = map[string]string{"min-replicas": "1"}
	page := htmlOf(t, in)
	require.Contains(t, page, "<dd>clients 8, hold 20 ms, length 25 s, min-replicas 1, new one 3, node timeout 5 ms</dd>")
	require.NotContains(t, page, "<dt>Machine", "a run.json of an earlier version")
	in.Run.Machine = &history.Machine{OS: "linux", Arch: "amd64", Kernel: "6.1.0-<13>", CPUs: 2, Go: "go1.26"}
	require.Contains(t, htmlOf(t, in), "<dt>Machine</dt><dd>linux 6.1.0-&lt;13&gt;, amd64, 2 CPUs, built with go1.26</dd>")

	in.Run.Settings, in.Run.Topology.Options = json.RawMessage(`"no object"`), nil
	page = htmlOf(t, in)
	require.NotContains(t, page, "logs/")
	require.NotContains(t, page, "<dt>Settings")
}

// What is copied as an issue is the story with its diagram, and how to repeat it.
func TestIssue(t *testing.T) {
	_, issue, found := strings.Cut(htmlOf(t, failover()), `<pre id="issue" hidden>`)
	require.True(t, found)
	issue, _, _ = strings.Cut(issue, "</pre>")
	require.Contains(t, issue, "## ✗ INVALID: Two clients")
	require.Contains(t, issue, "```mermaid")
	require.Contains(t, issue, "lockchaos reproduce failover-double-grant")
}
