package locks

import (
	"regexp"
	"strings"
)

var (
	curatorName = regexp.MustCompile(`^_c_[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}-`)
	goZKName    = regexp.MustCompile(`^_c_[0-9a-f]{32}-lock-`)
	kazooName   = regexp.MustCompile(`^[0-9a-f]{32}__r?lock__`)
)

// curatorLock reports whether a name is that of Curator's InterProcessMutex or of
// one of its InterProcessReadWriteLock: the contenders that can be asked to let go.
func curatorLock(name string) bool {
	rest := name[len(curatorName.FindString(name)):]
	return rest != name && (strings.HasPrefix(rest, "lock-") || strings.HasPrefix(rest, "__WRIT__") || strings.HasPrefix(rest, "__READ__"))
}

// programOf tells which program's naming a contender follows, "" when none
// is known. It is for people's eyes; the queue rules do not ask.
func programOf(name string) string {
	switch {
	case curatorName.MatchString(name):
		return "curator"
	case goZKName.MatchString(name):
		return "go-zookeeper"
	case kazooName.MatchString(name):
		return "kazoo"
	case strings.HasPrefix(name, "x-"):
		return "zookeeper-writelock"
	case strings.HasPrefix(name, "write-"), strings.HasPrefix(name, "read-"):
		return "hbase"
	}
	return ""
}
