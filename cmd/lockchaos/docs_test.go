package main

import (
	"bytes"
	"flag"
	"fmt"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

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

var (
	// shown is code of a document: a block between fences, an indented line, or a part of a line.
	shown     = regexp.MustCompile("(?ms)^```[a-z]*\n(.*?)^```$|^ {4}([^\n]*)$|`([^`]+)`")
	separator = regexp.MustCompile(` (?:\|\|?|&&|>) |; | #.*`)
	before    = regexp.MustCompile(`^ *(?:(?:\$|run:|-|[A-Z_]+=\S*) +)*`) // a command
)

// commandLines are the commands in a document's code that begin with a program's name, each as its words.
func commandLines(doc, program string) (lines [][]string) {
	for _, m := range shown.FindAllStringSubmatch(strings.ReplaceAll(doc, "\\\n", " "), -1) {
		for line := range strings.Lines(m[1] + m[2] + strings.Join(strings.Fields(m[3]), " ")) {
			for _, part := range separator.Split(line, -1) {
				words := shellWords(before.ReplaceAllString(part, ""))
				if len(words) > 1 && filepath.Base(words[0]) == program {
					lines = append(lines, words[1:])
				}
			}
		}
	}
	return lines
}

// shellWords splits a line at spaces that are not in single quotes.
func shellWords(line string) []string {
	words := regexp.MustCompile(`(?:[^\s']|'[^']*')+`).FindAllString(line, -1)
	return names.Of(words, func(w string) string { return strings.ReplaceAll(w, "'", "") })
}

// checkCommand demands that a command line names a command, flags and things
// that exist. A word in capitals stands for one that the user chooses.
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
	if last := len(rest) - 1; last >= 0 { // an option that is named without its value
		if flag := cmd.Flags().Lookup(strings.TrimPrefix(rest[last], "--")); strings.HasPrefix(rest[last], "--") && flag != nil && flag.NoOptDefVal == "" {
			rest = rest[:last]
		}
	}
	require.NoError(t, cmd.ParseFlags(rest), at)
	values := (&app{locks: locks.All()}).values()
	check := func(of, list string) {
		known := values[of]
		if known == nil || strings.ToUpper(list) == list {
			return
		}
		for name := range strings.SplitSeq(strings.Trim(list, "[]"), ",") {
			command, isDriver := strings.CutPrefix(name, harness.ProgramPrefix)
			name, topology, isCell := strings.Cut(name, "@") // of a matrix
			switch {
			case isDriver && strings.HasPrefix(command, "drivers/"):
				require.FileExists(t, filepath.Join(root, command), at)
			case strings.HasPrefix(name, "lib:"):
				_, err := findings.Rows([]string{name})
				require.NoError(t, err, at)
			case !isDriver && name != "…" && name != etcdLock: // that of a benchmark
				require.Contains(t, known(), strings.TrimSuffix(name, "…"), "%s: %v", at, names.Unknown(of, name, known()))
			}
			if isCell {
				require.Contains(t, topologies.Names(), topology, at)
			}
		}
	}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Name != "workload" || cmd.Name() != "bench" { // which has its own
			check(f.Name, f.Value.String())
		}
	})
	for _, arg := range cmd.Flags().Args() {
		switch {
		case cmd.Name() == "list":
			require.Subset(t, cmd.ValidArgs, strings.Split(arg, "|"), at)
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

// sources are the files of Go in the module, by their path in it.
func sources(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	require.NoError(t, fs.WalkDir(os.DirFS(root), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && strings.HasPrefix(d.Name(), "."): // what make built
			return fs.SkipDir
		case strings.HasSuffix(path, ".go"):
			files[path] = read(t, path)
		}
		return nil
	}))
	require.Greater(t, len(files), 300)
	return files
}

// inFolder reports whether a file is in a folder, or below one whose name ends so.
func inFolder(file, folder, andBelow string) bool {
	above, whole := strings.CutSuffix(folder, andBelow)
	return path.Dir(file) == above || whole && strings.HasPrefix(file, above+"/")
}

// Every test and benchmark that a document names exists.
func TestTestsOfTheDocumentsExist(t *testing.T) {
	t.Parallel()
	var tests strings.Builder
	for file, source := range sources(t) {
		if strings.HasSuffix(file, "_test.go") {
			tests.WriteString(source)
		}
	}
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
	for file := range sources(t) {
		if !regexp.MustCompile(`^[^/]*$|^scripts/|^images/|(^|/)testdata/`).MatchString(file) {
			require.True(t, slices.ContainsFunc(named, func(folder string) bool { return inFolder(file, folder, "/…") }), "CONTRIBUTING.md has no row for the folder of %s", file)
		}
	}
}

// Documents and sources name the client, owner or server that they mean.
func TestDocumentsAndSourcesNameTheParty(t *testing.T) {
	t.Parallel()
	vague := regexp.MustCompile(`\b([Nn]obody|[Ss]omebody|[Ww]hoever|[Aa]nybody|[Ee]verybody)\b`)
	texts := documents(t)
	delete(texts, "CHANGELOG.md")
	for file, source := range sources(t) {
		if !strings.HasSuffix(file, "_test.go") {
			texts[file] = source
		}
	}
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
	for file, source := range sources(t) {
		cached := slices.ContainsFunc(packages, func(folder string) bool { return inFolder("./"+file, folder, "/...") })
		if cached && strings.HasSuffix(file, "_test.go") && !strings.HasSuffix(file, "bench_test.go") {
			require.NotRegexp(t, starts, source, file)
		}
	}
}
