// Package fleet divides a campaign, which is many runs of one command, over processes and machines: each
// plays a shard, and notes its finished runs in a journal, which survives the end of the process at any
// moment. Join makes one campaign of the journals again, and names what was never played.
package fleet

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/lockchaos/lockchaos/internal/seeds"
)

// JournalFile is the name of a journal, in the folder of its runs.
const JournalFile = "runs.jsonl"

// format is the version of journals that this package writes and reads.
const format = 1

// A Header is the first line of a journal: what its runs are of. Journals that differ in more than their
// shard are of different campaigns.
type Header struct {
	Format int `json:"format"`
	// Program is the version of lockchaos, and Build the SHA-256 of its file: builds of one version differ.
	Program string `json:"program"`
	Build   string `json:"build"`
	// Command is without what divides a campaign and says where it goes.
	Command string `json:"command"`
	// Files are the SHA-256 of those that the command of a driver names, by the names that it gives them.
	Files map[string]string `json:"files,omitempty"`
	// Seeds are those of all shards, as they were said. Cells are what each seed is played with; none: each
	// seed is one job. Plan is what the command has to know of them when it joins their runs.
	Seeds string          `json:"seeds"`
	Cells []string        `json:"cells,omitempty"`
	Plan  json.RawMessage `json:"plan,omitempty"`
	// Same says that a job gives the same result each time, so that two equal results of it count once.
	Same  bool   `json:"same,omitempty"`
	Shard string `json:"shard,omitempty"`
}

// Sign notes the SHA-256 of this program's file, and of those that the commands of drivers name.
func (h *Header) Sign(drivers ...string) error {
	program, err := os.Executable()
	if err == nil {
		h.Build, err = sumOf(program)
	}
	if err == nil {
		h.Files, err = Files(drivers...)
	}
	if err != nil {
		return fmt.Errorf("read what plays: %w", err)
	}
	return nil
}

// sumOf is the SHA-256 of a file.
func sumOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// shellWords are those of a shell's command: what is between quotes is one of them.
var shellWords = regexp.MustCompile(`'[^']*'|"[^"]*"|[^\s"';&|<>()]+`)

// Files are the SHA-256 of those words of commands that name files, as from this folder: a driver is one of them, and
// an interpreter that is found by its name alone is none.
func Files(commands ...string) (map[string]string, error) {
	all := map[string]string{}
	for _, word := range shellWords.FindAllString(strings.Join(commands, " "), -1) {
		word = strings.Trim(word, `'"`)
		if info, err := os.Stat(word); err != nil || !info.Mode().IsRegular() {
			continue
		}
		sum, err := sumOf(word)
		if err != nil {
			return nil, err
		}
		all[word] = sum
	}
	return all, nil
}

// Repeat is the command that plays the campaign again.
func (h Header) Repeat() string { return h.Command + " --seeds " + h.Seeds }

// Jobs are the names of all jobs of the campaign, in their order.
func (h Header) Jobs() ([]string, error) {
	all, err := seeds.Parse(h.Seeds)
	if err != nil {
		return nil, fmt.Errorf("seeds %q: %w", h.Seeds, err)
	}
	cells := h.Cells
	if len(cells) == 0 {
		cells = []string{""}
	}
	var jobs []string
	for _, cell := range cells {
		for _, seed := range all {
			jobs = append(jobs, Job(cell, seed))
		}
	}
	return jobs, nil
}

// Job is the name of a job: of a cell, empty where there are none, with a seed.
func Job(cell string, seed uint64) string {
	return strings.TrimPrefix(fmt.Sprintf("%s seed %d", cell, seed), " ")
}

// differences are what two headers differ in beside the shard, as sentences.
func (h Header) differences(other Header) (all []string) {
	for _, of := range []struct {
		what string
		a, b any
	}{
		{"the program is", h.Program, other.Program},
		{"the file of the program has the SHA-256", h.Build, other.Build},
		{"the command is", h.Command, other.Command},
		{"the files of the driver are", h.Files, other.Files},
		{"the seeds are", h.Seeds, other.Seeds},
		{"the cells are", h.Cells, other.Cells},
		{"that it was played in virtual time is", h.Same, other.Same},
	} {
		if a, b := fmt.Sprint(of.a), fmt.Sprint(of.b); a != b {
			all = append(all, fmt.Sprintf("%s %s, and %s", of.what, strings.TrimPrefix(a, "map"), strings.TrimPrefix(b, "map")))
		}
	}
	if len(all) == 0 && !bytes.Equal(h.Plan, other.Plan) {
		all = append(all, "the machines can play other cells: lockchaos doctor")
	}
	return all
}

// A Run is a line of a journal: a job that was played to its end.
type Run struct {
	// ID tells it from every other, also of the same job.
	ID string `json:"id"`
	// Job is its name, and Host the machine that played it.
	Job  string `json:"job"`
	Host string `json:"host,omitempty"`
	// LeftOut are the faults that this machine could not make, of those that were asked for: machines that
	// differ in it play other runs of a seed.
	LeftOut []string `json:"left_out,omitempty"`
	// Dir is its run directory, beside the journal; empty if there is none.
	Dir string `json:"dir,omitempty"`
	// Result is what the command keeps of it.
	Result json.RawMessage `json:"result"`
	// Folder has the journal and the run directory.
	Folder string `json:"-"`
}

// Decode reads the result of a run. What the program would not write is an error.
func (r Run) Decode(into any) error {
	if err := Decode(r.Result, into); err != nil {
		return r.Wrong(err)
	}
	return nil
}

// Wrong says in which line something is wrong.
func (r Run) Wrong(err error) error {
	return fmt.Errorf("%s: %s: %w", filepath.Join(r.Folder, JournalFile), r.Job, err)
}

// A Journal is a file to which runs are appended as they end. One process at a time has it.
type Journal struct {
	file *os.File
	host string
	runs map[string][]Run // by their jobs
	// broken is why a line could not be written: it may be there in part, so that none may follow it.
	broken error
}

// Open begins a journal in a folder, which must be new, or resumes the one that is there, which must be of the same campaign and
// shard. A last line that was cut off is removed; its run counts as never played. Where there is no journal to resume, or not
// even the first line of one, it begins one.
func Open(dir string, h Header, resume bool) (*Journal, error) {
	// Where a file system has no locks, what two processes append is there of both.
	flag := os.O_CREATE | os.O_WRONLY | os.O_APPEND
	if !resume {
		flag |= os.O_EXCL
	}
	f, err := os.OpenFile(filepath.Join(dir, JournalFile), flag, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open a journal: %w", err)
	}
	host, _ := os.Hostname()
	j := &Journal{file: f, host: host, runs: map[string][]Run{}}
	if err = lock(f, false); err != nil {
		err = fmt.Errorf("another process plays in %s: %w", dir, err)
	} else {
		err = j.begin(dir, h)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return j, nil
}

// begin reads what is there, and writes the header where nothing is.
func (j *Journal) begin(dir string, h Header) error {
	found, err := Read(dir)
	empty := errors.Is(err, os.ErrNotExist) // has no whole line
	if err == nil {
		differ := found.Header.differences(h)
		if found.Header.Shard != h.Shard {
			differ = append(differ, fmt.Sprintf("the shard is %q, and %q", found.Header.Shard, h.Shard))
		}
		if len(differ) > 0 {
			err = fmt.Errorf("%s has another campaign, so that it can't be resumed: %s", dir, strings.Join(differ, "; "))
		}
	}
	if err == nil || empty {
		err = os.Truncate(j.file.Name(), found.end)
	}
	if err == nil && empty {
		h.Format = format
		err = errors.Join(j.write(h), syncDir(dir))
	}
	if err != nil {
		return fmt.Errorf("resume a journal: %w", err)
	}
	for _, r := range found.Runs {
		j.runs[r.Job] = append(j.runs[r.Job], r)
	}
	return nil
}

// Of are the runs of a job that it had when it was resumed.
func (j *Journal) Of(job string) []Run { return j.runs[job] }

// Append notes a run that has ended, with an ID, this machine's name and what the command keeps of it, and returns once it is on
// the disk.
func (j *Journal) Append(r Run, result any) (err error) {
	r.ID, r.Host = rand.Text(), j.host
	if r.Result, err = json.Marshal(result); err != nil {
		return fmt.Errorf("note a run: %w", err)
	}
	return j.write(r)
}

func (j *Journal) write(line any) error {
	b, err := json.Marshal(line)
	if err != nil {
		return fmt.Errorf("write a journal: %w", err)
	}
	if j.broken != nil {
		return j.broken
	}
	if _, err = j.file.Write(append(b, '\n')); err == nil {
		err = j.file.Sync()
	}
	if err != nil {
		j.broken = fmt.Errorf("write a journal: %w", err)
	}
	return j.broken
}

// Discard removes the file of a journal in which no run was noted.
func (j *Journal) Discard() error { return os.Remove(j.file.Name()) }

// Close closes the file.
func (j *Journal) Close() error { return j.file.Close() }

// syncDir has a new file's name outlive the machine's end.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("make a journal: %w", err)
	}
	defer d.Close()
	_ = d.Sync() // not every file system can
	return nil
}

// Hold waits until no other process has the memory in a folder, and keeps it from others until release is called.
func Hold(dir string) (release func() error, err error) {
	f, err := os.Open(dir)
	if err == nil {
		err = lock(f, true)
	}
	if err != nil {
		return nil, fmt.Errorf("hold %s: %w", dir, err)
	}
	return f.Close, nil
}

// Recorded is what the journal of a folder has.
type Recorded struct {
	Dir    string
	Header Header
	Runs   []Run
	// Cut says that its last line was cut off.
	Cut bool

	end int64 // of its last whole line
}

// Read reads the journal of a folder; one that has none is [os.ErrNotExist]. A last line that was cut off is left out.
func Read(dir string) (Recorded, error) {
	p := Recorded{Dir: dir}
	path := filepath.Join(dir, JournalFile)
	b, err := os.ReadFile(path)
	if err != nil {
		return p, fmt.Errorf("read a journal: %w", err)
	}
	ids := map[string]bool{}
	for number := 1; len(b) > 0; number++ {
		line, rest, whole := bytes.Cut(b, []byte("\n"))
		if !whole {
			p.Cut = true
			break
		}
		if number == 1 {
			err = Decode(line, &p.Header)
			if err == nil && p.Header.Format != format {
				err = fmt.Errorf("its format is %d, and this program reads %d", p.Header.Format, format)
			}
		} else {
			var r Run
			if err = Decode(line, &r); err == nil && (r.ID == "" || r.Job == "" || ids[r.ID]) {
				err = errors.New("a run needs a job, and an id that no other has")
			} else if err == nil && r.Dir != "" && (r.Dir == "." || r.Dir != filepath.Base(r.Dir) || !filepath.IsLocal(r.Dir)) {
				err = fmt.Errorf("the run directory %q is not beside the journal", r.Dir)
			}
			ids[r.ID], r.Folder = true, dir
			p.Runs = append(p.Runs, r)
		}
		if err != nil {
			return p, fmt.Errorf("%s:%d: %w", path, number, err)
		}
		b = rest
		p.end += int64(len(line)) + 1
	}
	if p.end == 0 {
		return p, fmt.Errorf("%s has no whole line, so that it is no journal: %w", path, os.ErrNotExist)
	}
	return p, nil
}

// Decode decodes JSON that this program wrote, and nothing else.
func Decode(line []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more behind the value")
	}
	return nil
}
