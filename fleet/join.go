package fleet

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A Campaign is what the shards of one played together.
type Campaign struct {
	Header

	// Runs are ordered by their jobs and then by their IDs, whatever the order of the shards.
	Runs []Run
	// Folders are those that were joined, by their names, and Parts the ID of the first run of each: copies of a folder
	// have the same, and so has one that was resumed.
	Folders, Parts []string
	// Missing are the jobs that no shard has played, and Repeated is how many runs are of a job that
	// has another before it: each is a draw of its own, and counts.
	Missing  []string
	Repeated int
	// Cut are the folders whose journals end in the middle of a line.
	Cut []string
}

// Join makes one campaign of the journals in folders. A run that stands in several of them, which are copies, counts
// once. Journals of different campaigns, and machines that made other faults of the same list, are refused.
func Join(dirs []string) (Campaign, error) {
	var c Campaign
	if len(dirs) == 0 {
		return c, errors.New("no folder is named")
	}
	dirs = slices.Sorted(slices.Values(dirs))
	c.Folders = dirs
	byID := map[string]Run{}
	var first Recorded
	for i, dir := range dirs {
		p, err := Read(dir)
		if err != nil {
			return c, err
		}
		if i == 0 {
			first = p
		} else if differ := first.Header.differences(p.Header); len(differ) > 0 {
			return c, fmt.Errorf("%s and %s are of different campaigns: %s", first.Dir, dir, strings.Join(differ, "; "))
		}
		if p.Cut {
			c.Cut = append(c.Cut, dir)
		}
		if len(p.Runs) > 0 {
			c.Parts = append(c.Parts, p.Runs[0].ID)
		}
		for _, r := range p.Runs {
			if other, there := byID[r.ID]; there && (other.Job != r.Job || string(other.Result) != string(r.Result)) {
				return c, fmt.Errorf("%s and %s have different runs with the id %s", other.Folder, dir, r.ID)
			} else if !there {
				byID[r.ID] = r
			}
		}
	}
	slices.Sort(c.Parts)
	c.Parts = slices.Compact(c.Parts)
	c.Header = first.Header
	c.Shard = ""
	jobs, err := c.Jobs()
	if err != nil {
		return c, fmt.Errorf("%s: %w", first.Dir, err)
	}
	return c, c.order(jobs, byID)
}

// order puts the runs in the order of their jobs, and counts what is missing and what was repeated.
func (c *Campaign) order(jobs []string, byID map[string]Run) error {
	at := make(map[string]int, len(jobs))
	for i, job := range jobs {
		at[job] = i
	}
	for _, r := range byID {
		if _, planned := at[r.Job]; !planned {
			return fmt.Errorf("%s: %s is none of the seeds %s", r.Folder, r.Job, c.Seeds)
		}
		c.Runs = append(c.Runs, r)
	}
	slices.SortFunc(c.Runs, func(a, b Run) int {
		result := 0
		if c.Same {
			result = bytes.Compare(a.Result, b.Result)
		}
		return cmp.Or(cmp.Compare(at[a.Job], at[b.Job]), result, cmp.Compare(a.ID, b.ID))
	})
	if c.Same { // a result that differs is of another run all the same, and may be the one that is not valid
		c.Runs = slices.CompactFunc(c.Runs, func(a, b Run) bool { return a.Job == b.Job && bytes.Equal(a.Result, b.Result) })
	}
	played, first := map[string]bool{}, map[string]Run{}
	for _, r := range c.Runs {
		a, there := first[r.cell()]
		if !there {
			a, first[r.cell()] = r, r
		}
		if !slices.Equal(a.LeftOut, r.LeftOut) {
			return fmt.Errorf("the machines of %s and %s can make other faults, so that they played other runs: %s left out %q, and %s %q",
				a.Folder, r.Folder, a.Host, a.LeftOut, r.Host, r.LeftOut)
		}
		if played[r.Job] {
			c.Repeated++
		}
		played[r.Job] = true
	}
	for _, job := range jobs {
		if !played[job] {
			c.Missing = append(c.Missing, job)
		}
	}
	return nil
}

// cell is the job without its seed.
func (r Run) cell() string {
	return r.Job[:max(0, strings.LastIndex(r.Job, "seed "))]
}
