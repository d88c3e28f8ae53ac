package chaos

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/childproc"
	"lockkeeper/internal/test/testkit"
)

// nginxServer: what may be repeated, nginx repeats at another gateway. That is everything but an acquire, which only its
// client can repeat, with the key. A gateway that says 503 is none that is down (max_fails=0).
const nginxServer = `
upstream gateways {
%s	keepalive 32;
}
server {
	listen %s;
	proxy_http_version 1.1;
	proxy_set_header Connection "";
	proxy_set_header Host $http_host;
	proxy_connect_timeout 1s;
	proxy_next_upstream_tries 3;
	location / {
		proxy_pass http://gateways;
		proxy_read_timeout 70s;
		proxy_next_upstream error timeout http_503 non_idempotent;
	}
	location ~ /heartbeats?$ {
		proxy_pass http://gateways;
		proxy_read_timeout 2s;
		proxy_next_upstream error timeout http_503 non_idempotent;
	}
	location ~ ^/v1/locks/[^/]*/leases$ {
		proxy_pass http://gateways;
		proxy_read_timeout 70s;
		proxy_next_upstream off;
	}
}
`

// startNginx runs Debian's nginx before the gateways and returns its URL.
func startNginx(t testing.TB, backends []string) string {
	t.Helper()
	var upstreams, temporary strings.Builder
	for _, b := range backends {
		fmt.Fprintf(&upstreams, "\tserver %s max_fails=0;\n", b)
	}
	dir, listen := t.TempDir(), freeAddr(t)
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		fmt.Fprintf(&temporary, "%s_temp_path %s;\n", kind, filepath.Join(dir, kind))
	}
	// One process in the foreground, and nothing outside of its own directory.
	text := "daemon off;\nmaster_process off;\npid nginx.pid;\nerror_log stderr crit;\nevents { worker_connections 2048; }\n" +
		"http {\naccess_log off;\nclient_max_body_size 1m;\n" + temporary.String() + fmt.Sprintf(nginxServer, upstreams.String(), listen) + "}\n"
	config := filepath.Join(dir, "nginx.conf")
	assert.NoError(t, os.WriteFile(config, []byte(text), 0o600))
	path, err := exec.LookPath("nginx")
	if err != nil {
		if path, err = exec.LookPath("/usr/sbin/nginx"); err != nil { // not every PATH has it
			t.Fatalf("%v\nhint: scripts/setup test installs what these tests need", err)
		}
	}
	log := assert.Value(os.Create(filepath.Join(dir, "log")))(t)
	defer log.Close() // nginx has its own descriptor
	cmd := exec.Command(path, "-p", dir, "-e", "stderr", "-c", config)
	cmd.Stdout, cmd.Stderr = log, log
	proc := assert.Value(childproc.Start(cmd))(t)
	t.Cleanup(func() {
		proc.Stop(10 * time.Second) // it waits for no client: SIGTERM is its quick way
		if t.Failed() {
			said, _ := os.ReadFile(log.Name())
			t.Logf("nginx says:\n%s", said)
		}
	})
	testkit.Eventually(t, 20*time.Second, func() bool {
		conn, err := net.Dial("tcp4", listen)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}, "nginx listens")
	return "http://" + listen
}
