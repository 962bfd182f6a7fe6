package simredis

import "slices"

// table is a map of strings that keeps the order in which fields were added, as
// small hashes of Redis do.
type table struct {
	list  []field
	index map[string]int // once there are many
}

type field struct{ name, value string }

const indexFrom = 16

func (t *table) find(name string) int {
	if t.index != nil {
		if i, found := t.index[name]; found {
			return i
		}
		return -1
	}
	for i := range t.list {
		if t.list[i].name == name {
			return i
		}
	}
	return -1
}

// get returns the value of a field, or nil.
func (t *table) get(name string) any {
	if i := t.find(name); i >= 0 {
		return t.list[i].value
	}
	return nil
}

func (t *table) all(names, values bool) []any {
	out := make([]any, 0, 2*len(t.list))
	for _, f := range t.list {
		if names {
			out = append(out, f.name)
		}
		if values {
			out = append(out, f.value)
		}
	}
	return out
}

// set reports whether the field is new.
func (t *table) set(name, value string) bool {
	if i := t.find(name); i >= 0 {
		t.list[i].value = value
		return false
	}
	t.list = append(t.list, field{name, value})
	switch {
	case t.index != nil:
		t.index[name] = len(t.list) - 1
	case len(t.list) >= indexFrom:
		t.reindex()
	}
	return true
}

// delete reports whether the field was there.
func (t *table) delete(name string) bool {
	i := t.find(name)
	if i < 0 {
		return false
	}
	t.list = slices.Delete(t.list, i, i+1)
	if t.index != nil {
		t.reindex()
	}
	return true
}

func (t *table) reindex() {
	t.index = make(map[string]int, 2*len(t.list))
	for i := range t.list {
		t.index[t.list[i].name] = i
	}
}

func (t *table) clone() table {
	c := table{list: slices.Clone(t.list)}
	if t.index != nil {
		c.reindex()
	}
	return c
}
