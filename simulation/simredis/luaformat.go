package simredis

import (
	"fmt"
	"math"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// stringFormat is string.format of Lua 5.1, which has the verbs of C.
func stringFormat(l *lua.LState) int {
	format := checkText(l, 1)
	var b strings.Builder
	next := 1
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			b.WriteByte(format[i])
			continue
		}
		i++
		if i < len(format) && format[i] == '%' {
			b.WriteByte('%')
			continue
		}
		from := i
		for i < len(format) && strings.IndexByte("-+ #0123456789.", format[i]) >= 0 {
			i++
		}
		if i == len(format) {
			l.RaiseError("invalid option '%%' to 'format'")
		}
		next++
		b.WriteString(formatOne(l, format[from:i], format[i], next))
	}
	l.Push(lua.LString(b.String()))
	return 1
}

// formatOne formats one argument; its flags mean the same in Go.
func formatOne(l *lua.LState, flags string, verb byte, arg int) string {
	switch verb {
	case 'd', 'i':
		return fmt.Sprintf("%"+flags+"d", int64(checkNumber(l, arg)))
	case 'u', 'o', 'x', 'X':
		if verb == 'u' {
			verb = 'd'
		}
		return fmt.Sprintf("%"+flags+string(verb), uint64(int64(checkNumber(l, arg))))
	case 'c':
		return fmt.Sprintf("%"+flags+"s", string([]byte{byte(int(checkNumber(l, arg)))}))
	case 's':
		return fmt.Sprintf("%"+flags+"s", checkText(l, arg))
	case 'q':
		return `"` + strings.NewReplacer(`"`, `\"`, `\`, `\\`, "\n", "\\\n", "\r", `\r`, "\x00", `\000`).Replace(checkText(l, arg)) + `"`
	case 'f', 'e', 'E', 'g', 'G':
		return formatFloat(flags, verb, checkNumber(l, arg))
	}
	l.RaiseError("invalid option '%%%c' to 'format'", verb)
	return ""
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

func formatFloat(flags string, verb byte, f float64) string {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		text := strings.TrimLeft(strings.SplitN(flags, ".", 2)[0], "0")
		return fmt.Sprintf("%"+text+"s", formatG(f, 6))
	}
	if (verb == 'g' || verb == 'G') && !strings.Contains(flags, ".") {
		flags += ".6"
	}
	return fmt.Sprintf("%"+flags+string(verb), f)
}
