package simredis

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"
)

// program is a script that has been compiled.
type program struct {
	sha   string
	proto *lua.FunctionProto
	plain bool // it sets no global variable
}

// setsGlobals reports whether a function, or one within it, has an instruction that sets a global variable.
func setsGlobals(f *lua.FunctionProto) bool {
	return slices.ContainsFunc(f.Code, func(instruction uint32) bool { return int(instruction>>26) == lua.OP_SETGLOBAL }) ||
		slices.ContainsFunc(f.FunctionPrototypes, setsGlobals)
}

// What all servers of a process share, since simulations start thousands that
// run the same scripts.
//
//nolint:gochecknoglobals // caches
var (
	programs sync.Map // *program by source
	idle     struct {
		sync.Mutex
		vms []*vm
	}
)

func compile(source string) (*program, any) {
	if p, found := programs.Load(source); found {
		return p.(*program), nil
	}
	p := &program{sha: Sha(source)}
	chunk, err := parse.Parse(strings.NewReader(source), "user_script")
	if err != nil {
		return nil, errCompile(err)
	}
	asRedis(reflect.ValueOf(chunk))
	p.proto, err = lua.Compile(chunk, "user_script")
	if err != nil {
		return nil, errCompile(err)
	}
	p.proto.IsVarArg &^= lua.VarArgNeedsArg // no table of arguments for each call
	p.plain = !setsGlobals(p.proto)
	programs.Store(source, p)
	return p, nil
}

func errCompile(err error) Error {
	return Error(oneLine("ERR Error compiling script (new function): " + strings.TrimSpace(err.Error())))
}

// vm is an interpreter, with the functions that it has run.
type vm struct {
	l         *lua.LState
	s         *Server
	functions map[*program]*lua.LFunction
	globals   *lua.LTable
	fronts    []*lua.LTable // what scripts see in place of globals and libraries
	onError   *lua.LFunction
}

func (s *Server) interpreter() *vm {
	if s.vm != nil {
		return s.vm
	}
	idle.Lock()
	if n := len(idle.vms); n > 0 {
		s.vm, idle.vms = idle.vms[n-1], idle.vms[:n-1]
	}
	idle.Unlock()
	if s.vm == nil {
		s.vm = newVM()
	}
	s.vm.s = s
	return s.vm
}

func (s *Server) closeVM() {
	if s.vm == nil {
		return
	}
	s.vm.s = nil
	idle.Lock()
	idle.vms = append(idle.vms, s.vm)
	idle.Unlock()
	s.vm = nil
}

// run gives the reply of a script.
func (m *vm) run(p *program, keys, args []string) any {
	l := m.l
	f := m.functions[p]
	if f == nil {
		f = l.NewFunctionFromProto(p.proto)
		if p.plain { // it needs no protection of what it does not set, and so finds each global variable at once
			f.Env = m.globals
		}
		m.functions[p] = f
	}
	m.globals.RawSetString("KEYS", luaList(l, keys))
	m.globals.RawSetString("ARGV", luaList(l, args))
	top := l.GetTop()
	defer l.SetTop(top)
	err := l.CallByParam(lua.P{Fn: f, NRet: 1, Protect: true, Handler: m.onError})
	if err != nil {
		return scriptError(err, p.sha)
	}
	return fromLua(l.Get(-1), 0)
}

// scriptError is the reply of a script that failed.
func scriptError(err error, name string) Error {
	e, found := err.(*lua.ApiError) //nolint:errorlint // the interpreter doesn't wrap it
	if !found {
		return Error(oneLine("ERR " + err.Error()))
	}
	t, found := e.Object.(*lua.LTable)
	if !found {
		return Error(oneLine("ERR " + e.Object.String()))
	}
	message := "ERR unknown error"
	if s, found := t.RawGetString("err").(lua.LString); found {
		message = text(string(s), len(s))
	}
	if line := t.RawGetString("line"); line != lua.LNil {
		message += " script: " + name + ", on @user_script:" + line.String() + "."
	}
	return Error(oneLine(message))
}

// located is the handler of errors: it makes tables of them, with their line.
func located(l *lua.LState) int {
	t, found := l.Get(1).(*lua.LTable)
	if !found {
		t = l.NewTable()
		t.RawSetString("err", lua.LString("ERR "+luaString(l.Get(1))))
	}
	if line := currentLine(l); line > 0 {
		t.RawSetString("line", lua.LNumber(line))
	}
	l.Push(t)
	return 1
}

// currentLine is that of the innermost function that is written in Lua.
func currentLine(l *lua.LState) int {
	for i := 1; i < 4; i++ {
		where := l.Where(i)
		if where == "" {
			continue
		}
		if parts := strings.Split(where, ":"); len(parts) > 1 {
			if n, err := strconv.Atoi(parts[len(parts)-2]); err == nil {
				return n
			}
		}
	}
	return 0
}

func luaList(l *lua.LState, list []string) *lua.LTable {
	t := l.CreateTable(len(list), 0)
	for i, s := range list {
		t.RawSetInt(i+1, lua.LString(s))
	}
	return t
}

// toLua converts a reply for a script.
func toLua(l *lua.LState, reply any) lua.LValue {
	switch r := reply.(type) {
	case nil, NullArray:
		return lua.LFalse
	case int64:
		return lua.LNumber(r)
	case string:
		return lua.LString(r)
	case Double:
		return lua.LString(formatScore(float64(r)))
	case Status:
		return luaField(l, "ok", lua.LString(r))
	case Error:
		return luaField(l, "err", lua.LString(r))
	case Map:
		return toLua(l, []any(r))
	case Set:
		return toLua(l, []any(r))
	case []any:
		t := l.CreateTable(len(r), 0)
		for i, e := range r {
			t.RawSetInt(i+1, toLua(l, e))
		}
		return t
	}
	return lua.LNil
}

func luaField(l *lua.LState, name string, v lua.LValue) *lua.LTable {
	t := l.CreateTable(0, 1)
	t.RawSetString(name, v)
	return t
}

// maxDepth is how deep a table may be nested that a script returns.
const maxDepth = 1000

// fromLua converts what a script returns.
func fromLua(v lua.LValue, depth int) any {
	switch v := v.(type) {
	case lua.LNumber:
		return int64(v)
	case lua.LString:
		return string(v)
	case lua.LBool:
		if v {
			return int64(1)
		}
	case *lua.LTable:
		if depth > maxDepth {
			return Error("ERR reached lua stack limit")
		}
		return fromTable(v, depth)
	}
	return nil
}

func fromTable(t *lua.LTable, depth int) any {
	if s, found := luaText(t.RawGetString("err")); found {
		return Error(oneLine(text(strings.TrimRight(s, "\r\n"), len(s))))
	}
	if s, found := luaText(t.RawGetString("ok")); found {
		return Status(oneLine(text(s, len(s))))
	}
	out := make([]any, 0, t.Len())
	for i := 1; ; i++ {
		e := t.RawGetInt(i)
		if e == lua.LNil {
			return out
		}
		out = append(out, fromLua(e, depth+1))
	}
}
