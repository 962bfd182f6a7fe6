package simredis

import (
	"fmt"
	"regexp"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// verbs are those of C: flags, width, precision and a letter.
var verbs = regexp.MustCompile(`(?s)%[-+ #0]*\d*(?:\.\d*)?.?`)

// stringFormat is string.format of Lua 5.1, without %c and %q. The flags of its verbs mean the same in Go.
func stringFormat(l *lua.LState) int {
	next := 1
	l.Push(lua.LString(verbs.ReplaceAllStringFunc(checkText(l, 1), func(verb string) string {
		if verb == "%%" {
			return "%"
		}
		next++
		flags, letter := verb[:len(verb)-1], verb[len(verb)-1:]
		switch letter {
		case "d", "i":
			return fmt.Sprintf(flags+"d", int64(checkNumber(l, next)))
		case "u", "o", "x", "X":
			return fmt.Sprintf(flags+strings.Replace(letter, "u", "d", 1), uint64(int64(checkNumber(l, next))))
		case "s":
			return fmt.Sprintf(verb, checkText(l, next))
		case "g", "G":
			if !strings.Contains(flags, ".") {
				flags += ".6"
			}
			fallthrough
		case "f", "e", "E":
			return fmt.Sprintf(flags+letter, checkNumber(l, next))
		}
		l.RaiseError("invalid option '%s' to 'format'", verb)
		return ""
	})))
	return 1
}

func checkNumber(l *lua.LState, i int) float64 {
	f, valid := luaFloat(l.Get(i))
	if !valid {
		l.TypeError(i, lua.LTNumber)
	}
	return f
}

// checkText is an argument that is a string or a number.
func checkText(l *lua.LState, i int) string {
	text, found := luaText(l.Get(i))
	if !found {
		l.TypeError(i, lua.LTString)
	}
	return text
}
