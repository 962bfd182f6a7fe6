// Package require has the assertions of the tests of this module: the functions of testify's
// package require that they call. What a test of this module imports becomes a
// requirement of each service that imports the module, because `go mod tidy` follows
// the tests of the packages that a service imports; so they import no testify.
package require

import (
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

// check ends the test unless ok, with what is wrong and the message of the caller, whose first part is
// a format.
func check(t Test, ok bool, message []any, wrong string, args ...any) {
	t.Helper()
	if ok {
		return
	}
	wrong = fmt.Sprintf(wrong, args...)
	if len(message) > 0 {
		wrong += ": " + fmt.Sprintf(fmt.Sprint(message[0]), message[1:]...)
	}
	t.Fatal(wrong)
}

// NoError ends the test unless err is nil.
func NoError(t Test, err error, message ...any) {
	t.Helper()
	check(t, err == nil, message, "got error %v; want none", err)
}

// Error ends the test if err is nil.
func Error(t Test, err error, message ...any) {
	t.Helper()
	check(t, err != nil, message, "got no error; want one")
}

// ErrorIs ends the test unless err is target, as errors.Is says.
func ErrorIs(t Test, err, target error, message ...any) {
	t.Helper()
	check(t, errors.Is(err, target), message, "got error %v; want %v", err, target)
}

// ErrorContains ends the test unless err is not nil and its text contains part.
func ErrorContains(t Test, err error, part string, message ...any) {
	t.Helper()
	check(t, err != nil && strings.Contains(err.Error(), part), message, "got error %v; want one with %q", err, part)
}

// Equal ends the test unless want and got are deeply equal, and of the same type.
func Equal(t Test, want, got any, message ...any) {
	t.Helper()
	check(t, reflect.DeepEqual(want, got), message, "got %#v; want %#v", got, want)
}

// True ends the test unless it is.
func True(t Test, is bool, message ...any) {
	t.Helper()
	check(t, is, message, "got false; want true")
}

// False ends the test if it is.
func False(t Test, is bool, message ...any) {
	t.Helper()
	check(t, !is, message, "got true; want false")
}

// Zero ends the test unless got is the zero value of its type.
func Zero(t Test, got any, message ...any) {
	t.Helper()
	check(t, got == nil || reflect.ValueOf(got).IsZero(), message, "got %#v; want the zero value", got)
}

// Len ends the test unless got, a string, slice, map or channel, has that many elements.
func Len(t Test, got any, want int, message ...any) {
	t.Helper()
	n := reflect.ValueOf(got).Len()
	check(t, n == want, message, "got %d elements in %#v; want %d", n, got, want)
}
