package simredis

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"strings"
)

type member struct {
	name  string
	score float64
}

func (m member) compare(o member) int {
	return cmp.Or(cmp.Compare(m.score, o.score), strings.Compare(m.name, o.name))
}

// sortedSet has its members in order of their scores, then of their names.
type sortedSet struct{ list []member }

func (z *sortedSet) score(name string) (float64, bool) {
	for i := range z.list {
		if z.list[i].name == name {
			return z.list[i].score, true
		}
	}
	return 0, false
}

// reply is the score of a member, or nil.
func (z *sortedSet) reply(name string) any {
	if f, found := z.score(name); found {
		return Double(f)
	}
	return nil
}

// rank is the place of a member that is there.
func (z *sortedSet) rank(m member) int {
	return sort.Search(len(z.list), func(i int) bool { return z.list[i].compare(m) >= 0 })
}

func (z *sortedSet) set(name string, score float64) {
	z.delete(name)
	m := member{name, score + 0} // -0 becomes 0
	z.list = slices.Insert(z.list, z.rank(m), m)
}

func (z *sortedSet) delete(name string) bool {
	score, found := z.score(name)
	if found {
		i := z.rank(member{name, score})
		z.cut(i, i+1)
	}
	return found
}

// cut deletes the members from place i to before place j.
func (z *sortedSet) cut(i, j int) { z.list = slices.Delete(z.list, i, j) }

// scoreRange is what ZCOUNT and others have as min and max.
type scoreRange struct {
	min, max         float64
	minOpen, maxOpen bool
}

func parseScoreRange(minimum, maximum string) (r scoreRange, valid bool) {
	var also bool
	r.min, r.minOpen, valid = parseBound(minimum)
	r.max, r.maxOpen, also = parseBound(maximum)
	return r, valid && also
}

func parseBound(s string) (f float64, open, valid bool) {
	s, open = strings.CutPrefix(s, "(")
	f, valid, _ = strtod(s)
	return f, open, valid && !math.IsNaN(f) || s == ""
}

// within is which members have such scores: from place i to before place j.
func (z *sortedSet) within(r scoreRange) (i, j int) {
	i = sort.Search(len(z.list), func(i int) bool {
		f := z.list[i].score
		return f > r.min || f == r.min && !r.minOpen
	})
	j = sort.Search(len(z.list), func(i int) bool {
		f := z.list[i].score
		return f > r.max || f == r.max && r.maxOpen
	})
	return i, max(i, j)
}
