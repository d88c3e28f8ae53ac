package zkreal

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Option changes how a server is run. The zero set of options is a server in a temporary directory on a free port.
type Option func(*config)

type config struct {
	real        bool   // no stand-in
	dir         string // "" = a temporary directory of our own
	clientPort  int    // 0 = pick a free one
	tick        time.Duration
	minSession  time.Duration
	maxSession  time.Duration
	syncLimit   int
	initLimit   int
	fsync       bool
	logLevel    string
	heap        string
	lines       []string // further lines of zoo.cfg
	jvm         []string // further JVM flags
	jars        []string // on the class path besides ZooKeeper's own
	startWithin time.Duration
}

func newConfig(opts []Option) config {
	c := config{
		tick:        500 * time.Millisecond,
		minSession:  200 * time.Millisecond,
		maxSession:  60 * time.Second,
		syncLimit:   5,
		initLimit:   20,
		fsync:       true,
		logLevel:    "info",
		heap:        "256m",
		startWithin: 60 * time.Second,
	}
	for _, o := range opts {
		o(&c)
	}
	return c
}

// Real asks for Debian's server where this test binary uses a stand-in: for what is about ZooKeeper itself.
func Real() Option { return func(c *config) { c.real = true } }

// WithDir keeps everything (data, zoo.cfg, log) in dir, which is created when missing and never removed.
func WithDir(dir string) Option { return func(c *config) { c.dir = dir } }

// WithPort fixes the client port. Start fails when it is taken.
func WithPort(port int) Option { return func(c *config) { c.clientPort = port } }

// WithSessionBounds sets the least and greatest session timeout the server grants.
func WithSessionBounds(least, greatest time.Duration) Option {
	return func(c *config) { c.minSession, c.maxSession = least, greatest }
}

// WithSyncLimit sets, in ticks, how long a follower and its leader go on without hearing from each other. It is how long
// a follower that is cut off from its peers still serves its clients.
func WithSyncLimit(ticks int) Option { return func(c *config) { c.syncLimit = ticks } }

// WithoutFsync lets the server answer writes before they are on disk: quicker, and right for every test that does not
// take the power away.
func WithoutFsync() Option { return func(c *config) { c.fsync = false } }

// WithLogLevel sets the level of the server's log (trace, debug, info, warn, error); info unless set.
func WithLogLevel(level string) Option { return func(c *config) { c.logLevel = level } }

// WithConfig adds a line "key=value" to zoo.cfg. Ours comes last, so it wins over the generated lines.
func WithConfig(key, value string) Option {
	return func(c *config) { c.lines = append(slices.Clip(c.lines), key+"="+value) }
}

// WithJVMFlag adds a flag for the Java virtual machine, such as "-Djute.maxbuffer=4194304".
func WithJVMFlag(flag string) Option {
	return func(c *config) { c.jvm = append(slices.Clip(c.jvm), flag) }
}

// zooCfg renders zoo.cfg. peers holds the lines "server.N=..." of an ensemble, as this server sees it.
func (c *config) zooCfg(dataDir string, clientPort int, peers []string) string {
	var b strings.Builder
	line := func(key string, value any) { fmt.Fprintf(&b, "%s=%v\n", key, value) }
	line("tickTime", c.tick.Milliseconds())
	line("initLimit", c.initLimit)
	line("syncLimit", c.syncLimit)
	line("minSessionTimeout", c.minSession.Milliseconds())
	line("maxSessionTimeout", c.maxSession.Milliseconds())
	line("dataDir", dataDir)
	line("clientPort", clientPort)
	line("clientPortAddress", "127.0.0.1")
	line("maxClientCnxns", 0)
	line("admin.enableServer", false)
	line("4lw.commands.whitelist", "*")
	line("extendedTypesEnabled", true)
	for _, l := range slices.Concat(c.lines, peers) {
		b.WriteString(l + "\n")
	}
	return b.String()
}

// javaArgs is the command line of the JVM. Only slf4j's API is on the class path of Debian's zookeeper.jar, so without a
// binding nothing would be logged at all; slf4j-simple is in a package that zookeeper depends on and writes to stderr.
func (c *config) javaArgs(cfgFile string) []string {
	args := []string{
		"-Xmx" + c.heap, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-XX:-UsePerfData",
		"-Djava.net.preferIPv4Stack=true",
		"-Dzookeeper.jmx.log4j.disable=true",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=" + c.logLevel,
		"-Dorg.slf4j.simpleLogger.showDateTime=true",
		"-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
		"-Dorg.slf4j.simpleLogger.showShortLogName=true",
		// One line for each four-letter word, and waiting for a server asks many, would bury everything else.
		"-Dorg.slf4j.simpleLogger.log.org.apache.zookeeper.server.NIOServerCnxn=warn",
	}
	if !c.fsync {
		args = append(args, "-Dzookeeper.forceSync=no")
	}
	args = append(args, c.jvm...)
	return append(args, "-cp", strings.Join(append([]string{simpleLoggerJar, zookeeperJar}, c.jars...), ":"), "org.apache.zookeeper.server.quorum.QuorumPeerMain", cfgFile)
}
