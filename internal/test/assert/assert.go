// Package assert says in one line each what a test requires. That, Equal, Slices, Nil and ErrorIs report a failure and let the
// test go on; Must, MustEqual, MustSlices, NoError and Value end it. Only the goroutine of a test may call those.
package assert

import (
	"errors"
	"fmt"
	"slices"
)

// T is what a failure is reported to: testing.TB, or the T of a property test.
type T interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// That reports the message unless ok. The arguments are evaluated either way, so they must be cheap and must not panic.
func That(t T, ok bool, format string, args ...any) {
	t.Helper()
	if !ok {
		t.Errorf(format, args...)
	}
}

// Must is That, and ends the test.
func Must(t T, ok bool, format string, args ...any) {
	t.Helper()
	if !ok {
		t.Fatalf(format, args...)
	}
}

// Equal reports got when it is not want. about is a format and its arguments: what is compared.
func Equal[V comparable](t T, got, want V, about ...any) {
	t.Helper()
	That(t, got == want, "%s", difference{got, want, about})
}

// MustEqual is Equal, and ends the test.
func MustEqual[V comparable](t T, got, want V, about ...any) {
	t.Helper()
	Must(t, got == want, "%s", difference{got, want, about})
}

// Slices is Equal for slices; nil equals an empty one.
func Slices[V comparable](t T, got, want []V, about ...any) {
	t.Helper()
	That(t, slices.Equal(got, want), "%s", difference{got, want, about})
}

// MustSlices is Slices, and ends the test.
func MustSlices[V comparable](t T, got, want []V, about ...any) {
	t.Helper()
	Must(t, slices.Equal(got, want), "%s", difference{got, want, about})
}

// NoError ends the test when err is not nil. about is a format and its arguments: what failed.
func NoError(t T, err error, about ...any) {
	t.Helper()
	Must(t, err == nil, "%s%v", note(about), err)
}

// Value is the value of a call that must succeed, as in body := assert.Value(os.ReadFile(path))(t): it ends the test as NoError
// does when err is not nil.
func Value[V any](v V, err error) func(t T, about ...any) V {
	return func(t T, about ...any) V {
		t.Helper()
		NoError(t, err, about...)
		return v
	}
}

// Nil reports err when it is not nil.
func Nil(t T, err error, about ...any) {
	t.Helper()
	That(t, err == nil, "%s%v", note(about), err)
}

// ErrorIs reports err when it is not want.
func ErrorIs(t T, err, want error, about ...any) {
	t.Helper()
	That(t, errors.Is(err, want), "%sgot %v, want %v", note(about), err, want)
}

// difference and note are formatted only when they are reported.
type difference struct {
	got, want any
	about     note
}

func (d difference) String() string {
	return fmt.Sprintf("%vgot %+v, want %+v", d.about, d.got, d.want)
}

type note []any

func (n note) String() string {
	if len(n) == 0 {
		return ""
	}
	return fmt.Sprintf(n[0].(string), n[1:]...) + ": "
}
