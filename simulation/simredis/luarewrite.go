package simredis

import (
	"reflect"

	"github.com/yuin/gopher-lua/ast"
)

// Names of functions that scripts can't use: they aren't words.
const (
	concatOperand = "(concatenated)"
	forNumber     = "(for)"
)

// libraries are the tables that scripts can't change.
var libraries = []string{"redis", "string", "table", "math", "coroutine"} //nolint:gochecknoglobals // a constant

// asRedis changes two things in what is reachable from v, a part of a script. The
// interpreter writes a number that is concatenated otherwise than Lua, which has %.14g:
// 1/3 with 14 digits, and 10^15 as 1e+15. And its for has no strings as limits.
func asRedis(v reflect.Value) {
	switch v.Kind() {
	case reflect.Interface, reflect.Pointer:
		if v.IsNil() {
			return
		}
		asRedis(v.Elem())
		switch e := v.Interface().(type) {
		case *ast.StringConcatOpExpr:
			e.Lhs, e.Rhs = through(concatOperand, e.Lhs), through(concatOperand, e.Rhs)
		case *ast.NumberForStmt:
			e.Init, e.Limit, e.Step = through(forNumber, e.Init), through(forNumber, e.Limit), through(forNumber, e.Step)
		}
	case reflect.Slice:
		for i := range v.Len() {
			asRedis(v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			asRedis(v.Field(i))
		}
	default: // names, and the numbers of lines
	}
}

// through calls a function with the value of an expression, unless that is a string or a number anyway.
func through(name string, e ast.Expr) ast.Expr {
	switch e.(type) {
	case nil, *ast.StringExpr, *ast.StringConcatOpExpr:
		if name == concatOperand || e == nil {
			return e
		}
	case *ast.NumberExpr, *ast.UnaryLenOpExpr:
		if name == forNumber {
			return e
		}
	}
	return placed(&ast.FuncCallExpr{Func: placed(&ast.IdentExpr{Value: name}, e), Args: []ast.Expr{e}, AdjustRet: true}, e)
}

// placed gives a new expression the line of an old one.
func placed(e, old ast.Expr) ast.Expr {
	e.SetLine(old.Line())
	e.SetLastLine(old.LastLine())
	return e
}
