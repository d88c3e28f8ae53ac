package clientsuite

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// judged runs a test that may fail, and returns what it said when it did.
func judged(t testing.TB, test func(testing.TB)) string {
	v := &verdict{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		test(v)
	}()
	<-done
	return strings.Join(v.said, "\n")
}

// verdict is a test whose failure is none of the test that it is in.
type verdict struct {
	testing.TB
	mu   sync.Mutex
	said []string
}

func (v *verdict) Helper() {}

func (v *verdict) Errorf(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.said = append(v.said, fmt.Sprintf(format, args...))
}

func (v *verdict) Fatalf(format string, args ...any) {
	v.Errorf(format, args...)
	runtime.Goexit()
}

func (v *verdict) Failed() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.said) > 0
}
