package zkreal

import (
	"testing"

	"lockkeeper/internal/test/assert"
)

func TestAnEventTearsNoAnswer(t *testing.T) {
	const (
		watcher = "\nWATCHER::\n"
		event   = "\nWatchedEvent state:SyncConnected type:NodeChildrenChanged path:/cli\n"
		want    = "Created /cli/s-0\n[s-0]\nWatchedEvent state:SyncConnected type:NodeChildrenChanged path:/cli\n"
	)
	for _, printed := range []string{
		"Created /cli/s-0\n" + watcher + event + "[s-0]\n",
		"Created /cli/s-0\n[" + watcher + event + "s-0]\n",
		"Created /cli/s-0\n[" + watcher + "s-0" + event + "]\n",
		"Created /cli/s-0" + watcher + event + "\n[s-0]\n",
	} {
		assert.Equal(t, withoutGreeting(eventsLast(printed)), want, "%q became", printed)
	}
}
