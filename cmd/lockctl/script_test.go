package main

import (
	"crypto/tls"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"lockkeeper/internal/test/rawzk"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/zk/wire"
)

// programs is where the tests find lockctl and gateway as they are shipped.
var programs string

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	flag.Parse()
	if testing.Short() {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "lockctl-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	build := exec.Command("go", "build", "-ldflags=-X main.release=v0.0.0-test", "-o", dir+"/", "lockkeeper/cmd/lockctl", "lockkeeper/cmd/gateway")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building the programs: %v\n%s", err, out)
		return 1
	}
	programs = dir
	return m.Run()
}

// Each script runs the real programs. Besides testscript's own commands (go doc github.com/rogpeppe/go-internal/testscript) it has
//
//	gateway [NAME [ADDRESS]] [FLAGS]
//	                           starts a gateway with a store of its own; LOCKKEEPER_URL, gateway_URL and NAME_URL are its URL
//	stopgateway [NAME]         stops it, and waits for its end
//	zkcreate PATH              creates an ephemeral sequential znode of another program, in the gateway with --embedded-listen=$ZK
//	receiver                   serves a receiver of webhooks at receiver_URL: /ok takes messages, /no does not
//	freeaddr VAR               sets VAR to an address where nothing listens
//	eventually PATTERN CMD...  repeats a command until its standard output has the pattern
//	setfrom VAR PATTERN        sets VAR to the first group of the pattern in the last standard output
func TestScripts(t *testing.T) {
	testkit.NotShort(t, "starts the gateway and lockctl")
	testkit.BuiltFrom(t, "lockkeeper/cmd/lockctl")
	testkit.BuiltFrom(t, "lockkeeper/cmd/gateway")
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("ZK", testkit.FreeAddr(t))
			return setUpScript(env)
		},
		Condition: func(name string) (bool, error) {
			program, ok := strings.CutPrefix(name, "has:")
			if !ok {
				return false, fmt.Errorf("unknown condition %q", name)
			}
			_, err := exec.LookPath(program)
			return err == nil, nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"gateway":     func(ts *testscript.TestScript, _ bool, args []string) { startGateway(ts, testkit.FreeAddr(t), args) },
			"stopgateway": stopGateway,
			"receiver":    receiver,
			"zkcreate":    zkCreate,
			"freeaddr":    func(ts *testscript.TestScript, _ bool, args []string) { ts.Setenv(args[0], testkit.FreeAddr(t)) },
			"eventually":  eventually,
			"setfrom":     setFrom,
		},
	})
}

type gatewaysKey struct{}

// gateways are those of one script, by their names.
type gateways map[string]*exec.Cmd

func setUpScript(env *testscript.Env) error {
	env.Setenv("PATH", programs+string(filepath.ListSeparator)+env.Getenv("PATH"))
	env.Setenv("LOCKKEEPER_URL", "http://127.0.0.1:9") // nothing listens there
	started := gateways{}
	env.Values[gatewaysKey{}] = started
	env.Defer(func() {
		for name := range started {
			started.stop(name)
		}
	})
	return nil
}

func (g gateways) stop(name string) {
	cmd := g[name]
	delete(g, name)
	_ = cmd.Process.Signal(os.Interrupt)
	killed := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
	defer killed.Stop()
	_ = cmd.Wait()
}

func startGateway(ts *testscript.TestScript, listen string, args []string) {
	name, scheme := "gateway", "http"
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		name, args = args[0], args[1:]
	}
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		listen, args = args[0], args[1:]
	}
	if slices.ContainsFunc(args, func(s string) bool { return strings.HasPrefix(s, "--tls-cert-file") }) {
		scheme = "https"
	}
	cmd := exec.Command(filepath.Join(programs, "gateway"), append([]string{"--data-dir=" + ts.MkAbs("data-"+name), "--log-level=warn", "--listen=" + listen}, args...)...)
	cmd.Dir = ts.MkAbs(".")
	log, err := os.Create(ts.MkAbs(name + ".log"))
	ts.Check(err)
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	ts.Check(cmd.Start())
	ts.Value(gatewaysKey{}).(gateways)[name] = cmd
	url := scheme + "://" + listen
	ts.Setenv(name+"_URL", url)
	ts.Setenv("gateway_URL", url)
	ts.Setenv("gateway_LISTEN", listen)
	ts.Setenv(name+"_LISTEN", listen)
	ts.Setenv("LOCKKEEPER_URL", url)

	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} // only asks whether it is ready
	defer transport.CloseIdleConnections()
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if answer, err := (&http.Client{Transport: transport}).Get(url + "/readyz"); err == nil {
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return
			}
		}
		if time.Since(begun) > 30*time.Second {
			ts.Fatalf("the gateway is not ready:\n%s", ts.ReadFile(name+".log"))
		}
	}
}

func stopGateway(ts *testscript.TestScript, _ bool, args []string) {
	name := "gateway"
	if len(args) > 0 {
		name = args[0]
	}
	ts.Value(gatewaysKey{}).(gateways).stop(name)
}

func zkCreate(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: zkcreate PATH")
	}
	client, err := rawzk.Dial(ts.Getenv("ZK"), 20*time.Second, 30*time.Second)
	ts.Check(err)
	ts.Defer(func() { client.Conn.Close() })
	anyone := []wire.ACL{{Perms: 31, Scheme: "world", ID: "anyone"}}
	ts.Check(client.Must(wire.OpCreate, &wire.CreateRequest{Path: args[0], ACL: anyone, Flags: wire.FlagEphemeralSequential}, nil))
}

func receiver(ts *testscript.TestScript, _ bool, _ []string) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/ok" {
			http.Error(w, "no", http.StatusTeapot)
		}
	}))
	ts.Defer(server.Close)
	ts.Setenv("receiver_URL", server.URL)
}

func eventually(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: eventually PATTERN COMMAND...")
	}
	pattern, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		err := ts.Exec(args[1], args[2:]...)
		if pattern.MatchString(ts.ReadFile("stdout")) {
			return
		}
		if time.Since(begun) > 20*time.Second {
			ts.Fatalf("never printed %q; in the end (%v):\n%s%s", args[0], err, ts.ReadFile("stdout"), ts.ReadFile("stderr"))
		}
	}
}

func setFrom(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: setfrom VAR PATTERN")
	}
	pattern, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	found := pattern.FindStringSubmatch(ts.ReadFile("stdout"))
	if len(found) < 2 {
		ts.Fatalf("standard output has no %q:\n%s", args[1], ts.ReadFile("stdout"))
	}
	ts.Setenv(args[0], found[1])
}
