package state

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// Quotas are kept as ZooKeeper does by default: usage is counted into a node's statistics, outside of any transaction of
// its own, and nothing is refused. A node /zookeeper/quota/a/zookeeper_limits makes /a counted.
const (
	limitNode = "zookeeper_limits"
	statNode  = "zookeeper_stats"
)

func (s *State) quotaOnCreate(path string, n *node, bytes int64) {
	if parent, name, _ := split(path); below(parent, quotaPath) {
		counted := strings.TrimPrefix(parent, quotaPath)
		switch {
		case counted == "":
		case name == limitNode:
			s.limits[counted] = struct{}{}
		case name == statNode && n.parent != nil: // it may have gone again in the same transaction
			if top := s.find(counted); top != nil {
				nodes, size := top.usage()
				s.setStat(n, quotaStat{{"count", nodes}, {"bytes", size}})
			} else {
				s.setStat(n, quotaStat{{"count", 0}, {"bytes", 0}})
			}
		}
	}
	s.quotaOnBytes(path, bytes, 1)
}

func (s *State) quotaOnDelete(path string, bytes int64) {
	if parent, name, _ := split(path); name == limitNode && below(parent, quotaPath) {
		delete(s.limits, strings.TrimPrefix(parent, quotaPath))
	}
	s.quotaOnBytes(path, -bytes, -1)
}

// noteLimit makes a path counted that has limits at the path given.
func (s *State) noteLimit(path string) {
	if parent, name, _ := split(path); name == limitNode && below(parent, quotaPath) && parent != quotaPath {
		s.limits[strings.TrimPrefix(parent, quotaPath)] = struct{}{}
	}
}

// quotaOnBytes counts a change into the statistics of the nearest node above that has a quota.
func (s *State) quotaOnBytes(path string, bytes, nodes int64) {
	if len(s.limits) == 0 {
		return
	}
	for counted := path; counted != "" && counted != "/"; counted, _, _ = split(counted) {
		if _, ok := s.limits[counted]; !ok {
			continue
		}
		if n := s.find(quotaPath + counted + "/" + statNode); n != nil {
			// A client may write anything there. ZooKeeper ends when it cannot read it; we leave it alone.
			if stat, ok := parseQuotaStat(string(n.data)); ok {
				stat.add("count", nodes)
				stat.add("bytes", bytes)
				s.setStat(n, stat)
			}
		}
		return
	}
}

func (s *State) setStat(n *node, stat quotaStat) {
	s.touch(n)
	s.dataSize -= int64(len(n.data))
	n.data = stat.encode()
	s.dataSize += int64(len(n.data))
}

// usage counts a node and all below it, and their data.
func (n *node) usage() (nodes, bytes int64) {
	nodes, bytes = 1, int64(len(n.data))
	n.each(func(c *node) {
		count, size := c.usage()
		nodes += count
		bytes += size
	})
	return nodes, bytes
}

// quotaStat is the text of a node of statistics: count=1,bytes=2 and, behind "=;", what else a client has put there.
type quotaStat []quotaValue

type quotaValue struct {
	key   string
	value int64
}

func parseQuotaStat(text string) (quotaStat, bool) {
	var stat quotaStat
	for pair := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' || r == ';' }) {
		key, value, found := strings.Cut(pair, "=")
		n, err := strconv.ParseInt(strings.TrimRight(value, "="), 10, 64)
		if !found || err != nil {
			return nil, false
		}
		*stat.at(key) = n
	}
	return stat, true
}

// at is the value of a key; a missing one is -1.
func (s *quotaStat) at(key string) *int64 {
	for i := range *s {
		if (*s)[i].key == key {
			return &(*s)[i].value
		}
	}
	*s = append(*s, quotaValue{key, -1})
	return &(*s)[len(*s)-1].value
}

func (s *quotaStat) add(key string, n int64) { *s.at(key) += n }

func (s quotaStat) encode() []byte {
	b := strconv.AppendInt([]byte("count="), *s.at("count"), 10)
	b = strconv.AppendInt(append(b, ",bytes="...), *s.at("bytes"), 10)
	others := slices.DeleteFunc(slices.Clone(s), func(v quotaValue) bool { return v.key == "count" || v.key == "bytes" })
	slices.SortFunc(others, func(a, b quotaValue) int { return cmp.Compare(a.key, b.key) })
	for i, v := range others {
		if i == 0 {
			b = append(b, '=')
		}
		b = append(append(append(b, ';'), v.key...), '=')
		b = strconv.AppendInt(b, v.value, 10)
	}
	return b
}
