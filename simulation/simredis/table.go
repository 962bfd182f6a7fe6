package simredis

import "slices"

// table is a map of strings that keeps the order in which fields were added, as
// small hashes of Redis do.
type table struct{ list []field }

type field struct{ name, value string }

func (t *table) find(name string) int {
	return slices.IndexFunc(t.list, func(f field) bool { return f.name == name })
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
	return true
}

// delete reports whether the field was there.
func (t *table) delete(name string) bool {
	i := t.find(name)
	if i >= 0 {
		t.list = slices.Delete(t.list, i, i+1)
	}
	return i >= 0
}
