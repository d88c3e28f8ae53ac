package assert

import (
	"errors"
	"fmt"
	"io"
	"testing"
)

// report keeps what a test under test was told.
type report struct{ said, fatal string }

func (r *report) Helper()                           {}
func (r *report) Errorf(format string, args ...any) { r.said = fmt.Sprintf(format, args...) }
func (r *report) Fatalf(format string, args ...any) { r.fatal = fmt.Sprintf(format, args...) }

func TestAFailureIsReportedWithItsMessage(t *testing.T) {
	for _, c := range []struct {
		check func(t T)
		want  report
	}{
		{func(t T) { That(t, true, "no") }, report{}},
		{func(t T) { That(t, false, "%d left", 3) }, report{said: "3 left"}},
		{func(t T) { Must(t, true, "no") }, report{}},
		{func(t T) { Must(t, false, "%d left", 3) }, report{fatal: "3 left"}},
		{func(t T) { Equal(t, "a", "a", "no") }, report{}},
		{func(t T) { Equal(t, "a b", "b") }, report{said: `got a b, want b`}},
		{func(t T) { MustEqual(t, 1, 2, "attempts of %s", "x") }, report{fatal: "attempts of x: got 1, want 2"}},
		{func(t T) { Slices(t, nil, []int{}) }, report{}},
		{func(t T) { Slices(t, []int{1}, nil, "order") }, report{said: "order: got [1], want []"}},
		{func(t T) { MustSlices(t, []int{1}, []int{2}) }, report{fatal: "got [1], want [2]"}},
		{func(t T) { NoError(t, nil) }, report{}},
		{func(t T) { NoError(t, errors.New("gone"), "drain") }, report{fatal: "drain: gone"}},
		{func(t T) { Equal(t, Value(7, nil)(t), 7) }, report{}},
		{func(t T) { Value(7, errors.New("gone"))(t, "read %s", "x") }, report{fatal: "read x: gone"}},
		{func(t T) { Nil(t, nil) }, report{}},
		{func(t T) { Nil(t, errors.New("gone"), "on %d", 7) }, report{said: "on 7: gone"}},
		{func(t T) { ErrorIs(t, fmt.Errorf("a: %w", io.EOF), io.EOF) }, report{}},
		{func(t T) { ErrorIs(t, nil, io.EOF, "end") }, report{said: "end: got <nil>, want EOF"}},
	} {
		var got report
		if c.check(&got); got != c.want {
			t.Errorf("%+v, want %+v", got, c.want)
		}
	}
}
