package fleet

import (
	"fmt"
	"strconv"
	"strings"
)

// A Shard is a part of a campaign: of each Of jobs, the one with this Index, which counts from 1. The zero
// value is the whole campaign.
type Shard struct{ Index, Of int }

// ParseShard reads "I/N", such as 2/8, or "@VARIABLE/N": an environment variable has an index that counts
// from 0, as engines give it to the tasks of a job (JOB_COMPLETION_INDEX of Kubernetes). Empty is the
// whole campaign.
func ParseShard(text string, lookup func(variable string) (string, bool)) (Shard, error) {
	if text == "" {
		return Shard{}, nil
	}
	index, of, _ := strings.Cut(text, "/")
	n, err := strconv.Atoi(of)
	if err != nil || n < 1 {
		return Shard{}, fmt.Errorf("want I/N, such as 2/8, or @VARIABLE/N, and not %q", text)
	}
	if variable, named := strings.CutPrefix(index, "@"); named {
		value, set := lookup(variable)
		i, err := strconv.Atoi(value)
		if !set || err != nil || i < 0 || i >= n {
			return Shard{}, fmt.Errorf("%s: the environment variable %s must be a whole number from 0 to %d, and is %q", text, variable, n-1, value)
		}
		return Shard{i + 1, n}, nil
	}
	i, err := strconv.Atoi(index)
	if err != nil || i < 1 || i > n {
		return Shard{}, fmt.Errorf("%s: the first number must be from 1 to %d", text, n)
	}
	return Shard{i, n}, nil
}

// String is "2/8"; empty for the whole campaign.
func (s Shard) String() string {
	if s.Of == 0 {
		return ""
	}
	return fmt.Sprintf("%d/%d", s.Index, s.Of)
}

// Part is every Nth of the jobs, so that shards take about as long as each other where later jobs take longer.
func Part[J any](s Shard, jobs []J) []J {
	if s.Of == 0 {
		return jobs
	}
	var part []J
	for i := s.Index - 1; i < len(jobs); i += s.Of {
		part = append(part, jobs[i])
	}
	return part
}
