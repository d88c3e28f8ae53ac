package zkreal

import (
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

const (
	askWithin = 10 * time.Second
	// A server that is just starting sometimes accepts a connection and never answers on it; asking again is quicker.
	askStartingWithin = 200 * time.Millisecond
)

// FourLetter sends a four-letter word ("srvr", "mntr", "ruok", ...) to the ZooKeeper at addr and returns its answer. It
// gives up after ten seconds, which is what a frozen server looks like.
func FourLetter(addr, word string) (string, error) { return fourLetter(addr, word, askWithin) }

func fourLetter(addr, word string, within time.Duration) (string, error) {
	conn, err := net.DialTimeout("tcp", addr, within)
	if err != nil {
		return "", fmt.Errorf("four-letter word %s: %w", word, err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(within)); err != nil {
		return "", fmt.Errorf("four-letter word %s: %w", word, err)
	}
	if _, err := io.WriteString(conn, word); err != nil {
		return "", fmt.Errorf("four-letter word %s to %s: %w", word, addr, err)
	}
	answer, err := io.ReadAll(io.LimitReader(conn, 4<<20))
	if err != nil {
		return "", fmt.Errorf("four-letter word %s to %s: %w", word, addr, err)
	}
	return string(answer), nil
}

// modeOf finds the line "Mode: standalone|leader|follower" in an answer to srvr; "" when the server does not serve.
func modeOf(srvr string) string {
	for line := range strings.Lines(srvr) {
		if mode, ok := strings.CutPrefix(line, "Mode: "); ok {
			return strings.TrimSpace(mode)
		}
	}
	return ""
}
