package layout

import (
	"testing"

	"lockkeeper/internal/test/fixture"
	"lockkeeper/internal/zk"
)

// opened is the layout at a root.
func opened(t testing.TB, cfg zk.Config) *Layout {
	t.Helper()
	layout, err := Open(fixture.Context(t), cfg)
	if err != nil {
		t.Fatalf("OpenLayout: %v", err)
	}
	return layout
}
