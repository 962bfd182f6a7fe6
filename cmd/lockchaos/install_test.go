package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// A sourceFile is a file of the module.
type sourceFile struct{ root, path string }

func (f sourceFile) Path() string                 { return f.path }
func (f sourceFile) Lstat() (os.FileInfo, error)  { return os.Lstat(filepath.Join(f.root, f.path)) }
func (f sourceFile) Open() (io.ReadCloser, error) { return os.Open(filepath.Join(f.root, f.path)) }

// published puts the module, as it is in this folder, into a file proxy, as if it had a
// version, and returns the environment of a go command that knows no other source than
// that proxy and what was downloaded before.
func published(t *testing.T, version string) []string {
	t.Helper()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	m := module.Version{Path: "github.com/lockchaos/lockchaos", Version: version}
	list := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	out, err := list.Output()
	require.NoError(t, err)
	var files []zip.File
	for path := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		info, err := os.Lstat(filepath.Join(root, path))
		switch {
		case err != nil, !info.Mode().IsRegular(): // deleted, or a link, which a module has not
		case strings.HasPrefix(path, "examples/"): // a module of its own
		default:
			files = append(files, sourceFile{root, path})
		}
	}
	proxy := t.TempDir()
	at := filepath.Join(proxy, m.Path, "@v")
	require.NoError(t, os.MkdirAll(at, 0o755))
	archive, err := os.Create(filepath.Join(at, version+".zip"))
	require.NoError(t, err)
	require.NoError(t, zip.Create(archive, m, files))
	require.NoError(t, archive.Close())
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	require.NotContains(t, string(mod), "\nreplace", "go install refuses a module with a replace directive")
	for name, content := range map[string]string{
		"list": version + "\n", version + ".mod": string(mod), version + ".info": fmt.Sprintf(`{"Version":%q}`, version),
	} {
		require.NoError(t, os.WriteFile(filepath.Join(at, name), []byte(content), 0o600))
	}
	cache := strings.TrimSpace(command(t, nil, root, "go", "env", "GOMODCACHE"))
	return append(os.Environ(),
		"GOPROXY=file://"+proxy+",file://"+filepath.Join(cache, "cache", "download"), "GOSUMDB=off", "GOWORK=off",
		"GOFLAGS=-modcacherw -trimpath", "GOMODCACHE="+t.TempDir(), "GOTOOLCHAIN=local")
}

// command runs a program to its end, and returns what it printed.
func command(t *testing.T, env []string, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	var out, complaints bytes.Buffer
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = env, dir, &out, &complaints
	require.NoError(t, cmd.Run(), "%s %s: %s", name, strings.Join(args, " "), complaints.String())
	return out.String()
}

// The program installs from a module proxy, and says which version it is.
func TestInstallsFromAProxy(t *testing.T) {
	t.Parallel()
	if os.Getenv("LOCKCHAOS_TEST_INSTALL") != "1" {
		t.Skip("it compiles the whole program again, which takes a minute or more (LOCKCHAOS_TEST_INSTALL=1)")
	}
	env := published(t, "v0.0.1")
	bin := t.TempDir()
	command(t, append(env, "GOBIN="+bin), t.TempDir(), "go", "install", "github.com/lockchaos/lockchaos/cmd/lockchaos@latest")
	program := filepath.Join(bin, "lockchaos")
	require.Equal(t, "lockchaos v0.0.1\n", command(t, nil, bin, program, "version"))
	history, err := filepath.Abs("../../checker/testdata/valid")
	require.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(history, "*.jsonl"))
	require.NoError(t, err)
	require.Contains(t, command(t, nil, bin, program, "check", files[0]), "VALID")
}

// A service that imports package lock alone compiles go-redis and nothing else that it
// did not ask for.
func TestLockAloneIsLight(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it resolves a module")
	}
	env, dir := published(t, "v0.0.1"), t.TempDir()
	for name, content := range map[string]string{
		"go.mod":  "module example.com/service\n\ngo 1.26.0\n",
		"main.go": "package main\n\nimport _ \"github.com/lockchaos/lockchaos/lock\"\n\nfunc main() {}\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	command(t, env, dir, "go", "get", "github.com/lockchaos/lockchaos/lock@latest")
	modules := map[string]bool{}
	for line := range strings.Lines(command(t, env, dir, "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", ".")) {
		if m := strings.TrimSpace(line); m != "" {
			modules[m] = true
		}
	}
	require.Equal(t, map[string]bool{
		"example.com/service": true, "github.com/lockchaos/lockchaos": true, "github.com/redis/go-redis/v9": true,
		"github.com/cespare/xxhash/v2": true, "go.uber.org/atomic": true, "golang.org/x/sys": true,
	}, modules)
	sums, err := os.ReadFile(filepath.Join(dir, "go.sum"))
	require.NoError(t, err)
	require.Less(t, bytes.Count(sums, []byte("\n")), 20)
}
