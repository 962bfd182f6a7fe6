package simredis

import (
	"fmt"
	"math"
	"strconv"
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
		return quote(checkText(l, arg))
	case 'f', 'e', 'E', 'g', 'G':
		return formatFloat(flags, verb, checkNumber(l, arg))
	}
	l.RaiseError("invalid option '%%%c' to 'format'", verb)
	return ""
}

func checkNumber(l *lua.LState, i int) float64 {
	switch v := l.Get(i).(type) {
	case lua.LNumber:
		return float64(v)
	case lua.LString:
		if f, valid := luaParse(string(v)); valid {
			return f
		}
	}
	l.TypeError(i, lua.LTNumber)
	return 0
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

func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(s) {
		switch c := s[i]; c {
		case '"', '\\', '\n':
			b.WriteByte('\\')
			b.WriteByte(c)
		case '\r':
			b.WriteString("\\r")
		case 0:
			b.WriteString("\\" + strconv.Itoa(0) + "00")
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}
