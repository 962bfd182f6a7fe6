// Package require has the assertions of the tests of this module: the functions of testify's
// package require that they call. What a test of this module imports becomes a
// requirement of each service that imports the module, because `go mod tidy` follows
// the tests of the packages that a service imports; so they import no testify.
package require

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// Test is what the assertions need of a *testing.T, or another test.
type Test interface {
	Helper()
	Fatal(args ...any)
}

// fail ends the test with what is wrong and the message of the caller, whose first part is
// a format if it is a string.
func fail(t Test, message []any, wrong string) {
	t.Helper()
	if len(message) > 0 {
		if format, ok := message[0].(string); ok {
			wrong += ": " + fmt.Sprintf(format, message[1:]...)
		} else {
			wrong += ": " + fmt.Sprint(message...)
		}
	}
	t.Fatal(wrong)
}

func isZero(v any) bool { return v == nil || reflect.ValueOf(v).IsZero() }

// NoError ends the test unless err is nil.
func NoError(t Test, err error, message ...any) {
	t.Helper()
	if err != nil {
		fail(t, message, fmt.Sprintf("got error %q; want none", err))
	}
}

// Error ends the test if err is nil.
func Error(t Test, err error, message ...any) {
	t.Helper()
	if err == nil {
		fail(t, message, "got no error; want one")
	}
}

// ErrorIs ends the test unless err is target, as errors.Is says.
func ErrorIs(t Test, err, target error, message ...any) {
	t.Helper()
	if !errors.Is(err, target) {
		fail(t, message, fmt.Sprintf("got error %v; want %v", err, target))
	}
}

// NotErrorIs ends the test if err is target, as errors.Is says.
func NotErrorIs(t Test, err, target error, message ...any) {
	t.Helper()
	if errors.Is(err, target) {
		fail(t, message, fmt.Sprintf("got error %v; want another than %v", err, target))
	}
}

// ErrorContains ends the test unless err is not nil and its text contains part.
func ErrorContains(t Test, err error, part string, message ...any) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), part) {
		fail(t, message, fmt.Sprintf("got error %v; want one with %q", err, part))
	}
}

// Equal ends the test unless want and got are deeply equal, and of the same type.
func Equal(t Test, want, got any, message ...any) {
	t.Helper()
	if !reflect.DeepEqual(want, got) {
		fail(t, message, fmt.Sprintf("got %#v; want %#v", got, want))
	}
}

// NotEqual ends the test if unwanted and got are deeply equal.
func NotEqual(t Test, unwanted, got any, message ...any) {
	t.Helper()
	if reflect.DeepEqual(unwanted, got) {
		fail(t, message, fmt.Sprintf("got %#v; want anything else", got))
	}
}

// True ends the test unless it is.
func True(t Test, is bool, message ...any) {
	t.Helper()
	if !is {
		fail(t, message, "got false; want true")
	}
}

// False ends the test if it is.
func False(t Test, is bool, message ...any) {
	t.Helper()
	if is {
		fail(t, message, "got true; want false")
	}
}

// Zero ends the test unless got is the zero value of its type.
func Zero(t Test, got any, message ...any) {
	t.Helper()
	if !isZero(got) {
		fail(t, message, fmt.Sprintf("got %#v; want the zero value", got))
	}
}

// NotNil ends the test if got is nil, or a pointer that is.
func NotNil(t Test, got any, message ...any) {
	t.Helper()
	if isZero(got) {
		fail(t, message, "got nil")
	}
}

// Empty ends the test unless got, a string, slice, map or channel, has no elements.
func Empty(t Test, got any, message ...any) {
	t.Helper()
	Len(t, got, 0, message...)
}

// NotEmpty ends the test if got, a string, slice, map or channel, has no elements.
func NotEmpty(t Test, got any, message ...any) {
	t.Helper()
	if got == nil || reflect.ValueOf(got).Len() == 0 {
		fail(t, message, fmt.Sprintf("got %#v; want an element", got))
	}
}

// Len ends the test unless got, a string, slice, map or channel, has that many elements.
func Len(t Test, got any, want int, message ...any) {
	t.Helper()
	n := 0
	if got != nil {
		n = reflect.ValueOf(got).Len()
	}
	if n != want {
		fail(t, message, fmt.Sprintf("got %d elements in %#v; want %d", n, got, want))
	}
}

// Contains ends the test unless all, a string or a slice, contains part.
func Contains(t Test, all, part any, message ...any) {
	t.Helper()
	if !contains(all, part) {
		fail(t, message, fmt.Sprintf("got %#v; want %#v in it", all, part))
	}
}

// NotContains ends the test if all, a string or a slice, contains part.
func NotContains(t Test, all, part any, message ...any) {
	t.Helper()
	if contains(all, part) {
		fail(t, message, fmt.Sprintf("got %#v; want no %#v in it", all, part))
	}
}

func contains(all, part any) bool {
	if s, ok := all.(string); ok {
		return strings.Contains(s, fmt.Sprint(part))
	}
	list := reflect.ValueOf(all)
	for i := range list.Len() {
		if reflect.DeepEqual(list.Index(i).Interface(), part) {
			return true
		}
	}
	return false
}

// Less ends the test unless a is less than b.
func Less[T cmp.Ordered](t Test, a, b T, message ...any) {
	t.Helper()
	if a >= b {
		fail(t, message, fmt.Sprintf("got %v; want less than %v", a, b))
	}
}

// LessOrEqual ends the test unless a is at most b.
func LessOrEqual[T cmp.Ordered](t Test, a, b T, message ...any) {
	t.Helper()
	if a > b {
		fail(t, message, fmt.Sprintf("got %v; want at most %v", a, b))
	}
}

// Greater ends the test unless a is greater than b.
func Greater[T cmp.Ordered](t Test, a, b T, message ...any) {
	t.Helper()
	if a <= b {
		fail(t, message, fmt.Sprintf("got %v; want more than %v", a, b))
	}
}

// Positive ends the test unless a is greater than zero.
func Positive[T cmp.Ordered](t Test, a T, message ...any) {
	t.Helper()
	var zero T
	Greater(t, a, zero, message...)
}
