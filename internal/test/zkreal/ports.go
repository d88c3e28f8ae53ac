package zkreal

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// Ports are taken from below Linux's ephemeral range (32768 and up): a port that a stopped server will want again must
// not be handed to an outgoing connection in between.
const (
	portsFrom  = 20000
	portsCount = 12000
	portTries  = 200
)

// freePorts returns n ports that were free a moment ago. Another process may still be quicker; a caller that uses
// them finds out when it binds, and Start tries again with others.
func freePorts(n int) ([]int, error) {
	ports := make([]int, 0, n)
	for range portTries {
		if len(ports) == n {
			return ports, nil
		}
		port := portsFrom + rand.IntN(portsCount)
		l, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		defer l.Close() // held until all are found, so that none is found twice
		ports = append(ports, port)
	}
	return nil, fmt.Errorf("no %d free ports on 127.0.0.1 after %d tries", n, portTries)
}
