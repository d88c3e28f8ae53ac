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
	layout, err := Open(fixture.Context(t), cfg)
	assert.NoError(t, err, "OpenLayout")
	return layout
}
