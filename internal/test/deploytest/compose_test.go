package deploytest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"

	"lockkeeper/internal/test/assert"
)

// project is compose.yaml as docker compose reads it: with its own library, schema and interpolation.
func project(t testing.TB, file string) (*types.Project, error) {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{file}, cli.WithWorkingDirectory(top), cli.WithInterpolation(true), cli.WithNormalization(true), cli.WithConsistency(true))
	assert.NoError(t, err)
	return options.LoadProject(context.Background())
}

func TestTheComposeFileIsAFleetOnAnEnsemble(t *testing.T) {
	p := assert.Value(project(t, filepath.Join(top, "compose.yaml")))(t)
	var zookeepers, gateways []types.ServiceConfig
	for _, s := range p.Services {
		switch {
		case strings.HasPrefix(s.Image, "zookeeper:"):
			zookeepers = append(zookeepers, s)
		case s.Build != nil:
			gateways = append(gateways, s)
		}
		_, tag, ok := strings.Cut(s.Image, ":")
		assert.That(t, ok && tag != "latest", "%s: image %q may be another one tomorrow", s.Name, s.Image)
		for _, port := range s.Ports {
			assert.That(t, port.HostIP == "127.0.0.1", "%s is reachable from outside: %+v", s.Name, port)
		}
	}
	assert.Must(t, len(zookeepers) == 3 && len(gateways) == 2, "%d ZooKeepers, %d gateways", len(zookeepers), len(gateways))
	var servers []string
	ids := map[string]bool{}
	for _, s := range zookeepers {
		id := value(s, "ZOO_MY_ID")
		ids[id] = true
		member := fmt.Sprintf("server.%s=%s:2888:3888;2181", id, s.Name)
		assert.That(t, strings.Contains(value(s, "ZOO_SERVERS"), member), "%s is not in the ensemble as %s", s.Name, member)
		servers = append(servers, s.Name+":2181")
		assert.That(t, len(s.Volumes) == 2, "%s keeps its data in %v", s.Name, s.Volumes)
	}
	assert.That(t, len(ids) == 3, "ids %v", ids)
	for _, g := range gateways {
		// As the image starts it.
		environment := map[string]string{"LOCKKEEPER_LISTEN": ":8080"}
		for name := range g.Environment {
			environment[name] = value(g, name)
		}
		if len(g.Secrets) != 1 || environment["LOCKKEEPER_ZK_AUTH_FILE"] != "/run/secrets/"+g.Secrets[0].Source || p.Secrets[g.Secrets[0].Source].File == "" {
			t.Errorf("%s has no identity toward ZooKeeper: %+v", g.Name, g.Secrets)
		}
		printed := accepted(t, environment, g.Command...)
		got := setting(t, printed, "zk")
		assert.That(t, sameSet(got, servers), "%s: its ZooKeepers are %s, and there are %v", g.Name, got, servers)
		assert.Equal(t, setting(t, printed, "advertise"), g.Name+":8080", "%s tells the others to find it at", g.Name)
		for _, other := range gateways {
			assert.That(t, strings.Contains(printed, "- "+other.Name) || strings.Contains(setting(t, printed, "allowed-hosts"), other.Name),
				"%s does not answer to the name %s", g.Name, other.Name)
		}
		if grace := duration(t, g.StopGracePeriod.String()); grace <= duration(t, setting(t, printed, "drain-delay"))+handover(t) {
			t.Errorf("%s is killed %v after it was asked to go", g.Name, grace)
		}
		for _, z := range zookeepers {
			assert.That(t, g.DependsOn[z.Name].Condition == types.ServiceConditionHealthy, "%s starts before %s", g.Name, z.Name)
		}
	}
	nginx := p.Services["nginx"]
	assert.Must(t, len(nginx.Volumes) == 1, "nginx has %v", nginx.Volumes)
	if v := nginx.Volumes[0]; !v.ReadOnly || v.Target != "/etc/nginx/conf.d/default.conf" || !strings.HasSuffix(v.Source, "/deploy/nginx/lockkeeper.conf") {
		t.Errorf("nginx is configured by %+v", v)
	} else if _, err := os.Stat(v.Source); err != nil {
		t.Error(err)
	}
	config := read(t, "deploy/nginx/lockkeeper.conf")
	for _, g := range gateways {
		assert.That(t, strings.Contains(config, "server "+g.Name+":8080"), "nginx does not know %s", g.Name)
	}
}

func TestAComposeFileWithATypingErrorIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "compose.yaml")
	err := os.WriteFile(path, []byte(strings.Replace(read(t, "compose.yaml"), "stop_grace_period", "stop_grace_perod", 1)), 0o600)
	assert.NoError(t, err)
	_, err = project(t, path)
	assert.That(t, err != nil, "anything is taken")
}

func value(s types.ServiceConfig, name string) string {
	if v := s.Environment[name]; v != nil {
		return *v
	}
	return ""
}

func sameSet(list string, of []string) bool {
	for _, one := range of {
		if !strings.Contains(list, one) {
			return false
		}
	}
	return strings.Count(list, ",") == len(of)-1
}
