package main

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/findings"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/internal/locks"
	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/mutants"
	"github.com/lockchaos/lockchaos/scenarios"
	"github.com/lockchaos/lockchaos/topologies"
)

var update = flag.Bool("update", false, "write the generated tables of the documents anew")

// root is the folder of the module.
const root = "../.."

// documents are the Markdown files that users read, by their path in the module.
func documents(t *testing.T) map[string]string {
	t.Helper()
	docs := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "lock/*.md"} {
		files, err := fs.Glob(os.DirFS(root), pattern)
		require.NoError(t, err)
		for _, file := range files {
			docs[file] = read(t, file)
		}
	}
	require.Contains(t, docs, "README.md")
	return docs
}

var generated = regexp.MustCompile(`(?s)<!-- lockchaos ((?:list [a-z]+|findings) --markdown) -->\n(.*?)<!-- end -->`)

// A table between two comments is what the command in the first one prints.
func TestTablesOfTheDocumentsAreCurrent(t *testing.T) {
	t.Parallel()
	count := 0
	for name, doc := range documents(t) {
		for _, m := range generated.FindAllStringSubmatch(doc, -1) {
			count++
			var out bytes.Buffer
			cmd := newRoot(&out, io.Discard)
			cmd.SetArgs(strings.Fields(m[1]))
			require.NoError(t, cmd.Execute())
			if *update {
				doc = strings.Replace(doc, m[0], strings.TrimSuffix(m[0], m[2]+"<!-- end -->")+out.String()+"<!-- end -->", 1)
				continue
			}
			require.Equal(t, out.String(), m[2], "%s has not what lockchaos %s prints: go test ./cmd/lockchaos -run TablesOfTheDocuments -update", name, m[1])
		}
		if *update {
			require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(doc), 0o644))
		}
	}
	require.GreaterOrEqual(t, count, 2)
}

var (
	fence   = regexp.MustCompile("(?ms)^```[a-z]*\n(.*?)^```$")
	code    = regexp.MustCompile("`([^`]+)`")
	link    = regexp.MustCompile(`(?:\]\(|src="|srcset=")([^)"\s]+)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
)

// anchors are the names under which a page's headings can be linked to.
func anchors(doc string) []string {
	var all []string
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(doc, ""), -1) {
		slug := regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		all = append(all, strings.ReplaceAll(slug, " ", "-"))
	}
	return all
}

// Every relative link leads to a file, and to a heading in it.
func TestLinksOfTheDocumentsResolve(t *testing.T) {
	t.Parallel()
	docs := documents(t)
	for name, doc := range docs {
		for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(doc, ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			file, anchor, _ := strings.Cut(m[1], "#")
			target := name
			if file != "" {
				target = filepath.ToSlash(filepath.Join(filepath.Dir(name), file))
				_, err := os.Stat(filepath.Join(root, target))
				require.NoError(t, err, "%s links to %s", name, m[1])
			}
			if anchor != "" {
				require.Contains(t, anchors(docs[target]), anchor, "%s links to %s", name, m[1])
			}
		}
	}
}

// commandLines are the lines of a document's code that begin with a program's
// name, each as its words.
func commandLines(doc, program string) [][]string {
	var sources []string
	rest := fence.ReplaceAllStringFunc(doc, func(block string) string {
		sources = append(sources, strings.Split(strings.ReplaceAll(block, "\\\n", " "), "\n")...)
		return ""
	})
	rest = strings.ReplaceAll(rest, "\\\n", " ")
	for line := range strings.Lines(rest) {
		if strings.HasPrefix(line, "    ") {
			sources = append(sources, line)
		}
	}
	sources = append(sources, names.Of(code.FindAllStringSubmatch(rest, -1), func(m []string) string { return strings.Join(strings.Fields(m[1]), " ") })...)
	var lines [][]string
	for _, source := range sources {
		source, _, _ = strings.Cut(source, " #")
		for part := range strings.SplitSeq(strings.NewReplacer(" | ", "\n", " && ", "\n", "; ", "\n", " > ", "\n", " || ", "\n").Replace(source), "\n") {
			words := shellWords(part)
			for len(words) > 0 && (words[0] == "$" || words[0] == "run:" || words[0] == "-" || assignment.MatchString(words[0])) {
				words = words[1:]
			}
			if len(words) > 1 && filepath.Base(words[0]) == program {
				lines = append(lines, words[1:])
			}
		}
	}
	return lines
}

var assignment = regexp.MustCompile(`^[A-Z_]+=`)

// shellWords splits a line at spaces that are not in single quotes.
func shellWords(line string) []string {
	words := regexp.MustCompile(`(?:[^\s']|'[^']*')+`).FindAllString(line, -1)
	return names.Of(words, func(w string) string { return strings.ReplaceAll(w, "'", "") })
}

// checkCommand demands that a command line names a command, flags and things
// that exist.
func checkCommand(t *testing.T, where string, words []string) {
	t.Helper()
	at := fmt.Sprintf("%s: lockchaos %s", where, strings.Join(words, " "))
	words = slices.DeleteFunc(slices.Clone(words), func(w string) bool { return w == "…" || w == "..." })
	for i, w := range words {
		if w == "N" { // stands for a number
			words[i] = "1"
		}
	}
	cmd, rest, err := newRoot(io.Discard, io.Discard).Find(words)
	require.NoError(t, err, at)
	if cmd.Name() == "help" || slices.Contains(rest, "--help") {
		return
	}
	for i, w := range rest { // an option that is named without its value
		if flag := cmd.Flags().Lookup(strings.TrimPrefix(w, "--")); strings.HasPrefix(w, "--") && flag != nil && flag.NoOptDefVal == "" && i == len(rest)-1 {
			rest = rest[:i]
			break
		}
	}
	require.NoError(t, cmd.ParseFlags(rest), at)
	rows, err := findings.Rows([]string{"lib:all"}) // NAME@TOPOLOGY
	require.NoError(t, err)
	libraries := names.Of(rows, func(row string) string { return strings.Split(row, "@")[0] })
	in := func(what string, known []string, given ...string) {
		for _, name := range given {
			if name != "" {
				require.Contains(t, known, name, "%s: %v", at, names.Unknown(what, name, known))
			}
		}
	}
	for flag, known := range map[string][]string{
		"topology": topologies.Names(), "backend": backendNames(), "resource": harness.ResourceNames(), "workload": (&app{}).values()["workload"](),
		"faults": append(faults.Mixes(), faults.Names(faults.All())...), "lock": slices.Concat(locks.All().Names(), libraries, []string{"etcd", "lib:all"}),
	} {
		f := cmd.Flags().Lookup(flag)
		if f == nil || !f.Changed || flag == "workload" && cmd.Name() == "bench" || strings.ToUpper(f.Value.String()) == f.Value.String() {
			continue
		}
		for name := range strings.SplitSeq(strings.Trim(f.Value.String(), "[]"), ",") {
			if command, isDriver := strings.CutPrefix(name, harness.ProgramPrefix); !isDriver {
				name, topology, _ := strings.Cut(name, "@") // of a matrix
				in(flag, known, strings.TrimSuffix(name, "…"))
				in("topology", topologies.Names(), topology)
			} else if strings.HasPrefix(command, "drivers/") {
				require.FileExists(t, filepath.Join(root, command), at)
			}
		}
	}
	for _, arg := range cmd.Flags().Args() {
		switch {
		case cmd.Name() == "list":
			in("kind of list", cmd.ValidArgs, strings.Split(arg, "|")...)
		case cmd.Name() == "reproduce" && !strings.HasSuffix(arg, ".yaml") && strings.ToUpper(arg) != arg:
			_, _, err := scenarios.Find(arg, locks.All())
			require.NoError(t, err, at)
		}
	}
}

// Every command that the documents show exists, with its flags and the names of
// what it is to run.
func TestCommandsOfTheDocumentsExist(t *testing.T) {
	t.Parallel()
	count := 0
	for name, doc := range documents(t) {
		for _, words := range commandLines(doc, "lockchaos") {
			checkCommand(t, name, words)
			count++
		}
	}
	require.Greater(t, count, 50)
}

// Every target and variable of make that the documents show exists, and what is
// passed on to lockchaos.
func TestMakeTargetsOfTheDocumentsExist(t *testing.T) {
	t.Parallel()
	makefile := read(t, "Makefile")
	sources := makefile + read(t, "scripts/*") + read(t, "compose/*") + read(t, "docker-compose.yml")
	commands := map[string]string{"chaos": "run", "reproduce": "reproduce", "bench": "bench", "mutants": "mutants"}
	for name, doc := range documents(t) {
		for _, words := range commandLines(doc, "make") {
			target := ""
			for _, w := range words {
				variable, value, set := strings.Cut(w, "=")
				switch {
				case !set:
					target = w
					require.True(t, strings.Contains(makefile, "\n"+w+":"), "%s: make %s", name, strings.Join(words, " "))
				case variable == "ARGS" && commands[target] != "":
					checkCommand(t, name, append([]string{commands[target]}, strings.Fields(value)...))
				case variable == "BUG" && value != "--all":
					_, _, err := scenarios.Find(value, locks.All())
					require.NoError(t, err, name)
				default:
					require.True(t, regexp.MustCompile(`[\${(,]`+variable+`[,)}= ]`).MatchString(sources), "%s: make %s", name, strings.Join(words, " "))
				}
			}
		}
	}
}

func read(t *testing.T, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, pattern))
	require.NoError(t, err)
	var all strings.Builder
	for _, file := range files {
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		all.Write(b)
	}
	return all.String()
}

// Every test and benchmark that a document names exists.
func TestTestsOfTheDocumentsExist(t *testing.T) {
	t.Parallel()
	var tests strings.Builder
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		tests.Write(b)
		return err
	})
	require.NoError(t, err)
	for name, doc := range documents(t) {
		for _, test := range regexp.MustCompile("`((?:Test|Benchmark|Fuzz)[A-Z][A-Za-z0-9_]*)`").FindAllStringSubmatch(doc, -1) {
			require.True(t, strings.Contains(tests.String(), "\nfunc "+test[1]+"("), "%s names %s", name, test[1])
		}
	}
}

// Each module that go.mod requires directly has a line that says why, and no
// other has one.
func TestDependenciesAreDocumented(t *testing.T) {
	t.Parallel()
	direct := regexp.MustCompile(`(?m)^\t(\S+) v\S+$`)
	mod, doc := read(t, "go.mod"), documents(t)["docs/dependencies.md"]
	modules := direct.FindAllStringSubmatch(mod, -1)
	require.Greater(t, len(modules), 15)
	for _, m := range modules {
		require.True(t, strings.Contains(doc, "`"+m[1]+"`"), "docs/dependencies.md does not say why %s is required", m[1])
	}
	for _, m := range regexp.MustCompile("`([a-z0-9.-]+\\.[a-z]+/[^`]+)`").FindAllStringSubmatch(doc, -1) {
		require.True(t, strings.Contains(mod, "\t"+m[1]+" v"), "docs/dependencies.md tells of %s, which go.mod does not require", m[1])
	}
}

// Numbers of things that the documents count are those of today.
func TestCountsOfTheDocumentsAreRight(t *testing.T) {
	t.Parallel()
	catalogue, err := scenarios.Catalogue(locks.All())
	require.NoError(t, err)
	counts := map[string]int{"scenarios": len(catalogue), "planted bugs": 0, "bugs": len(mutants.Mutants())}
	for _, s := range catalogue {
		counts["variants"] += len(s.VariantNames())
	}
	for _, name := range locks.All().Names() {
		if strings.HasPrefix(name, "broken-") {
			counts["planted bugs"]++
		}
	}
	for name, doc := range documents(t) {
		if name == "CHANGELOG.md" {
			continue
		}
		for what, n := range counts {
			for _, m := range regexp.MustCompile(`\b(\d+) `+what+`\b`).FindAllStringSubmatch(doc, -1) {
				require.Equal(t, fmt.Sprint(n), m[1], "%s counts %s %s", name, m[1], what)
			}
		}
	}
}

// Every Go block of the documents has the syntax of Go, and the tests of a lock among them are those of the example module.
func TestGoOfTheDocumentsIsGo(t *testing.T) {
	t.Parallel()
	example, shown := read(t, "examples/lock_test.go"), 0
	for name, doc := range documents(t) {
		for _, m := range regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(doc, -1) {
			source := m[1]
			if strings.Contains(source, "chaos.New(") {
				require.Contains(t, example, source, name)
				shown++
			}
			switch {
			case strings.HasPrefix(source, "package "):
			case strings.Contains(source, "\nfunc "):
				source = "package p\n" + source
			default:
				source = "package p\nfunc f() error {\n" + source + "\n}"
			}
			_, err := parser.ParseFile(token.NewFileSet(), name, source, 0)
			require.NoError(t, err, name)
		}
	}
	require.Equal(t, 2, shown)
}

// The files that CONTRIBUTING.md names by their paths are there.
func TestFilesOfContributingExist(t *testing.T) {
	t.Parallel()
	for _, m := range regexp.MustCompile("`([\\w-]+(?:/[\\w.-]+)*\\.(?:go|html|css|js|tmpl|golden))`").FindAllStringSubmatch(documents(t)["CONTRIBUTING.md"], -1) {
		if strings.Contains(m[1], "/") { // else it is in a package that the sentence names
			require.FileExists(t, filepath.Join(root, m[1]))
		}
	}
}

// The table of packages in CONTRIBUTING.md has every package, and no other.
func TestPackagesAreDocumentedAsTheyAre(t *testing.T) {
	t.Parallel()
	_, table, found := strings.Cut(documents(t)["CONTRIBUTING.md"], "\n| folder |")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n\n")
	var named []string
	for _, m := range regexp.MustCompile(`(?m)^\| (.*?) \|`).FindAllStringSubmatch(table, -1) {
		for _, folder := range code.FindAllStringSubmatch(m[1], -1) {
			named = append(named, folder[1])
			_, err := os.Stat(filepath.Join(root, strings.TrimSuffix(folder[1], "/…")))
			require.NoError(t, err, "CONTRIBUTING.md has a row for %s", folder[1])
		}
	}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		folder, err := filepath.Rel(root, path)
		if err != nil || folder == "." {
			return err
		}
		if strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" {
			return filepath.SkipDir
		}
		sources, err := filepath.Glob(filepath.Join(path, "*.go"))
		if err != nil || len(sources) == 0 || strings.HasPrefix(folder, "scripts") || strings.HasPrefix(folder, "images") {
			return err
		}
		folder = filepath.ToSlash(folder)
		require.True(t, slices.ContainsFunc(named, func(name string) bool {
			parent, whole := strings.CutSuffix(name, "/…")
			return name == folder || whole && strings.HasPrefix(folder, parent+"/")
		}), "CONTRIBUTING.md has no row for %s", folder)
		return nil
	})
	require.NoError(t, err)
}

// Documents and sources name the client, owner or server that they mean.
func TestDocumentsAndSourcesNameTheParty(t *testing.T) {
	t.Parallel()
	vague := regexp.MustCompile(`\b([Nn]obody|[Ss]omebody|[Ww]hoever|[Aa]nybody|[Ee]verybody)\b`)
	texts := documents(t)
	delete(texts, "CHANGELOG.md")
	require.NoError(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "/.bin/") { // what make built
			return err
		}
		b, err := os.ReadFile(path)
		texts[path] = string(b)
		return err
	}))
	require.Greater(t, len(texts), 300)
	for name, text := range texts {
		if found := vague.FindStringIndex(text); found != nil {
			line := 1 + strings.Count(text[:found[0]], "\n")
			t.Errorf("%s:%d: %s: say which client, owner or server", name, line, text[found[0]:found[1]])
		}
	}
}

// A result may come from Go's cache only if no server is part of it.
func TestPackagesThatAreCachedStartNoServer(t *testing.T) {
	t.Parallel()
	cached := regexp.MustCompile(`(?m)^CACHED := ((?:.*\\\n)*.*)`).FindStringSubmatch(read(t, "Makefile"))
	require.NotNil(t, cached)
	starts := regexp.MustCompile(`"github.com/lockchaos/lockchaos/(topologies/(process|container|attach)|internal/(runtest|spawn)|lock/redistest)"`)
	packages := strings.Fields(strings.ReplaceAll(cached[1], "\\\n", " "))
	require.Greater(t, len(packages), 10)
	for _, name := range packages {
		dir, below := strings.CutSuffix(name, "/...")
		require.NoError(t, filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() && !below && path != filepath.Join(root, dir) {
				return cmp.Or(err, fs.SkipDir)
			}
			if !strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, "bench_test.go") {
				return nil
			}
			source, err := os.ReadFile(path)
			require.NotRegexp(t, starts, string(source), path)
			return err
		}))
	}
}
