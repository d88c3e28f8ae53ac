package dockertest

import (
	"net"
	"slices"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
)

// labels of the OCI image specification that every image of ours has.
var labels = []string{
	"org.opencontainers.image.title", "org.opencontainers.image.description", "org.opencontainers.image.licenses", "org.opencontainers.image.version",
}

// final: the image starts the gateway, as a user without rights, reachable, watched, and not open to all by itself.
func (i *image) final() {
	s := i.last()
	binary := i.entrypoint(s)
	i.health(s, binary)
	i.runsAs(s)
	i.listens(s)
	i.keeps(s)
	i.trusts(s)
	i.open(s)
	i.labels(s)
}

// commandLine: the image of lockctl starts it, as a user without rights; and the gateway's image has it, too.
func (i *image) commandLine() {
	s := i.stage("lockctl", len(i.stages)-1)
	if s == nil {
		i.refuse(nil, "no stage is named lockctl: there is no image of the command line")
		return
	}
	if binary := i.entrypoint(s); binary != "/lockctl" {
		i.refuse(s.Location, "the image lockctl starts %q", binary)
	}
	i.runsAs(s)
	i.trusts(s)
	i.labels(s)
	if !slices.ContainsFunc(all[*instructions.CopyCommand](i.last()), func(c *instructions.CopyCommand) bool { return c.From != "" && c.DestPath == "/lockctl" }) {
		i.refuse(i.last().Location, "the gateway's image has no lockctl for docker exec")
	}
}

// entrypoint returns the path of the binary.
func (i *image) entrypoint(s *instructions.Stage) string {
	entries := all[*instructions.EntrypointCommand](s)
	if len(entries) != 1 {
		i.refuse(s.Location, "the image has %d ENTRYPOINTs, not one", len(entries))
		return ""
	}
	e := entries[0]
	if e.PrependShell || len(e.CmdLine) == 0 {
		i.refuse(e.Location(), `ENTRYPOINT is a shell's line: there is no shell, and SIGTERM would end there; write ["/gateway"], or the like`)
		return ""
	}
	binary := e.CmdLine[0]
	if !slices.ContainsFunc(all[*instructions.CopyCommand](s), func(c *instructions.CopyCommand) bool { return c.From != "" && c.DestPath == binary }) {
		i.refuse(e.Location(), "ENTRYPOINT starts %s, which no COPY --from puts there", binary)
	}
	return binary
}

func (i *image) health(s *instructions.Stage, binary string) {
	checks := all[*instructions.HealthCheckCommand](s)
	if len(checks) != 1 {
		i.refuse(s.Location, "the image has %d HEALTHCHECKs, not one", len(checks))
		return
	}
	if check := checks[0]; !slices.Equal(check.Health.Test, []string{"CMD", binary, "healthcheck"}) {
		i.refuse(check.Location(), `HEALTHCHECK is %q: there is no shell and no curl; write CMD ["/gateway", "healthcheck"]`, check.Health.Test)
	}
}

func (i *image) runsAs(s *instructions.Stage) {
	users := all[*instructions.UserCommand](s)
	if len(users) == 0 {
		i.refuse(s.Location, "without USER the gateway runs as root")
		return
	}
	last := users[len(users)-1]
	m := user.FindStringSubmatch(last.User)
	if m == nil {
		i.refuse(last.Location(), "USER %s is not uid:gid in numbers: there is no /etc/passwd, and Kubernetes cannot tell that it is not root", last.User)
	} else if strings.Trim(m[1], "0") == "" || strings.Trim(m[2], "0") == "" {
		i.refuse(last.Location(), "USER %s is root", last.User)
	}
}

// listens: on all addresses of the container, at the port that is exposed.
func (i *image) listens(s *instructions.Stage) {
	var exposed []string
	for _, c := range all[*instructions.ExposeCommand](s) {
		exposed = append(exposed, c.Ports...)
	}
	if !slices.Equal(exposed, []string{"8080"}) {
		i.refuse(s.Location, "EXPOSE has %q, not 8080", exposed)
	}
	listen := ""
	for _, c := range all[*instructions.EnvCommand](s) {
		for _, pair := range c.Env {
			if pair.Key == "LOCKKEEPER_LISTEN" {
				listen = pair.Value
			}
		}
	}
	if host, port, err := net.SplitHostPort(listen); err != nil || host != "" || port != "8080" {
		i.refuse(s.Location, "LOCKKEEPER_LISTEN is %q, not :8080: a container's loopback cannot be reached", listen)
	}
}

// dataDir is where a gateway keeps everything that runs without --zk in the image's working directory.
const dataDir = "/lockkeeper-data"

// keeps: the data of a gateway without --zk is on a volume, which it may write to.
func (i *image) keeps(s *instructions.Stage) {
	var volumes []string
	for _, c := range all[*instructions.VolumeCommand](s) {
		volumes = append(volumes, c.Volumes...)
	}
	if !slices.Equal(volumes, []string{dataDir}) {
		i.refuse(s.Location, "VOLUME has %q, not %s: the data would end with the container", volumes, dataDir)
	}
	users := all[*instructions.UserCommand](s)
	if !slices.ContainsFunc(all[*instructions.CopyCommand](s), func(c *instructions.CopyCommand) bool {
		return c.From != "" && c.DestPath == dataDir && len(users) > 0 && c.Chown == users[len(users)-1].User
	}) {
		i.refuse(s.Location, "no COPY --from --chown makes %s the USER's: it could not write there", dataDir)
	}
}

// authorities is where Go looks for the certificates that a system trusts, among other places.
const authorities = "/etc/ssl/certs/ca-certificates.crt"

// trusts: without certificates every https:// address of a webhook or another gateway would be refused.
func (i *image) trusts(s *instructions.Stage) {
	if !slices.ContainsFunc(all[*instructions.CopyCommand](s), func(c *instructions.CopyCommand) bool { return c.From != "" && c.DestPath == authorities }) {
		i.refuse(s.Location, "no COPY --from puts %s there: every https:// address would be refused", authorities)
	}
}

// open: only who runs the image may say that a gateway without authentication is meant.
func (i *image) open(s *instructions.Stage) {
	for _, c := range s.Commands {
		var says string
		switch c := c.(type) {
		case *instructions.EnvCommand:
			for _, pair := range c.Env {
				says += pair.Key + "\n"
			}
		case *instructions.EntrypointCommand:
			says = strings.Join(c.CmdLine, "\n")
		case *instructions.CmdCommand:
			says = strings.Join(c.CmdLine, "\n")
		}
		if strings.Contains(strings.ToLower(says), "insecure") {
			i.refuse(c.Location(), "the image sets --insecure by itself")
		}
	}
}

func (i *image) labels(s *instructions.Stage) {
	have := map[string]bool{}
	for _, c := range all[*instructions.LabelCommand](s) {
		for _, pair := range c.Labels {
			have[pair.Key] = pair.Value != ""
		}
	}
	for _, name := range labels {
		if !have[name] {
			i.refuse(s.Location, "the image has no label %s", name)
		}
	}
}
