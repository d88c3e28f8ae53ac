package interop

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/childproc"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/test/zkreal"
)

// built is what TestMain makes before the first test, and no test changes: the gateway, Curator's worker.
var built struct{ gateway, classes string }

func TestMain(m *testing.M) {
	if os.Getenv(workerEnv) != "" {
		if err := work(os.Args[1], os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(testkit.RunPrograms(compiled{zkreal.Wrap(m)}, &built.gateway))
}

// compiled compiles Curator's worker before the tests run.
type compiled struct{ m interface{ Run() int } }

func (c compiled) Run() int {
	built.classes = filepath.Join(filepath.Dir(built.gateway), "classes")
	// The compiler is a module of Debian's Java runtime: no JDK is needed.
	javac := exec.Command(java, append(slices.Clone(quick), "-m", "jdk.compiler/com.sun.tools.javac.Main", "-proc:none",
		"-d", built.classes, "-cp", classPath, javaSource)...)
	if out, err := javac.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "javac: %v\n%s\nhint: scripts/setup test installs what these tests need\n", err, out)
		return 1
	}
	return c.m.Run()
}

const (
	java       = "/usr/bin/java"    // Debian's, as its libraries
	python     = "/usr/bin/python3" // another one that is first in PATH does not see Debian's packages
	jars       = "/usr/share/java/"
	javaSource = "testdata/Worker.java"
)

var (
	classPath = jars + strings.Join([]string{"curator-recipes", "curator-framework", "curator-client", "zookeeper",
		"zookeeper-jute", "zookeeper-recipes-lock", "guava", "slf4j-api", "slf4j-simple"}, ".jar:"+jars) + ".jar"
	quick = []string{"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx256m", "-XX:-UsePerfData"}
)

// programs are how to start the processes that the kinds of clients live in.
var programs = map[string]func(t testing.TB) []string{
	"curator": func(t testing.TB) []string {
		lookAt(t, javaSource)
		return append(append([]string{java}, quick...), "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
			"-Djava.net.preferIPv4Stack=true", "-cp", built.classes+":"+classPath, "Worker")
	},
	"kazoo": func(t testing.TB) []string {
		lookAt(t, "testdata/worker.py")
		return []string{python, "-B", "-E", "-s", "testdata/worker.py"}
	},
	"go": func(t testing.TB) []string {
		self := assert.Value(os.Executable())(t)
		return []string{self}
	},
}

// lookAt lets go test see what only another program reads: it would repeat a result from its cache though that has changed.
func lookAt(t testing.TB, path string) {
	t.Helper()
	assert.Value(os.Stat(path))(t)
}

// programFor is the program that a kind of client lives in.
func programFor(kind string) string {
	switch {
	case strings.HasPrefix(kind, "curator-"), kind == "zookeeper-writelock":
		return "curator"
	case strings.HasPrefix(kind, "kazoo-"):
		return "kazoo"
	}
	return "go"
}

const (
	steadySession = 30 * time.Second // of programs that nothing happens to
	briefSession  = 4 * time.Second  // of those that are killed or frozen
)

// dialects are the namespaces of every world: each is called as its dialect. There is one more, for the
// home-made recipe.
var dialects = []string{"native", "curator-rw", "kazoo", "all"}

const (
	custom   = "custom"
	homeMade = "custom exclusive={id}-W- shared={id}-R-"
)

// world is a part of ZooKeeper that a test has to itself, and a gateway on it.
type world struct {
	t      testing.TB
	zkAddr string
	root   string // everything is below it
	conn   *zk.Conn
	listen string
	flags  []string
	log    *journal
	proc   *childproc.Process
	*apitest.Client

	mu       sync.Mutex
	programs map[string]*program
}

// newWorld starts a gateway that knows a namespace of each dialect.
func newWorld(t testing.TB, flags ...string) *world {
	t.Helper()
	addr, root := zkreal.SharedRealT(t)
	w := &world{t: t, zkAddr: addr, root: root, listen: freeAddr(t), log: &journal{}, programs: make(map[string]*program)}
	conn, events, err := zk.Connect([]string{addr}, steadySession, zk.WithLogInfo(false))
	assert.NoError(t, err)
	t.Cleanup(conn.Close)
	for e := range events {
		if e.State == zk.StateHasSession {
			break
		}
	}
	w.conn = conn
	for _, d := range append(dialects, custom) {
		w.mkdir("/"+d, nil)
	}
	w.fleet("/lockkeeper", flags)
	return w
}

// otherFleet is a gateway of another fleet whose namespaces have the same lock roots.
func (w *world) otherFleet(flags ...string) *world {
	w.t.Helper()
	other := &world{t: w.t, zkAddr: w.zkAddr, root: w.root, conn: w.conn, listen: freeAddr(w.t), log: &journal{}}
	other.fleet("/other", flags)
	return other
}

// fleet starts a gateway at a Lockkeeper's root. It records the namespaces.
func (w *world) fleet(root string, flags []string) {
	w.t.Helper()
	w.flags = append([]string{"--zk=" + w.zkAddr, "--root=" + w.root + root, "--listen=" + w.listen, "--create-root",
		"--log-format=json", "--log-level=warn"}, flags...)
	for _, d := range dialects {
		w.flags = append(w.flags, "--namespace="+d+"="+w.root+"/"+d+":"+d)
	}
	w.flags = append(w.flags, "--namespace="+custom+"="+w.root+"/"+custom+":"+homeMade)
	w.Client = apitest.New(w.t, "http://"+w.listen)
	w.startGateway()
	w.t.Cleanup(func() {
		assert.That(w.t, !w.proc.Stop(patience), "the gateway did not end")
		if w.t.Failed() {
			w.t.Logf("the end of the gateway's log:\n%s", w.log.tail())
		}
	})
}

func (w *world) startGateway() {
	w.t.Helper()
	testkit.BuiltFrom(w.t, "lockkeeper/cmd/gateway")
	cmd := exec.Command(built.gateway, w.flags...)
	cmd.Stdout, cmd.Stderr = w.log, w.log
	w.proc = assert.Value(childproc.Start(cmd))(w.t)
	testkit.EventuallyNil(w.t, startWithin, func() error {
		if w.proc.Ended() {
			w.t.Fatalf("the gateway ended: %v\n%s", w.proc.Wait(), w.log.tail())
		}
		a, err := w.Send(w.t.Context(), http.MethodGet, "/readyz")
		if err == nil && a.Status != http.StatusOK {
			err = fmt.Errorf("%d: %s", a.Status, a.Body)
		}
		return err
	}, "the gateway is ready")
}

// namespace adds one to those of a gateway that runs, by way of a second gateway, which goes on.
func (w *world) namespace(ns, dialect string) {
	w.t.Helper()
	second := &world{t: w.t, zkAddr: w.zkAddr, root: w.root, conn: w.conn, listen: freeAddr(w.t), log: &journal{}}
	second.fleet("/lockkeeper", []string{"--namespace=" + ns + "=" + w.root + "/" + ns + ":" + dialect})
	testkit.EventuallyNil(w.t, patience, func() error {
		a, err := w.Send(w.t.Context(), http.MethodGet, "/v1/locks?ns="+ns)
		if err == nil && a.Status != http.StatusOK {
			err = fmt.Errorf("%d: %s", a.Status, a.Body)
		}
		return err
	}, "the gateway knows the namespace")
}

// freeAddr is an address for a gateway, which may go and come again.
func freeAddr(t testing.TB) string { return testkit.FreeAddr(t) }

// mkdir creates a persistent node below the world's root.
func (w *world) mkdir(path string, data []byte) {
	w.t.Helper()
	assert.Value(w.conn.Create(w.root+path, data, 0, zk.WorldACL(zk.PermAll)))(w.t, "create %s", path)
}

// names are the contenders of a lock.
func (w *world) names(ns, lock string) []string {
	w.t.Helper()
	names, _, err := w.conn.Children(w.dir(ns, lock))
	if err != nil && !errors.Is(err, zk.ErrNoNode) { // a directory that is gone, or not there yet, is empty
		w.t.Fatal(err)
	}
	return names
}

// dir is a lock's directory, as other programs name it.
func (w *world) dir(ns, lock string) string { return w.root + "/" + ns + "/" + lock }

// program is the process that a kind of client lives in, one for all tests that nothing happens to.
func (w *world) program(t testing.TB, kind string) *program {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	name := programFor(kind)
	p := w.programs[name]
	if p == nil {
		p = w.ownProgram(w.t, kind, steadySession)
		w.programs[name] = p
	}
	return p
}

// ownProgram is a process for one test alone.
func (w *world) ownProgram(t testing.TB, kind string, session time.Duration) *program {
	t.Helper()
	return startT(t, append(programs[programFor(kind)](t), w.zkAddr, fmt.Sprint(session.Milliseconds()))...)
}

// acquire takes a lock, or says why it did not.
func (w *world) acquire(ctx context.Context, ns, lock, query string) (api.Lease, error) {
	lease, a, err := w.Acquire(ctx, lock, apitest.Query("ns="+url.QueryEscape(ns)+"&"+query))
	if err == nil && a.Status != http.StatusCreated && a.Status != http.StatusAccepted {
		err = &refusal{a.Status, string(a.Body)}
	}
	return lease, err
}

// refusal is an answer that is no lease.
type refusal struct {
	status int
	body   string
}

func (r *refusal) Error() string { return fmt.Sprintf("status %d: %s", r.status, r.body) }

// release ends a lease.
func (w *world) release(ctx context.Context, lease api.Lease) error {
	a, err := w.Release(ctx, lease.Token)
	if err == nil && a.Status != http.StatusNoContent {
		err = &refusal{a.Status, string(a.Body)}
	}
	return err
}

// journal keeps the end of what the gateway prints.
type journal struct {
	mu   sync.Mutex
	text []byte
}

var _ io.Writer = (*journal)(nil)

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.text = append(j.text, b...)
	j.text = j.text[max(0, len(j.text)-keptOutput):]
	return len(b), nil
}

func (j *journal) tail() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return string(j.text)
}
