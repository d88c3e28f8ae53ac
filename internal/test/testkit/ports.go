package testkit

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
)

// Ports of FreeAddr are below those of zkreal and of embeddedtest, and below those that Linux gives to outgoing connections: who
// starts again at one finds it free. Chromium goes to no page on port 10080, so all are above that.
const (
	portsFrom  = 10100
	portsCount = 8900
)

// lastPort begins anywhere, because test binaries run beside each other, and goes up: none is given twice. What a test is given
// it does not listen on yet, or not while the program that does is down.
var lastPort atomic.Uint32

func init() { lastPort.Store(rand.Uint32N(portsCount)) }

// FreeAddr is an address on loopback on which no process listens.
func FreeAddr(t testing.TB) string {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", portsFrom+lastPort.Add(1)%portsCount))
		if err == nil {
			defer l.Close()
			return l.Addr().String()
		}
	}
	t.Fatalf("no free port")
	return ""
}
