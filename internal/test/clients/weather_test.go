package clients

import (
	"bufio"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/netfault"
)

// weatherT serves proxies before s until the test ends: a connection to the returned address is one proxy. It
// answers with the proxy's address, then obeys lines (see obey) with "ok" or with what is wrong, and the proxy ends with it.
func weatherT(t *testing.T, s server) (control string) {
	t.Helper()
	l := assert.Value(net.Listen("tcp4", "127.0.0.1:0"))(t)
	var (
		mu      sync.Mutex
		conns   []net.Conn
		running sync.WaitGroup
	)
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			running.Go(func() { serveProxy(c, s) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for _, c := range conns {
			c.Close()
		}
		mu.Unlock()
		running.Wait()
	})
	return l.Addr().String()
}

func serveProxy(c net.Conn, s server) {
	defer c.Close()
	p, err := netfault.New(s.Addr(), netfault.Framed())
	if err != nil {
		fmt.Fprintln(c, err)
		return
	}
	defer p.Close()
	fmt.Fprintln(c, p.Addr())
	for lines := bufio.NewScanner(c); lines.Scan(); {
		if err := obey(s, p, lines.Text()); err != nil {
			fmt.Fprintln(c, err)
			continue
		}
		fmt.Fprintln(c, "ok")
	}
}

// obey carries out one order of a scenario.
func obey(s server, p *netfault.Proxy, order string) error {
	verb, arg, _ := strings.Cut(order, " ")
	switch verb {
	case "cut": // connections end, new ones are refused
		p.Cut()
	case "stall": // nothing gets through, nothing ends
		p.Stall()
	case "reset": // connections end, new ones are welcome
		p.Reset()
	case "heal":
		p.Heal()
	case "fail-reply": // the next request of this operation is carried out, and its connection ends instead of the reply
		op, err := strconv.Atoi(arg)
		if err != nil {
			return fmt.Errorf("fail-reply wants an operation's number: %w", err)
		}
		p.FailReply(1, netfault.IsOp(netfault.Op(op)))
	case "restart":
		return s.Restart()
	default:
		return fmt.Errorf("no such weather: %q", order)
	}
	return nil
}
