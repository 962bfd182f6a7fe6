package simredis

import "github.com/yuin/gopher-lua/ast"

// Names of functions that scripts can't use: they aren't words.
const (
	concatOperand = "(concatenated)"
	forNumber     = "(for)"
)

// libraries are the tables that scripts can't change.
var libraries = []string{"redis", "string", "table", "math", "coroutine"} //nolint:gochecknoglobals // a constant

// asRedis changes two things in a script. The interpreter writes a number that is
// concatenated otherwise than Lua, which has %.14g: 1/3 with 14 digits, and
// 10^15 as 1e+15. And its for has no strings as limits.
func asRedis(chunk []ast.Stmt) []ast.Stmt {
	rewriter{}.block(chunk)
	return chunk
}

// rewriter goes over a script.
type rewriter struct{}

func (r rewriter) block(list []ast.Stmt) {
	for _, s := range list {
		r.statement(s)
	}
}

func (r rewriter) statement(s ast.Stmt) {
	switch s := s.(type) {
	case *ast.AssignStmt:
		for _, e := range s.Lhs { // what is assigned to stays
			if a, isField := e.(*ast.AttrGetExpr); isField {
				a.Object, a.Key = r.expr(a.Object), r.expr(a.Key)
			}
		}
		r.list(s.Rhs)
	case *ast.LocalAssignStmt:
		r.list(s.Exprs)
	case *ast.FuncCallStmt:
		s.Expr = r.expr(s.Expr)
	case *ast.DoBlockStmt:
		r.block(s.Stmts)
	case *ast.WhileStmt:
		s.Condition = r.expr(s.Condition)
		r.block(s.Stmts)
	case *ast.RepeatStmt:
		r.block(s.Stmts)
		s.Condition = r.expr(s.Condition)
	case *ast.IfStmt:
		s.Condition = r.expr(s.Condition)
		r.block(s.Then)
		r.block(s.Else)
	case *ast.NumberForStmt:
		s.Init, s.Limit, s.Step = r.limit(r.expr(s.Init)), r.limit(r.expr(s.Limit)), r.limit(r.expr(s.Step))
		r.block(s.Stmts)
	case *ast.GenericForStmt:
		r.list(s.Exprs)
		r.block(s.Stmts)
	case *ast.FuncDefStmt:
		r.function(s.Func)
	case *ast.ReturnStmt:
		r.list(s.Exprs)
	}
}

func (r rewriter) function(f *ast.FunctionExpr) {
	r.block(f.Stmts)
}

func (r rewriter) list(list []ast.Expr) {
	for i, e := range list {
		list[i] = r.expr(e)
	}
}

func (r rewriter) expr(e ast.Expr) ast.Expr {
	switch e := e.(type) {
	case *ast.AttrGetExpr:
		e.Object, e.Key = r.expr(e.Object), r.expr(e.Key)
	case *ast.TableExpr:
		for _, f := range e.Fields {
			f.Key, f.Value = r.expr(f.Key), r.expr(f.Value)
		}
	case *ast.FuncCallExpr:
		e.Func, e.Receiver = r.expr(e.Func), r.expr(e.Receiver)
		r.list(e.Args)
	case *ast.LogicalOpExpr:
		e.Lhs, e.Rhs = r.expr(e.Lhs), r.expr(e.Rhs)
	case *ast.RelationalOpExpr:
		e.Lhs, e.Rhs = r.expr(e.Lhs), r.expr(e.Rhs)
	case *ast.ArithmeticOpExpr:
		e.Lhs, e.Rhs = r.expr(e.Lhs), r.expr(e.Rhs)
	case *ast.UnaryMinusOpExpr:
		e.Expr = r.expr(e.Expr)
	case *ast.UnaryNotOpExpr:
		e.Expr = r.expr(e.Expr)
	case *ast.UnaryLenOpExpr:
		e.Expr = r.expr(e.Expr)
	case *ast.FunctionExpr:
		r.function(e)
	case *ast.StringConcatOpExpr:
		e.Lhs, e.Rhs = r.operand(r.expr(e.Lhs)), r.operand(r.expr(e.Rhs))
	}
	return e
}

// operand calls concatOperand, unless e is a string anyway.
func (r rewriter) operand(e ast.Expr) ast.Expr {
	switch e := e.(type) {
	case *ast.StringExpr, *ast.StringConcatOpExpr:
		return e
	}
	return through(concatOperand, e)
}

// limit calls forNumber, unless e is a number anyway.
func (r rewriter) limit(e ast.Expr) ast.Expr {
	if e == nil {
		return e
	}
	switch e := e.(type) {
	case *ast.NumberExpr, *ast.UnaryLenOpExpr:
		return e
	}
	return through(forNumber, e)
}

// through calls a function with the value of an expression.
func through(name string, e ast.Expr) ast.Expr {
	return placed(&ast.FuncCallExpr{Func: placed(&ast.IdentExpr{Value: name}, e), Args: []ast.Expr{e}, AdjustRet: true}, e)
}

// placed gives a new expression the line of an old one.
func placed(e, old ast.Expr) ast.Expr {
	e.SetLine(old.Line())
	e.SetLastLine(old.LastLine())
	return e
}
