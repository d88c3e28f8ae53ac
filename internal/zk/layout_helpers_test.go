package zk

import "testing"

// opened is the layout at a root.
func opened(t testing.TB, cfg Config) *Layout {
	t.Helper()
	layout, err := OpenLayout(testContext(t), cfg)
	if err != nil {
		t.Fatalf("OpenLayout: %v", err)
	}
	return layout
}
