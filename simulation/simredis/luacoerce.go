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
		"math": {
			"abs": "n", "acos": "n", "asin": "n", "atan": "n", "atan2": "n", "ceil": "n", "cos": "n", "cosh": "n", "deg": "n",
			"exp": "n", "floor": "n", "fmod": "n", "frexp": "n", "ldexp": "n", "log": "n", "log10": "n", "max": "n", "min": "n",
			"mod": "n", "modf": "n", "pow": "n", "rad": "n", "random": "n", "randomseed": "n", "sin": "n", "sinh": "n",
			"sqrt": "n", "tan": "n", "tanh": "n",
		},
		"table": {"concat": "_tn", "remove": "_n"},
		"_G":    {"tonumber": "_n", "unpack": "_n", "error": "_n", "select": "n_"},
	}
}

// coerceArguments puts that before the functions.
func (m *vm) coerceArguments() {
	for library, functions := range coercions() {
		t := m.globals
		if library != "_G" {
			t = m.library(library)
		}
		for name, kinds := range functions {
			f, found := t.RawGetString(name).(*lua.LFunction)
			if !found {
				continue
			}
			t.RawSetString(name, m.l.NewFunction(coerce(f.GFunction, kinds)))
		}
	}
}

func coerce(f lua.LGFunction, kinds string) lua.LGFunction {
	return func(l *lua.LState) int {
		for i := range l.GetTop() {
			switch v := l.Get(i + 1).(type) {
			case lua.LString:
				if kinds[min(i, len(kinds)-1)] != 'n' {
					continue
				}
				if f, valid := luaParse(string(v)); valid {
					l.Replace(i+1, lua.LNumber(f))
				}
			case lua.LNumber:
				if kinds[min(i, len(kinds)-1)] == 't' {
					l.Replace(i+1, lua.LString(luaNumber(v)))
				}
			}
		}
		return f(l)
	}
}
