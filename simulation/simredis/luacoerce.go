package simredis

import (
	lua "github.com/yuin/gopher-lua"
)

// coercions say of functions of the libraries what their arguments are: n is a
// number, and so a string may stand for it, t is a text, and so a number may,
// and _ is neither. The last letter is for all arguments that follow.
//
// Lua converts these; the interpreter does not, or writes numbers otherwise.
func coercions() map[string]map[string]string {
	return map[string]map[string]string{
		"string": {
			"byte": "tn", "char": "n", "find": "ttn_", "gsub": "tttn", "len": "t", "lower": "t",
			"match": "ttn", "rep": "tn", "reverse": "t", "sub": "tn", "upper": "t",
		},
		"table": {"concat": "_tn", "remove": "_n"},
		"_G":    {"tonumber": "_n", "unpack": "_n", "error": "_n", "select": "n_"},
	}
}

// coerceArguments puts that before the functions; those of math have numbers alone.
func (m *vm) coerceArguments() {
	for library, functions := range coercions() {
		t := m.globals
		if library != "_G" {
			t = m.library(library)
		}
		for name, kinds := range functions {
			m.coerce(t, name, kinds)
		}
	}
	numbers := m.library("math")
	numbers.ForEach(func(name, _ lua.LValue) { m.coerce(numbers, name.String(), "n") })
}

func (m *vm) coerce(t *lua.LTable, name, kinds string) {
	f, found := t.RawGetString(name).(*lua.LFunction)
	if !found {
		return
	}
	t.RawSetString(name, m.l.NewFunction(func(l *lua.LState) int {
		for i := range l.GetTop() {
			v := l.Get(i + 1)
			switch kinds[min(i, len(kinds)-1)] {
			case 'n':
				if n, valid := luaFloat(v); valid {
					l.Replace(i+1, lua.LNumber(n))
				}
			case 't':
				if text, isText := luaText(v); isText {
					l.Replace(i+1, lua.LString(text))
				}
			}
		}
		return f.GFunction(l)
	}))
}
