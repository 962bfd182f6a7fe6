package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"

	"github.com/lockchaos/lockchaos/internal/runtest"
)

// Each module in this repository, and its folder. The root requires one version of the
// other, which a release of both has as its own.
const (
	rootModule = "github.com/lockchaos/lockchaos"
	lockModule = rootModule + "/lock"
)

// A proxy is a folder of modules, as GOPROXY=file:// takes it.
type proxy struct {
	version     string
	environment []string // of a go command that asks this proxy, then what was downloaded before, then what it would ask
}

// published puts both modules, as they were committed last, into a proxy, as if they had
// the version that the root requires of lock.
func published(t *testing.T) proxy {
	t.Helper()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	mod := requirements(t, filepath.Join(root, "go.mod"))
	require.Empty(t, mod.Replace, "go install refuses a module with a replace directive")
	version := ""
	for _, r := range mod.Require {
		if r.Mod.Path == lockModule {
			version = r.Mod.Version
		}
	}
	folder, source := t.TempDir(), t.TempDir()
	command(t, os.Environ(), root, "sh", "-c", "git archive HEAD | tar -x -C "+source)
	for path, within := range map[string]string{rootModule: "", lockModule: "lock"} {
		at := filepath.Join(folder, path, "@v")
		require.NoError(t, os.MkdirAll(at, 0o755))
		archive, err := os.Create(filepath.Join(at, version+".zip"))
		require.NoError(t, err)
		require.NoError(t, zip.CreateFromDir(archive, module.Version{Path: path, Version: version}, filepath.Join(source, within)))
		require.NoError(t, archive.Close())
		mod, err := os.ReadFile(filepath.Join(root, within, "go.mod"))
		require.NoError(t, err)
		for name, content := range map[string]string{
			"list": version + "\n", version + ".mod": string(mod), version + ".info": fmt.Sprintf(`{"Version":%q}`, version),
		} {
			require.NoError(t, os.WriteFile(filepath.Join(at, name), []byte(content), 0o600))
		}
	}
	settings := strings.Fields(command(t, nil, root, "go", "env", "GOMODCACHE", "GOPROXY"))
	return proxy{version, append(os.Environ(),
		"GOPROXY=file://"+folder+",file://"+filepath.Join(settings[0], "cache", "download")+","+settings[1], "GOSUMDB=off", "GOWORK=off",
		"GOFLAGS=-modcacherw -trimpath", "GOMODCACHE="+t.TempDir(), "GOTOOLCHAIN=local")}
}

// requirements reads a go.mod.
func requirements(t *testing.T, path string) *modfile.File {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	mod, err := modfile.Parse(path, b, nil)
	require.NoError(t, err)
	return mod
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

// The program installs from a module proxy: no replace directive, no file and no package is
// missing.
func TestInstallsFromAProxy(t *testing.T) {
	t.Parallel()
	if !runtest.Nightly() {
		t.Skip("it unpacks and compiles all modules anew: make nightly does; TestLockAloneIsLight publishes both modules as well")
	}
	p, bin := published(t), t.TempDir()
	install := func(args ...string) string {
		return command(t, append(p.environment, "GOBIN="+bin), t.TempDir(), "go", append(append([]string{"install"}, args...), rootModule+"/cmd/lockchaos@latest")...)
	}
	install("-gcflags="+rootModule+"/...=-N -l", "-ldflags=-w") // as fast as it can be built
	program := filepath.Join(bin, "lockchaos")
	require.Equal(t, "lockchaos "+p.version+"\n", command(t, nil, bin, program, "version"))
	require.Contains(t, command(t, nil, bin, program, "list", "locks"), "redlock")
	history, err := filepath.Abs("../../checker/testdata/valid")
	require.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(history, "*.jsonl"))
	require.NoError(t, err)
	require.Contains(t, command(t, nil, bin, program, "check", files[0]), "VALID")
}

// A service that imports package lock requires go-redis and what go-redis requires, and no
// other of its modules is raised, also by go mod tidy, which follows the tests of lock.
func TestLockAloneIsLight(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it resolves modules")
	}
	p := published(t)
	clients := ""
	for _, r := range requirements(t, "../../lock/go.mod").Require {
		if !r.Indirect {
			clients += r.Mod.String()
		}
	}
	require.Regexp(t, `^github.com/redis/go-redis/v9@v[0-9.]+$`, clients, "lock/go.mod requires it and nothing else")

	// Requirements of services that the root raises.
	const old = "module example.com/service\n\ngo 1.26.0\n\nrequire (\n" +
		"\tgo.opentelemetry.io/otel v1.28.0\n\tgo.uber.org/goleak v1.2.0\n\tgolang.org/x/sync v0.8.0\n\tgoogle.golang.org/grpc v1.65.0\n)\n"
	all := func(imported, get string) map[string]string {
		dir := t.TempDir()
		for name, content := range map[string]string{
			"go.mod": old, "main.go": fmt.Sprintf("package main\n\nimport _ %q\n\nfunc main() {}\n", imported),
		} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
		}
		command(t, p.environment, dir, "go", "get", get)
		versions := map[string]string{}
		read := func(when string) {
			for line := range strings.Lines(command(t, p.environment, dir, "go", "list", "-m", "all")) {
				path, version, _ := strings.Cut(strings.TrimSpace(line), " ")
				versions[when+path] = version
			}
		}
		read("")
		command(t, p.environment, dir, "go", "mod", "tidy") // drops what is not imported
		read("tidy: ")
		sums, err := os.ReadFile(filepath.Join(dir, "go.sum"))
		require.NoError(t, err)
		for line := range strings.Lines(string(sums)) {
			versions["sum: "+strings.TrimSpace(line)] = ""
		}
		return versions
	}
	with, without := all(lockModule, lockModule+"@"+p.version), all("github.com/redis/go-redis/v9", clients)
	require.Equal(t, "v1.65.0", with["google.golang.org/grpc"])
	require.Equal(t, "v1.28.0", with["go.opentelemetry.io/otel"])
	require.Equal(t, "v0.8.0", with["golang.org/x/sync"])
	require.Equal(t, "v1.2.0", with["go.uber.org/goleak"])
	for name, version := range with {
		if !strings.Contains(name, lockModule) {
			require.Contains(t, without, name, "it comes with lock")
			require.Equal(t, without[name], version, name)
		}
	}
	require.Equal(t, p.version, with["tidy: "+lockModule])
	require.NotContains(t, with, "tidy: "+rootModule)
}
