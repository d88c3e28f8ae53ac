package difftest

import (
	"testing"

	"lockkeeper/internal/zk/wire"
)

const (
	plain      = wire.FlagPersistent
	ephemeral  = wire.FlagEphemeral
	sequential = wire.FlagSequential
	both       = wire.FlagEphemeralSequential
	persistent = wire.WatchPersistent
	recursive  = wire.WatchRecursive
)

// TestScripts plays a scenario for each rule and quirk that clients can run into.
func TestScripts(t *testing.T) {
	pair := serversT(t)
	for _, s := range scripts() {
		t.Run(s.Name, func(t *testing.T) { pair.CheckT(t, s) })
	}
}

func script(name string, steps ...Step) Scenario { return Scenario{Name: name, Steps: steps} }

func scripts() []Scenario {
	all := nodeScripts()
	all = append(all, multiScripts()...)
	all = append(all, watchScripts()...)
	all = append(all, aclScripts()...)
	all = append(all, sessionScripts()...)
	return append(all, brokenScripts()...)
}
