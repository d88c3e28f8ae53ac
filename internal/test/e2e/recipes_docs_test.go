package e2e

import (
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
)

// capabilities are what a library offers, by the pages of docs/from and the headings under which they have them.
var capabilities = map[string][]string{
	"curator.md / InterProcessMutex": {"acquire()", "acquire(time, unit)", "acquire() once more", "release()", "isAcquiredInThisProcess()",
		"isOwnedByCurrentThread()", "getParticipantNodes()", "getLockNodeBytes()", "withProtection()"},
	"curator.md / Revocable": {"makeRevocable(listener)", "makeRevocable(listener, executor)", "attemptRevoke(path)"},
	"curator.md / InterProcessReadWriteLock": {"readLock().acquire()", "readLock().acquire(time, unit)", "writeLock().acquire()", "writeLock().release()", "readLock().release()",
		"downgrade", "readLock().getParticipantNodes()", "writeLock().getParticipantNodes()", "new InterProcessReadWriteLock(client, path, data)"},
	"curator.md / InterProcessSemaphoreV2": {"acquire()", "acquire(3)", "acquire(time, unit)", "acquire(qty, time, unit)", "returnLease(lease)", "returnAll(leases)",
		"Lease.close()", "Lease.getData()", "Lease.getNodeName()", "setNodeData(data)", "getParticipantNodes()", "sharedCount"},
	"curator.md / InterProcessMultiLock": {"new InterProcessMultiLock(client, paths).acquire()", "new InterProcessMultiLock(locks)", "acquire(time, unit)", "release()", "isAcquiredInThisProcess()"},
	"curator.md / LeaderLatch": {"start()", "await()", "await(timeout, unit)", "hasLeadership()", "getState()", "getOurPath()", "getLeader()", "getParticipants()", "getId()",
		"addListener(listener)", "isLeader()", "notLeader()", "close()"},
	"hbase.md / InterProcessLock": {"acquire()", "tryAcquire(-1)", "tryAcquire(timeoutMs)", "release()", "visitLocks(handler)", "handleMetadata(ownerMetadata): told to the blocked"},
	"hbase.md / InterProcessReadWriteLock": {"readLock(metadata).acquire()", "writeLock(metadata).acquire()", "readLock(metadata).visitLocks(handler)", "reapExpiredLocks(expireTimeoutMs)",
		"readLock(metadata).reapAllLocks(): of this type alone", "writeLock(metadata).reapAllLocks()"},
	"zookeeper-recipes.md / WriteLock":                                  {"lock()", "unlock()", "isOwner()", "getId()", "LockListener.lockAcquired()", "LockListener.lockReleased()", "setLockListener(listener)", "dump of the nodes"},
	"zookeeper-recipes.md / Leader election":                            {"start(), with a wait after each leader", "getLeaderHostName()", "stop()"},
	"zookeeper-recipes.md / ZLock of bigdata":                           {"lock()", "lock(timeout, unit)", "unlock()", "unlock() by anyone entitled", "isLockHeld()", "getQueue()", "getLockRequestZNode()", "destroyLock()"},
	"zookeeper-recipes.md / The exclusive lock of the ZooKeeper books":  {"create an ephemeral sequential znode", "watch the znode before", "delete the znode", "a recoverable error", "the simple lock"},
	"zookeeper-recipes.md / The read-write lock of the ZooKeeper books": {"a read lock", "a write lock", "unlock"},
}

// That the lines do what they say is TestTheDocumentedCurlLinesDoWhatThePagesSay.
func TestEveryCapabilityOfTheOtherLibrariesHasACurlLine(t *testing.T) {
	t.Parallel()
	// What stands in comments right above a command, by its page and heading.
	described := map[string]string{}
	for name, text := range documents(t) {
		var part, words string
		for line := range strings.Lines(text) {
			line = strings.TrimSpace(line)
			if heading, ok := strings.CutPrefix(line, "## "); ok {
				part = heading
			} else if comment, ok := strings.CutPrefix(line, "# "); ok {
				words += comment + "\n"
			} else {
				if from, ok := strings.CutPrefix(name, "docs/from/"); ok && (sendsCurl.MatchString(line) || strings.HasPrefix(line, "KEY=")) {
					described[from+" / "+part] += words
				}
				words = ""
			}
		}
	}
	for heading, names := range capabilities {
		for _, name := range names {
			assert.That(t, strings.Contains(described[heading], name), "%s has no curl line for %s", heading, name)
		}
	}
}
