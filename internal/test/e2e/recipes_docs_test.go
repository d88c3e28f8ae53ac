package e2e

import (
	"os"
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
)

// capabilities are what a library offers, by the headings under which docs/recipes.md has them.
var capabilities = map[string][]string{
	"Curator / InterProcessMutex": {"acquire()", "acquire(time, unit)", "acquire() once more", "release()", "isAcquiredInThisProcess()",
		"isOwnedByCurrentThread()", "getParticipantNodes()", "getLockNodeBytes()", "withProtection()"},
	"Curator / Revocable": {"makeRevocable(listener)", "makeRevocable(listener, executor)", "attemptRevoke(path)"},
	"Curator / InterProcessReadWriteLock": {"readLock().acquire()", "readLock().acquire(time, unit)", "writeLock().acquire()", "writeLock().release()", "readLock().release()",
		"downgrade", "readLock().getParticipantNodes()", "writeLock().getParticipantNodes()", "new InterProcessReadWriteLock(client, path, data)"},
	"Curator / InterProcessSemaphoreV2": {"acquire()", "acquire(3)", "acquire(time, unit)", "acquire(qty, time, unit)", "returnLease(lease)", "returnAll(leases)",
		"Lease.close()", "Lease.getData()", "Lease.getNodeName()", "setNodeData(data)", "getParticipantNodes()", "sharedCount"},
	"Curator / InterProcessMultiLock": {"new InterProcessMultiLock(client, paths).acquire()", "new InterProcessMultiLock(locks)", "acquire(time, unit)", "release()", "isAcquiredInThisProcess()"},
	"Curator / LeaderLatch": {"start()", "await()", "await(timeout, unit)", "hasLeadership()", "getState()", "getOurPath()", "getLeader()", "getParticipants()", "getId()",
		"addListener(listener)", "isLeader()", "notLeader()", "close()"},
	"HBase / InterProcessLock": {"acquire()", "tryAcquire(-1)", "tryAcquire(timeoutMs)", "release()", "visitLocks(handler)", "handleMetadata(ownerMetadata): told to the blocked"},
	"HBase / InterProcessReadWriteLock": {"readLock(metadata).acquire()", "writeLock(metadata).acquire()", "readLock(metadata).visitLocks(handler)", "reapExpiredLocks(expireTimeoutMs)",
		"readLock(metadata).reapAllLocks(): of this type alone", "writeLock(metadata).reapAllLocks()"},
	"ZooKeeper's recipes / WriteLock":               {"lock()", "unlock()", "isOwner()", "getId()", "LockListener.lockAcquired()", "LockListener.lockReleased()", "setLockListener(listener)", "dump of the nodes"},
	"ZooKeeper's recipes / Leader election":         {"start(), with a wait after each leader", "getLeaderHostName()", "stop()"},
	"bigdata / ZLock":                               {"lock()", "lock(timeout, unit)", "unlock()", "unlock() by anyone entitled", "isLockHeld()", "getQueue()", "getLockRequestZNode()", "destroyLock()"},
	"The locks of the ZooKeeper books / Exclusive":  {"create an ephemeral sequential znode", "watch the znode before", "delete the znode", "a recoverable error", "the simple lock"},
	"The locks of the ZooKeeper books / Read-write": {"a read lock", "a write lock", "unlock"},
}

// That the lines do what they say is TestTheDocumentedCurlLinesDoWhatThePagesSay.
func TestEveryCapabilityOfTheOtherLibrariesHasACurlLine(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/recipes.md")
	assert.NoError(t, err)
	// What stands in comments right above a command, by its headings.
	described := map[string]string{}
	var library, part, words string
	for line := range strings.Lines(string(page)) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "## "); ok {
			library = name
		} else if name, ok := strings.CutPrefix(line, "### "); ok {
			part = name
		} else if comment, ok := strings.CutPrefix(line, "# "); ok {
			words += comment + "\n"
		} else {
			if command.MatchString(line) {
				described[library+" / "+part] += words
			}
			words = ""
		}
	}
	for heading, names := range capabilities {
		for _, name := range names {
			assert.That(t, strings.Contains(described[heading], name), "%s has no curl line for %s", heading, name)
		}
	}
}
