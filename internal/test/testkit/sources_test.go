package testkit

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
)

func TestAProgramIsBuiltFromThisModulesSourcesOfAllItsParts(t *testing.T) {
	paths := assert.Value(sources("lockkeeper/cmd/gateway"))(t)
	top := assert.Value(filepath.Abs("../../.."))(t)
	for _, want := range []string{"go.mod", "go.sum", "cmd/gateway", "cmd/gateway/main.go", "internal/locks/manager/manager.go", "internal/zk/wire",
		"web/static", "web/static/vendor", "web/static/app.css"} {
		assert.That(t, slices.Contains(paths, filepath.Join(top, want)), "%s is not among them", want)
	}
	for _, path := range paths {
		if _, err := os.Stat(path); err != nil || !strings.HasPrefix(path+"/", top+"/") || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "/testkit") {
			t.Errorf("%s is: %v", path, err)
		}
	}
}

func TestAPackageThatCannotBeListedIsAFailure(t *testing.T) {
	got := failureOf(func(t testing.TB) { BuiltFrom(t, "lockkeeper/cmd/nothing") })
	assert.That(t, strings.Contains(got, "cmd/nothing"), "failure %q", got)
}
