package zkreal

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/certtest"
)

// nettyJars are the parts of Debian's libnetty-java, on which libzookeeper-java depends, that TLS needs and that the class path
// of zookeeper.jar does not name.
var nettyJars = []string{"netty-codec.jar", "netty-resolver.jar", "netty-transport-native-unix-common.jar"}

// TLS is a port on which a server speaks TLS, beside the plain one.
type TLS struct {
	Server  *certtest.Leaf      // its certificate
	Clients *certtest.Authority // who signs those of clients
	// ClientAuth is need, want or none: whether a client has to show a certificate.
	ClientAuth string
}

// StartTLST is StartT for a server of Debian's that also speaks TLS, at the address that is returned.
func StartTLST(t testing.TB, with TLS, opts ...Option) (s *Server, addr string) {
	t.Helper()
	dir := t.TempDir()
	keys, trust := filepath.Join(dir, "server.pem"), filepath.Join(dir, "clients.pem")
	assert.NoError(t, os.WriteFile(keys, append(append([]byte{}, with.Server.Key...), with.Server.Cert...), 0o600))
	assert.NoError(t, os.WriteFile(trust, with.Clients.PEM(), 0o600))
	ports := assert.Value(freePorts(1))(t)
	opts = append(opts, Real(), withNetty())
	for key, value := range map[string]string{
		"secureClientPort": fmt.Sprint(ports[0]), "secureClientPortAddress": "127.0.0.1", "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
		"ssl.keyStore.location": keys, "ssl.keyStore.type": "PEM", "ssl.trustStore.location": trust, "ssl.trustStore.type": "PEM", "ssl.clientAuth": with.ClientAuth,
	} {
		opts = append(opts, WithConfig(key, value))
	}
	return StartT(t, opts...), fmt.Sprintf("127.0.0.1:%d", ports[0])
}

// withNetty puts what TLS needs on the class path.
func withNetty() Option {
	return func(c *config) {
		for _, jar := range nettyJars {
			c.jars = append(c.jars, "/usr/share/java/"+jar)
		}
	}
}
