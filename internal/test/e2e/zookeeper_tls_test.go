package e2e

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/certtest"
	"lockkeeper/internal/test/netfault"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/test/zkreal"
)

// secureZK is a real ZooKeeper that speaks TLS, and what its clients need.
type secureZK struct {
	*zkreal.Server
	addr    string
	servers *certtest.Authority
	clients *certtest.Authority
}

func startSecureZK(t *testing.T, clientAuth string, names ...string) *secureZK {
	t.Helper()
	testkit.NotShort(t, "a real ZooKeeper takes seconds")
	z := &secureZK{servers: certtest.New(t, "servers"), clients: certtest.New(t, "clients")}
	if names == nil {
		names = []string{"127.0.0.1"}
	}
	z.Server, z.addr = zkreal.StartTLST(t, zkreal.TLS{Server: z.servers.Issue(names), Clients: z.clients, ClientAuth: clientAuth}, zkreal.WithoutFsync())
	return z
}

// flags are those of a gateway with the certificate, nil for none.
func (z *secureZK) flags(leaf *certtest.Leaf) []string {
	flags := []string{"--zk-tls", "--zk-ca-file=" + z.servers.File()}
	if leaf != nil {
		cert, key := leaf.Files()
		flags = append(flags, "--zk-cert-file="+cert, "--zk-key-file="+key)
	}
	return flags
}

// refused runs a gateway that must end, and returns what it says.
func refused(t *testing.T, addr string, flags ...string) (code int, log string) {
	t.Helper()
	g := newGateway(t, addr, append([]string{"--zk-connect-timeout=2s"}, flags...)...)
	g.start()
	select {
	case <-g.proc.Done():
	case <-time.After(patience):
		t.Fatalf("it runs\n%s", g.log.tail())
	}
	g.done = true
	if exit, failed := errors.AsType[*exec.ExitError](g.proc.Wait()); failed {
		code = exit.ExitCode()
	}
	return code, g.log.String()
}

// The name in the certificate is the fleet's identity: what gateways alone may see and write is closed to all others, also to a
// client with another certificate of the same authority.
func TestAFleetIsKnownToZooKeeperByItsCertificates(t *testing.T) {
	t.Parallel()
	z := startSecureZK(t, "need")
	fleet := z.clients.Issue([]string{"lockkeeper"})
	one := startGateway(t, z.addr, z.flags(fleet)...)
	two := startGateway(t, z.addr, z.flags(z.clients.Issue([]string{"lockkeeper"}))...) // a certificate of its own, with the same name
	acquainted(t, one, two)
	lease := one.hold("deploy", "ttl=1m")
	two.beat(lease.Token, "held")
	assert.That(t, !strings.Contains(one.log.String(), "every client of ZooKeeper can read"), "it says that it has no identity")
	out, _ := zkreal.CLI(z.Addr(), "get /lockkeeper/secret", "set /lockkeeper/version x", "getAcl /lockkeeper/auth/tokens", "getAcl /lockkeeper/version") // a refusal is its exit code
	assert.That(t, strings.Count(out, "Insufficient permission") == 3 && strings.Contains(out, "x509,'CN=lockkeeper"), "a client without the certificate: %s", out)
	info, _, err := one.Info(t.Context())
	assert.That(t, err == nil && !info.Zookeeper.SecretExposed, "the secret is exposed: %+v %v", info.Zookeeper, err)
	page := assert.Value(http.Get(one.url() + "/gateways"))(t)
	defer page.Body.Close()
	shown := string(assert.Value(io.ReadAll(page.Body))(t))
	assert.That(t, strings.Contains(shown, z.addr) && strings.Contains(shown, "standalone"), "the page shows no server: %s", shown)
	one.letGo(lease.Token)

	// Commands without a gateway take the same flags.
	command := exec.Command(binary(t), append([]string{"token", "create", "--name=ci", "--ttl=1h", "--zk=" + z.addr}, z.flags(fleet)...)...)
	made := assert.Value(command.CombinedOutput())(t)
	assert.That(t, bytes.HasPrefix(made, []byte("lkt_")), "%s", made)

	for name, c := range map[string]struct {
		flags []string
		code  int
		says  string
	}{
		"another name":                  {z.flags(z.clients.Issue([]string{"stranger"})), 78, "x509:CN=stranger"},
		"no certificate":                {z.flags(nil), 69, "certificate"},
		"another authority's":           {z.flags(certtest.New(t, "others").Issue([]string{"lockkeeper"})), 69, "certificate"},
		"one for servers":               {z.flags(z.clients.Issue([]string{"lockkeeper"}, certtest.For(x509.ExtKeyUsageServerAuth))), 78, "for servers alone"},
		"another authority of servers":  {append(z.flags(fleet), "--zk-ca-file="+certtest.New(t, "others").File()), 69, "unknown authority"},
		"the plain port":                {append(z.flags(fleet), "--zk="+z.Addr()), 69, "secureClientPort"},
		"without TLS at the secure one": {nil, 69, "--zk-tls"},
	} {
		code, log := refused(t, z.addr, c.flags...)
		assert.That(t, code == c.code && strings.Contains(log, c.says), "%s: exit %d, want %d and %q:\n%s", name, code, c.code, c.says, log)
	}
}

// With digest the certificate is for the connection alone, and names are checked as they stand in --zk.
func TestAZooKeeperOverTLSHasToBeTheOneThatIsNamed(t *testing.T) {
	t.Parallel()
	z := startSecureZK(t, "none", "zk1.example.com")
	code, log := refused(t, z.addr, z.flags(nil)...)
	assert.That(t, code == 69 && strings.Contains(log, "127.0.0.1") && strings.Contains(log, "good for the name"), "another name: exit %d\n%s", code, log)

	named := startSecureZK(t, "none", "localhost")
	auth := filepath.Join(t.TempDir(), "auth")
	assert.NoError(t, os.WriteFile(auth, []byte("digest fleet:sesame\n"), 0o600))
	g := startGateway(t, strings.Replace(named.addr, "127.0.0.1", "localhost", 1), append(named.flags(nil), "--zk-auth-file="+auth)...)
	g.letGo(g.hold("deploy", "ttl=1m").Token)
	out := assert.Value(zkreal.CLI(named.Addr(), "getAcl /lockkeeper/version"))(t)
	assert.That(t, strings.Contains(out, "digest,'fleet:"), "%s", out)

	// A server that asks for no certificate knows no name: nothing is made with an identity that nothing proves.
	code, log = refused(t, strings.Replace(named.addr, "127.0.0.1", "localhost", 1)+"/other", named.flags(named.clients.Issue([]string{"lockkeeper"}))...)
	assert.That(t, code == 78 && strings.Contains(log, "for no identity") && strings.Contains(log, "ssl.clientAuth"), "exit %d\n%s", code, log)
	out = assert.Value(zkreal.CLI(named.Addr(), "ls /"))(t)
	assert.That(t, !strings.Contains(out, "other"), "it has made nodes: %s", out)
}

// A connection is made with the files as they are then: the certificate that has expired meanwhile is not asked for any more.
func TestANewConnectionToZooKeeperHasTheNewCertificate(t *testing.T) {
	t.Parallel()
	z := startSecureZK(t, "need")
	network := netfault.NewT(t, z.addr)
	short := z.clients.Issue([]string{"lockkeeper"}, certtest.Valid(time.Now().Add(-time.Hour), time.Now().Add(20*time.Second)))
	cert, key := short.Files()
	g := startGateway(t, network.Addr(), "--zk-tls", "--zk-ca-file="+z.servers.File(), "--zk-cert-file="+cert, "--zk-key-file="+key)
	lease := g.hold("deploy", "ttl=5m")
	z.clients.Issue([]string{"lockkeeper"}).Write(cert, key)
	eventually(t, patience, func() error {
		if !strings.Contains(g.log.String(), "certificates were read again") {
			return fmt.Errorf("not yet")
		}
		return nil
	}, "the files are read again")
	elapse(t, time.Until(short.X509.NotAfter)+time.Second)
	network.Cut()
	network.Heal()
	g.beatUntil(lease.Token, "held")
	g.letGo(lease.Token)
}
