package layout

import (
	"testing"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/fixture"
	"lockkeeper/internal/zk"
)

// opened is the layout at a root.
func opened(t testing.TB, cfg zk.Config) *Layout {
	t.Helper()
	layout := assert.Value(Open(fixture.Context(t), cfg))(t, "OpenLayout")
	return layout
}
