package main

import (
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

func TestASweepListsWhatItWouldDeleteAndThenDeletesIt(t *testing.T) {
	addr, o := oneLease(t)
	_, err := o.Commit(t.Context(), []zk.Op{{Kind: zk.OpSetData, Path: "/lockkeeper/promise_window", Data: []byte(`{"window":"500ms","largest":"500ms"}`), Version: -1}})
	assert.NoError(t, err)
	put(t, o, "/lockkeeper/locks/deploy/_c_0123456789abcdef0123456789abcdef-lock-0000000001")
	left := func() int {
		names, _, err := o.Children(t.Context(), "/lockkeeper/locks/deploy")
		assert.NoError(t, err)
		return len(names)
	}
	code, stdout, stderr := command(t, "sweep", "--zk", addr, "--dry-run")
	if code != 0 || !strings.HasPrefix(stdout, "would delete /lockkeeper/locks/deploy/write-v1.lk") || !strings.Contains(stderr, "would be deleted: 1 lease (1 contender) in 1 lock, 0 idempotency keys") ||
		!strings.Contains(stderr, "1 contender of other programs") {
		t.Errorf("exit %d, stdout %q, stderr:\n%s", code, stdout, stderr)
	}
	assert.Equal(t, left(), 2, "are left after a dry run")
	code, stdout, stderr = command(t, "sweep", "--zk", addr)
	if code != 0 || !strings.HasPrefix(stdout, "deleted /lockkeeper/locks/deploy/write-v1.lk") || !strings.Contains(stderr, "deleted: 1 lease") || !strings.Contains(stderr, "waiting 500ms") {
		t.Errorf("exit %d, stdout %q, stderr:\n%s", code, stdout, stderr)
	}
	assert.Equal(t, left(), 1, "are left")
	for args, want := range map[string]struct {
		code int
		says string
	}{
		"sweep":                                   {exitUsage, "neither --zk nor --data-dir"},
		"sweep --zk " + addr + " --root /other":   {exitConfig, "there is no Lockkeeper"},
		"sweep --data-dir /nowhere/that/exists":   {exitUsage, "has no store"},
		"sweep --zk " + addr + " --dry-run --all": {exitUsage, "--all"},
	} {
		code, _, stderr := command(t, strings.Fields(args)...)
		assert.That(t, code == want.code && strings.Contains(stderr, want.says), "%s: exit %d:\n%s", args, code, stderr)
	}
}

func TestADataDirectoryIsSweptWithoutWaiting(t *testing.T) {
	addr, _ := oneLease(t)
	dir := t.TempDir()
	for _, args := range []string{"export --zk " + addr + " --output " + dir + "/x.export", "import --data-dir " + dir + "/data --input " + dir + "/x.export"} {
		code, _, stderr := command(t, strings.Fields(args)...)
		assert.Must(t, code == 0, "%s: exit %d:\n%s", args, code, stderr)
	}
	code, stdout, stderr := command(t, "sweep", "--data-dir", dir+"/data")
	assert.That(t, code == 0 && strings.Count(stdout, "deleted ") == 1 && !strings.Contains(stderr, "waiting"),
		"exit %d, stdout %q, stderr:\n%s", code, stdout, stderr)
	_, stdout, _ = command(t, "sweep", "--data-dir", dir+"/data")
	assert.Equal(t, stdout, "", "once more")
}
