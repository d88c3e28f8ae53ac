package dockertest

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"lockkeeper/internal/test/assert"
)

const (
	top      = "../../.."
	compiler = "golang:1.26.8-alpine" // as the Dockerfile has it
)

// repository reads what the image of this module is built from.
func repository(t *testing.T) Context {
	t.Helper()
	read := func(name string) []byte {
		data := assert.Value(os.ReadFile(top + "/" + name))(t)
		return data
	}
	return Context{Dockerfile: read("Dockerfile"), Ignore: read(".dockerignore"), GoMod: read("go.mod"), Files: os.DirFS(top)}
}

func TestTheDockerfileKeepsTheRules(t *testing.T) {
	t.Parallel()
	found := assert.Value(Check(repository(t)))(t)
	for _, v := range found {
		t.Error(v)
	}
}

// Each change to our own files breaks a rule, and that rule says so.
func TestEachRuleIsCheckedAndExplained(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		from, to string // in the Dockerfile, or in the file that the name begins with
		reason   string // part of it
	}{
		"one stage":                     {"FROM scratch", "# FROM scratch", "one stage alone"},
		"a stage with latest":           {compiler, "golang:latest", "golang:latest is not pinned"},
		"a stage without a tag":         {compiler, "golang", "golang is not pinned"},
		"half a version":                {compiler, "golang:1.26", "golang:1.26 is not pinned"},
		"another compiler":              {compiler, "alpine:3.23.0", "not an official golang image"},
		"an old compiler":               {compiler, "golang:1.25.9-alpine", "Go 1.25.9 is older"},
		"go.mod: a newer language":      {"go 1.26.0", "go 1.26.9", "older than the 1.26.9"},
		"go.mod: a newer toolchain":     {"go 1.26.0", "go 1.26.0\n\ntoolchain go1.27.1", "older than the 1.27.1"},
		"a large base":                  {"FROM scratch", "FROM debian:12.9.0", "built on debian:12.9.0"},
		"an emulated compiler":          {"--platform=$BUILDPLATFORM ", "", "would be emulated"},
		"nothing is built":              {"go build ", "go vet ", "does not build"},
		"linked with C":                 {"CGO_ENABLED=0 ", "", "lacks CGO_ENABLED=0"},
		"one system only":               {"GOOS=$TARGETOS ", "", "lacks GOOS=$TARGETOS"},
		"one processor only":            {"GOARCH=$TARGETARCH", "GOARCH=amd64", "lacks GOARCH=$TARGETARCH"},
		"a builder's paths":             {"-trimpath ", "", "lacks -trimpath"},
		"no version":                    {"main.release", "main.version", "lacks -X"},
		"an argument undeclared":        {"ARG TARGETARCH\n", "", "ARG TARGETARCH is missing"},
		"modules fetched each time":     {"target=/go/pkg/mod", "target=/tmp/mod", "no cache is mounted at /go/pkg/mod"},
		"compiled anew each time":       {"--mount=type=cache,target=/root/.cache/go-build", "--network=default", "no cache is mounted at /root/.cache"},
		"ADD of an address":             {"COPY LICENSE /LICENSE", "ADD https://example.com/LICENSE /LICENSE", "ADD also"},
		"a file that is not there":      {"COPY LICENSE /LICENSE", "COPY COPYING /LICENSE", "COPY COPYING: it does not exist"},
		"a file that is kept out":       {"COPY LICENSE /LICENSE", "COPY README.md /README.md", "COPY README.md: .dockerignore keeps it out"},
		"a stage that is not there":     {"COPY --from=build", "COPY --from=builder", "COPY --from=builder: no stage"},
		"a copy from another image":     {"COPY --from=build", "COPY --from=busybox:latest", "COPY --from=busybox:latest: no stage"},
		"started by a shell":            {`ENTRYPOINT ["/gateway"]`, "ENTRYPOINT /gateway", "ENTRYPOINT is a shell's line"},
		"nothing is started":            {`ENTRYPOINT ["/gateway"]`, "", "0 ENTRYPOINTs"},
		"another binary":                {`ENTRYPOINT ["/gateway"]`, `ENTRYPOINT ["/server"]`, "starts /server, which no COPY"},
		"no health check":               {"HEALTHCHECK", "# HEALTHCHECK", "0 HEALTHCHECKs"},
		"a health check by a shell":     {`CMD ["/gateway", "healthcheck"]`, "CMD /gateway healthcheck", "HEALTHCHECK is"},
		"a health check by curl":        {`CMD ["/gateway", "healthcheck"]`, `CMD ["curl", "-f", "localhost:8080/healthz"]`, "HEALTHCHECK is"},
		"no user":                       {"USER 65532:65532\n", "", "runs as root"},
		"a user with a name":            {"USER 65532:65532", "USER nonroot", "USER nonroot is not uid:gid"},
		"root":                          {"USER 65532:65532", "USER 0:0", "USER 0:0 is root"},
		"root's group":                  {"USER 65532:65532", "USER 65532:0", "is root"},
		"root in the end":               {"EXPOSE 8080", "EXPOSE 8080\nUSER 0:0", "USER 0:0 is root"},
		"another port exposed":          {"EXPOSE 8080", "EXPOSE 80", "EXPOSE has"},
		"listening on loopback":         {"LOCKKEEPER_LISTEN=:8080", "LOCKKEEPER_LISTEN=127.0.0.1:8080", "loopback cannot be reached"},
		"listening at another port":     {"LOCKKEEPER_LISTEN=:8080", "LOCKKEEPER_LISTEN=:80", "not :8080"},
		"no volume":                     {`VOLUME ["/lockkeeper-data"]`, "", "the data would end with the container"},
		"another user's data":           {"--chown=65532:65532 ", "", "could not write there"},
		"no authority is trusted":       {"COPY --from=build /etc/ssl/certs", "# /etc/ssl/certs", "every https:// address would be refused"},
		"open by a variable":            {"LOCKKEEPER_LISTEN=:8080", "LOCKKEEPER_LISTEN=:8080 LOCKKEEPER_INSECURE=true", "sets --insecure by itself"},
		"open by the entry point":       {`ENTRYPOINT ["/gateway"]`, `ENTRYPOINT ["/gateway", "--insecure"]`, "sets --insecure by itself"},
		"open by the command":           {`ENTRYPOINT ["/gateway"]`, "ENTRYPOINT [\"/gateway\"]\nCMD [\"--insecure\"]", "sets --insecure by itself"},
		"no image of lockctl":           {"FROM scratch AS lockctl", "FROM scratch AS tool", "no stage is named lockctl"},
		"another command line":          {`ENTRYPOINT ["/lockctl"]`, `ENTRYPOINT ["/ctl"]`, "starts /ctl, which no COPY"},
		"no lockctl beside the gateway": {"COPY --from=build /src/lockctl /lockctl\n# The auth", "# The auth", "has no lockctl for docker exec"},
		"no title":                      {"image.title", "image.name", "no label org.opencontainers.image.title"},
		"a stage's name in capitals":    {"AS build", "AS Build", "StageNameCasing"},
		"capitals half the time":        {" AS build", " as build", "FromAsCasing"},
		"a hole in a continued line":    {"CGO_ENABLED=0", "\n\nCGO_ENABLED=0", "BuildKit warns: Empty continuation line"},
		".dockerignore: everything":     {"*\n\n", "", "lets zk-auth into the build"},
		".dockerignore: an identity":    {"!web/", "!web/\n!zk-auth", "lets zk-auth into the build"},
		".dockerignore: tests":          {"**/*_test.go", "", "main_test.go into the build"},
		".dockerignore: not the source": {"!LICENSE", "", "COPY LICENSE: .dockerignore keeps it out"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			context := repository(t)
			changed := &context.Dockerfile
			switch {
			case strings.HasPrefix(name, "go.mod: "):
				changed = &context.GoMod
			case strings.HasPrefix(name, ".dockerignore: "):
				changed = &context.Ignore
			}
			assert.Must(t, bytes.Contains(*changed, []byte(c.from)), "nothing reads %q: the test has to follow the file", c.from)
			*changed = bytes.ReplaceAll(*changed, []byte(c.from), []byte(c.to))
			found := assert.Value(Check(context))(t)
			for _, v := range found {
				if strings.Contains(v.String(), c.reason) {
					return
				}
			}
			t.Errorf("no violation with %q in %v", c.reason, found)
		})
	}
}

func TestWhatIsNoDockerfileIsAnError(t *testing.T) {
	t.Parallel()
	for _, c := range []Context{
		{Dockerfile: nil},
		{Dockerfile: []byte("FROM scratch\nFETCH x\n")},
		{Dockerfile: []byte("COPY . .\n")},
		{Dockerfile: []byte("FROM scratch\n"), Ignore: []byte("[\n")},
	} {
		c.Files = fstest.MapFS{}
		found, err := Check(c)
		assert.That(t, err != nil, "%q is read, and has the violations %v", c.Dockerfile, found)
	}
}
