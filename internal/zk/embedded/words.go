package embedded

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
)

// version is in the answers to srvr, stat and mntr: the ZooKeeper whose behaviour this is, and that it is not that one. Clients
// read the number off its beginning.
const version = "3.8.0-embedded, built on 2026-11-21 00:00 UTC"

// interrupted is what telnet sends when it is interrupted. ZooKeeper knows it as a word of another name.
const interrupted = "\xff\xf4\xff\xfd"

// words are the four-letter words that ZooKeeper 3.8 knows, by their bytes read as a length. As one they would be above any
// limit, so a connection's first four bytes are a word or a length and never both. Those without an answer are answered
// as ZooKeeper answers words that are off its whitelist.
var words = func() map[uint32]func(*core, *strings.Builder) {
	known := map[string]func(*core, *strings.Builder){
		"ruok": func(_ *core, b *strings.Builder) { b.WriteString("imok") },
		"isro": func(_ *core, b *strings.Builder) { b.WriteString("rw") },
		"srvr": (*core).srvr,
		"stat": (*core).stat,
		"mntr": (*core).mntr,
		"conf": (*core).conf,
		"envi": envi,
		"cons": nil, "crst": nil, "dirs": nil, "dump": nil, "gtmk": nil, "hash": nil, "srst": nil, "stmk": nil,
		"wchc": nil, "wchp": nil, "wchs": nil, interrupted: nil,
	}
	byLength := make(map[uint32]func(*core, *strings.Builder), len(known))
	for word, answer := range known {
		byLength[binary.BigEndian.Uint32([]byte(word))] = answer
	}
	return byLength
}()

// word is the answer to a four-letter word.
func (k *core) word(word string) string {
	answer := words[binary.BigEndian.Uint32([]byte(word))]
	if answer == nil {
		if word == interrupted {
			word = "telnet close"
		}
		return word + " is not executed because it is not in the whitelist.\n"
	}
	var b strings.Builder
	answer(k, &b)
	return b.String()
}

func (k *core) srvr(b *strings.Builder) {
	fmt.Fprintf(b, "Zookeeper version: %s\n", version)
	k.figures(b)
}

func (k *core) stat(b *strings.Builder) {
	fmt.Fprintf(b, "Zookeeper version: %s\nClients:\n", version)
	conns := k.s.connections()
	slices.SortFunc(conns, func(x, y *conn) int { return cmp.Compare(x.remote, y.remote) })
	for _, c := range conns {
		// The number in brackets is what the connection is waited on for: 1 to be read from; 0 once it has sent a word.
		interest := 1
		if c.session == nil {
			interest = 0
		}
		fmt.Fprintf(b, " /%s[%d](queued=0,recved=%d,sent=%d)\n", c.remote, interest, c.received.Load(), c.sent.Load())
	}
	b.WriteString("\n")
	k.figures(b)
}

// figures is what srvr and stat have in common.
func (k *core) figures(b *strings.Builder) {
	least, average, greatest := k.stats.latencies()
	fmt.Fprintf(b, "Latency min/avg/max: %d/%s/%d\n", least, average, greatest)
	fmt.Fprintf(b, "Received: %d\nSent: %d\n", k.stats.received, k.stats.sent)
	fmt.Fprintf(b, "Connections: %d\nOutstanding: %d\n", len(k.s.connections()), len(k.s.queue))
	fmt.Fprintf(b, "Zxid: 0x%x\nMode: standalone\nNode count: %d\n", k.state.LastZxid(), k.state.Counts().Nodes)
}

// envi tells the version, which clients look for here (Kazoo's server_version). What else ZooKeeper tells is about the machine
// and the user, which no client needs.
func envi(_ *core, b *strings.Builder) {
	fmt.Fprintf(b, "Environment:\nzookeeper.version=%s\n", version)
}

func (k *core) conf(b *strings.Builder) {
	port := 0
	if addr, ok := k.s.Addr().(*net.TCPAddr); ok {
		port = addr.Port
	}
	fmt.Fprintf(b, "clientPort=%d\nsecureClientPort=-1\n", port)
	fmt.Fprintf(b, "tickTime=%d\nmaxClientCnxns=%d\n", k.s.cfg.TickTime.Milliseconds(), max(0, k.s.cfg.MaxConnsPerIP))
	fmt.Fprintf(b, "minSessionTimeout=%d\nmaxSessionTimeout=%d\n",
		k.s.cfg.MinSessionTimeout.Milliseconds(), k.s.cfg.MaxSessionTimeout.Milliseconds())
	b.WriteString("clientPortListenBacklog=-1\nserverId=0\n")
}

func (k *core) mntr(b *strings.Builder) {
	counts := k.state.Counts()
	least, average, greatest := k.stats.latencies()
	line := func(name string, value any) { fmt.Fprintf(b, "zk_%s\t%v\n", name, value) }
	line("version", version)
	line("server_state", "standalone")
	line("ephemerals_count", counts.Ephemerals)
	line("num_alive_connections", len(k.s.connections()))
	line("avg_latency", average)
	line("outstanding_requests", len(k.s.queue))
	line("znode_count", counts.Nodes)
	line("global_sessions", len(k.sessions.byID))
	line("packets_sent", k.stats.sent)
	line("packets_received", k.stats.received)
	line("connection_drop_probability", "0.0")
	line("watch_count", counts.Watches)
	line("min_latency", least)
	line("max_latency", greatest)
	line("approximate_data_size", counts.DataSize)
	line("local_sessions", 0)
	line("uptime", k.elapsed())
	line("proposal_count", k.stats.txns)
	line("commit_count", k.stats.txns)
	line("connection_rejected", k.s.rejected.Load())
	line("connection_drop_count", k.stats.unread)
	line("stale_sessions_expired", k.stats.expired)
	line("cnt_fsynctime", k.stats.batches)
	line("cnt_sync_processor_batch_size", k.stats.batches)
	line("sum_sync_processor_batch_size", k.stats.txns)
}

// stats count what has happened since the server was made.
type stats struct {
	received, sent int64 // frames and words
	batches, txns  int64 // stored
	expired        int64 // sessions
	unread         int64 // connections closed because they did not read

	requests, total, least, greatest int64 // latencies in ms
}

// latency counts n requests that took ms each.
func (s *stats) latency(n, ms int64) {
	if n == 0 {
		return
	}
	if s.requests == 0 || ms < s.least {
		s.least = ms
	}
	s.greatest = max(s.greatest, ms)
	s.requests += n
	s.total += n * ms
}

// latencies are the least, the average as Java prints it (four decimals at most, one at least), and the greatest.
func (s *stats) latencies() (least int64, average string, greatest int64) {
	if s.requests == 0 {
		return 0, "0.0", 0
	}
	average = strings.TrimRight(strconv.FormatFloat(float64(s.total)/float64(s.requests), 'f', 4, 64), "0")
	if strings.HasSuffix(average, ".") {
		average += "0"
	}
	return s.least, average, s.greatest
}
