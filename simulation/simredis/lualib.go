package simredis

import (
	"math"
	"slices"
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// newVM makes an interpreter with the libraries that scripts have in Redis.
func newVM() *vm {
	l := lua.NewState(lua.Options{SkipOpenLibs: true, RegistrySize: 1024, RegistryMaxSize: 1 << 20, RegistryGrowStep: 1024, CallStackSize: 200})
	for _, lib := range []struct {
		name string
		open lua.LGFunction
	}{
		{lua.BaseLibName, lua.OpenBase},
		{lua.TabLibName, lua.OpenTable},
		{lua.StringLibName, lua.OpenString},
		{lua.MathLibName, lua.OpenMath},
		{lua.CoroutineLibName, lua.OpenCoroutine},
	} {
		l.Push(l.NewFunction(lib.open))
		l.Push(lua.LString(lib.name))
		l.Call(1, 0)
	}
	m := &vm{l: l, functions: map[*program]*lua.LFunction{}, onError: l.NewFunction(located)}
	m.globals = l.Get(lua.GlobalsIndex).(*lua.LTable)
	for _, name := range []string{"print", "dofile", "load", "loadfile", "module", "require", "newproxy", "_printregs", "getfenv", "setfenv"} {
		m.globals.RawSetString(name, lua.LNil)
	}
	m.setAll(m.globals, map[string]lua.LGFunction{
		"error": luaError, "pcall": protectedCall, "tostring": toString, "tonumber": toNumber, concatOperand: operand, forNumber: limitOf,
		"loadstring": loadString, "getmetatable": m.getMetatable,
		"rawset":       m.changes(func(l *lua.LState, t *lua.LTable) { l.RawSet(t, l.CheckAny(2), l.CheckAny(3)) }),
		"setmetatable": m.changes(setMetatable),
	})
	m.setAll(m.library("table"), map[string]lua.LGFunction{"concat": tableConcat})
	m.setAll(m.library("string"), map[string]lua.LGFunction{"format": stringFormat, "match": nilForNone(m.library("string").RawGetString("match").(*lua.LFunction).GFunction)})
	m.setAll(m.library("math"), map[string]lua.LGFunction{"random": m.random, "randomseed": m.randomSeed})
	m.library("math").RawSetString("huge", lua.LNumber(math.Inf(1)))
	m.coerceArguments()
	m.openRedis()
	m.protect()
	return m
}

// nilForNone returns nil where a function returns nothing: the interpreter's string.match does where nothing matches.
func nilForNone(f lua.LGFunction) lua.LGFunction {
	return func(l *lua.LState) int {
		if n := f(l); n > 0 {
			return n
		}
		l.Push(lua.LNil)
		return 1
	}
}

func (m *vm) library(name string) *lua.LTable { return m.globals.RawGetString(name).(*lua.LTable) }

func (m *vm) setAll(t *lua.LTable, all map[string]lua.LGFunction) {
	for name, f := range all {
		t.RawSetString(name, m.l.NewFunction(f))
	}
}

// protect puts empty tables before those of the globals and the libraries, so
// that a script can't change what the next one finds, and notices globals that
// there aren't.
func (m *vm) protect() {
	l := m.l
	for _, name := range libraries {
		m.globals.RawSetString(name, m.front(m.library(name)))
	}
	missing := l.NewTable()
	missing.RawSetString("__index", l.NewFunction(func(l *lua.LState) int {
		l.RaiseError("Script attempted to access nonexistent global variable '%s'", l.ToString(2))
		return 0
	}))
	m.globals.Metatable = missing
	front := m.front(m.globals)
	m.globals.RawSetString("_G", front)
	l.Env = front
	l.G.Global = front
}

// front is an empty table that reads from another and can't be written.
func (m *vm) front(t *lua.LTable) *lua.LTable {
	f, meta := m.l.NewTable(), m.l.NewTable()
	meta.RawSetString("__index", t)
	meta.RawSetString("__newindex", m.l.NewFunction(func(l *lua.LState) int {
		l.RaiseError("Attempt to modify a readonly table")
		return 0
	}))
	f.Metatable = meta
	m.fronts = append(m.fronts, f)
	return f
}

func (m *vm) isFront(v lua.LValue) bool {
	t, isTable := v.(*lua.LTable)
	return isTable && slices.Contains(m.fronts, t)
}

// changes is a function that changes the table that is its first argument, and returns it.
func (m *vm) changes(change func(l *lua.LState, t *lua.LTable)) lua.LGFunction {
	return func(l *lua.LState) int {
		t := l.CheckTable(1)
		if m.isFront(t) {
			raise(l, "Attempt to modify a readonly table")
		}
		change(l, t)
		l.SetTop(1)
		return 1
	}
}

func setMetatable(l *lua.LState, t *lua.LTable) {
	meta := l.Get(2)
	if meta != lua.LNil && meta.Type() != lua.LTTable {
		l.TypeError(2, lua.LTTable)
	}
	l.SetMetatable(t, meta)
}

// getMetatable shows those of tables only: all strings share theirs.
func (m *vm) getMetatable(l *lua.LState) int {
	v := l.CheckAny(1)
	if v.Type() != lua.LTTable || m.isFront(v) {
		l.Push(lua.LNil)
	} else {
		l.Push(l.GetMetatable(v))
	}
	return 1
}

func loadString(l *lua.LState) int {
	p, failed := compile(l.CheckString(1))
	if failed != nil {
		l.Push(lua.LNil)
		l.Push(lua.LString(failed.(Error)))
		return 2
	}
	l.Push(l.NewFunctionFromProto(p.proto))
	return 1
}

func (m *vm) openRedis() {
	l := m.l
	t := l.NewTable()
	m.setAll(t, map[string]lua.LGFunction{
		"call": m.redisCall(true), "pcall": m.redisCall(false), "sha1hex": sha1Hex,
		"error_reply": replyOf("err", withCode), "status_reply": replyOf("ok", func(text string) string { return text }),
		"log": nothing, "set_repl": nothing,
		"replicate_commands": func(l *lua.LState) int { l.Push(lua.LTrue); return 1 },
	})
	for name, n := range map[string]int{
		"REPL_NONE": 0, "REPL_AOF": 1, "REPL_SLAVE": 2, "REPL_REPLICA": 2, "REPL_ALL": 3,
		"LOG_DEBUG": 0, "LOG_VERBOSE": 1, "LOG_NOTICE": 2, "LOG_WARNING": 3, "REDIS_VERSION_NUM": 0x07000f,
	} {
		t.RawSetString(name, lua.LNumber(n))
	}
	t.RawSetString("REDIS_VERSION", lua.LString(Version))
	m.globals.RawSetString("redis", t)
}

func nothing(*lua.LState) int { return 0 }

func (m *vm) redisCall(raise bool) lua.LGFunction {
	return func(l *lua.LState) int {
		r := m.callFrom(l)
		if e, failed := r.(Error); failed && raise {
			l.Error(luaField(l, "err", lua.LString(e)), 1)
		}
		l.Push(toLua(l, r))
		return 1
	}
}

func (m *vm) callFrom(l *lua.LState) any {
	n := l.GetTop()
	if n == 0 {
		return Error("ERR Please specify at least one argument for this redis lib call")
	}
	args := make([]string, n)
	for i := range args {
		switch v := l.Get(i + 1).(type) {
		case lua.LString:
			args[i] = string(v)
		case lua.LNumber:
			args[i] = formatScore(float64(v))
		default:
			return Error("ERR Lua redis lib command arguments must be strings or integers")
		}
	}
	return m.s.call(args)
}

// replyOf is redis.error_reply or redis.status_reply.
func replyOf(name string, change func(text string) string) lua.LGFunction {
	return func(l *lua.LState) int {
		text, isString := l.Get(1).(lua.LString)
		if l.GetTop() != 1 || !isString {
			l.Push(luaField(l, "err", lua.LString("ERR wrong number or type of arguments")))
		} else {
			l.Push(luaField(l, name, lua.LString(change(string(text)))))
		}
		return 1
	}
}

func withCode(text string) string {
	text = strings.TrimPrefix(strings.TrimRight(text, "\r\n"), "-")
	if !strings.Contains(text, " ") {
		text = "ERR " + text
	}
	return text
}

func sha1Hex(l *lua.LState) int {
	if l.GetTop() != 1 {
		raise(l, "wrong number of arguments")
	}
	l.Push(lua.LString(Sha(luaString(l.Get(1)))))
	return 1
}

// raise fails as Redis' own functions do: without the place in the text.
func raise(l *lua.LState, text string) { l.Error(luaField(l, "err", lua.LString("ERR "+text)), 1) }

// luaError is error, which says where it was called unless that is in no script.
func luaError(l *lua.LState) int {
	v, level := l.Get(1), l.OptInt(2, 1)
	if text, isText := luaText(v); isText && level > 0 {
		if where := l.Where(level); !strings.HasPrefix(where, "[G]") && where != "" {
			text = where + " " + text
		}
		v = lua.LString(text)
	}
	l.Error(v, 0)
	return 0
}

// protectedCall is pcall, which in Redis makes a string of an error that is a table.
func protectedCall(l *lua.LState) int {
	l.CheckAny(1)
	if err := l.PCall(l.GetTop()-1, lua.MultRet, nil); err != nil {
		v := lua.LValue(lua.LString(err.Error()))
		if e, found := err.(*lua.ApiError); found { //nolint:errorlint // the interpreter doesn't wrap it
			v = e.Object
		}
		if t, isTable := v.(*lua.LTable); isTable {
			if text := t.RawGetString("err"); text != lua.LNil {
				v = text
			}
		}
		l.Push(lua.LFalse)
		l.Push(v)
		return 2
	}
	l.Insert(lua.LTrue, 1)
	return l.GetTop()
}

// luaText is a string, or a number as one.
func luaText(v lua.LValue) (text string, found bool) {
	switch v := v.(type) {
	case lua.LString:
		return string(v), true
	case lua.LNumber:
		return luaNumber(v), true
	}
	return "", false
}

// luaString is tostring of what is not a table or function.
func luaString(v lua.LValue) string {
	if n, isNumber := v.(lua.LNumber); isNumber {
		return luaNumber(n)
	}
	return v.String()
}

// luaNumber is how Lua 5.1 writes a number: %.14g.
func luaNumber(n lua.LNumber) string { return formatG(float64(n), 14) }

func toString(l *lua.LState) int {
	if n, isNumber := l.CheckAny(1).(lua.LNumber); isNumber {
		l.Push(lua.LString(luaNumber(n)))
	} else {
		l.Push(l.ToStringMeta(l.Get(1)))
	}
	return 1
}

func toNumber(l *lua.LState) int {
	base, v := l.OptInt(2, 10), l.CheckAny(1)
	n, valid := luaFloat(v)
	if base != 10 {
		if base < 2 || base > 36 {
			l.ArgError(2, "base out of range")
		}
		text := strings.ToLower(strings.TrimSpace(luaString(v)))
		if base == 16 {
			text = strings.TrimPrefix(text, "0x")
		}
		whole, err := strconv.ParseInt(text, base, 64)
		n, valid = float64(whole), err == nil
	}
	if valid {
		l.Push(lua.LNumber(n))
	} else {
		l.Push(lua.LNil)
	}
	return 1
}

// luaFloat is a number, or a string that is one to Lua: with spaces around it, and up to a
// zero byte.
func luaFloat(v lua.LValue) (float64, bool) {
	if n, isNumber := v.(lua.LNumber); isNumber {
		return float64(n), true
	}
	text, isString := v.(lua.LString)
	if !isString {
		return 0, false
	}
	s, _, _ := strings.Cut(string(text), "\x00")
	f, valid, _ := strtod(strings.TrimRight(s, spaces))
	return f, valid
}

// operand makes a number that is concatenated a string as Lua does.
func operand(l *lua.LState) int {
	if text, isText := luaText(l.Get(1)); isText {
		l.Push(lua.LString(text))
	} else {
		l.Push(l.Get(1))
	}
	return 1
}

// limitOf makes a string that is a limit of a for a number, as Lua does.
func limitOf(l *lua.LState) int {
	if f, valid := luaFloat(l.Get(1)); valid {
		l.Push(lua.LNumber(f))
	} else {
		l.Push(l.Get(1))
	}
	return 1
}

func tableConcat(l *lua.LState) int {
	t := l.CheckTable(1)
	separator, isText := luaText(l.Get(2))
	if !isText && l.Get(2) != lua.LNil {
		l.TypeError(2, lua.LTString)
	}
	i, j := l.OptInt(3, 1), l.OptInt(4, t.Len())
	var b strings.Builder
	for k := i; k <= j; k++ {
		v := t.RawGetInt(k)
		text, isText := luaText(v)
		if !isText {
			l.RaiseError("invalid value (%s) at index %d in table for 'concat'", v.Type().String(), k)
		}
		b.WriteString(text)
		if k < j {
			b.WriteString(separator)
		}
	}
	l.Push(lua.LString(b.String()))
	return 1
}

// random is the generator that Redis gives to scripts.
func (m *vm) random(l *lua.LState) int {
	m.s.random = (m.s.random*0x5DEECE66D + 0xB) & (1<<48 - 1)
	f := float64(m.s.random>>17%math.MaxInt32) / math.MaxInt32
	from, to := 1, l.OptInt(1, 0)
	switch l.GetTop() {
	case 0:
		l.Push(lua.LNumber(f))
		return 1
	case 1:
	case 2:
		from, to = to, l.CheckInt(2)
	default:
		l.RaiseError("wrong number of arguments")
	}
	if from > to {
		l.ArgError(l.GetTop(), "interval is empty")
	}
	l.Push(lua.LNumber(math.Floor(f*float64(to-from+1)) + float64(from)))
	return 1
}

func (m *vm) randomSeed(l *lua.LState) int {
	m.s.random = uint64(uint32(l.CheckInt(1)))<<16 | 0x330E
	return 0
}
