package interop

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"lockkeeper/internal/httpapi/apitest"
	"lockkeeper/internal/testkit"
)

// pageHazards are the codes in docs/interop.md, which internal/locks holds against its own.
func pageHazards(t *testing.T) (codes []string) {
	page, err := os.ReadFile("../../docs/interop.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| code |")
	table, _, _ = strings.Cut(table, "\n\n")
	for line := range strings.Lines(table) {
		if code, _, ok := strings.Cut(strings.TrimPrefix(line, "| `"), "` |"); ok {
			codes = append(codes, code)
		}
	}
	return codes
}

// Every kind of hazard on ZooKeeper itself: shown while it lasts, counted, and told when it appears and when it is over. Who
// really does not wait for whom other tests have the programs say.
func TestEveryHazardIsShownCountedAndTold(t *testing.T) {
	const curator, hex32 = "_c_12345678-1234-1234-1234-123456789abc-", "0123456789abcdef0123456789abcdef"
	const mutex, write, read, latch, semaphore = curator + "lock-", curator + "__WRIT__", curator + "__READ__", curator + "latch-", curator + "lease-"
	const goZK, kazoo, kazooRead, named = "_c_" + hex32 + "-lock-", hex32 + "__lock__", hex32 + "__rlock__", hex32 + "-lock-"
	const hbase, hbaseRead, recipe = "write-", "read-", "x-72057594037927936-"
	type lock struct {
		ns     string   // "" for native
		theirs []string // prefixes of sequential nodes
		ours   string   // the mode of a lease that stands there first
		nodes  []string // as they are
	}
	table := map[string]lock{
		"numbers_without_order":                     {nodes: []string{"write-0000000001", "write-1500000000", "write--1500000000"}},
		"stray_child":                               {nodes: []string{"stray"}},
		"contender_in_lock_root":                    {},
		"unreadable_contender":                      {},
		"lock_invalid":                              {},
		"leases_in_foreign_semaphore":               {theirs: []string{semaphore}, ours: "exclusive"},
		"curator_beside_kazoo":                      {theirs: []string{mutex, kazoo}},
		"go_zookeeper_beside_kazoo":                 {theirs: []string{goZK, kazoo}},
		"kazoo_names_mixed":                         {theirs: []string{named, kazoo}},
		"kazoo_read_lock_beside_writers":            {ns: "kazoo", theirs: []string{kazooRead}, ours: "exclusive"},
		"curator_mutex_beside_read_write_lock":      {theirs: []string{mutex, write}},
		"go_zookeeper_beside_read_write_lock":       {theirs: []string{goZK, read}},
		"kazoo_beside_read_write_lock":              {theirs: []string{kazoo, write}},
		"hbase_beside_curator":                      {theirs: []string{hbase, mutex}},
		"hbase_beside_read_write_lock":              {theirs: []string{hbase, read}},
		"hbase_beside_kazoo":                        {theirs: []string{hbase, kazoo}},
		"hbase_beside_go_zookeeper":                 {theirs: []string{hbase, goZK}},
		"hbase_beside_writelock":                    {theirs: []string{hbaseRead, recipe}},
		"writelock_beside_curator":                  {theirs: []string{recipe, mutex}},
		"writelock_beside_read_write_lock":          {theirs: []string{recipe, write}},
		"writelock_beside_kazoo":                    {theirs: []string{recipe, kazoo}},
		"writelock_beside_go_zookeeper":             {theirs: []string{recipe, goZK}},
		"leader_latch_beside_locks":                 {theirs: []string{latch, mutex}},
		"semaphore_beside_locks":                    {theirs: []string{semaphore, mutex}},
		"leases_ignored_by_curator_mutex":           {ns: "kazoo", theirs: []string{mutex}, ours: "exclusive"},
		"leases_ignored_by_curator_read_write_lock": {theirs: []string{write}, ours: "exclusive"},
		"leases_ignored_by_leader_latch":            {ns: "all", theirs: []string{latch}, ours: "exclusive"},
		"leases_ignored_by_kazoo":                   {ns: "curator-rw", theirs: []string{kazoo}, ours: "exclusive"},
		"leases_ignored_by_kazoo_named":             {ns: "kazoo", theirs: []string{named}, ours: "exclusive"},
		"shared_leases_ignored_by_kazoo":            {ns: "all", theirs: []string{kazoo}, ours: "shared"},
		"leases_ignored_by_hbase":                   {ns: "kazoo", theirs: []string{hbaseRead}, ours: "exclusive"},
		"leases_ignored_by_writelock":               {ns: "curator-rw", theirs: []string{recipe}, ours: "exclusive"},
		"leases_unreadable_to_go_zookeeper":         {ns: "own", theirs: []string{goZK}, ours: "exclusive"},
	}
	if codes := pageHazards(t); !slices.Equal(slices.Sorted(slices.Values(codes)), slices.Sorted(maps.Keys(table))) {
		t.Fatalf("the page has %q, this test another list", codes)
	}
	w := newWorld(t)
	w.namespace("own", "custom exclusive={id}-W-")
	stranger, _, err := zk.Connect([]string{w.zkAddr}, steadySession, zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stranger.Close)
	if err := stranger.AddAuth("digest", []byte("other:program")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	events, _, err := w.Events(ctx, apitest.Query("format=jsonl&type=lock.hazard,lock.hazard_cleared"))
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	told := func(what, code, ns, lock string) {
		t.Helper()
		if e, err := events.Next(); err != nil || string(e.Type) != what || string(e.Code) != code || e.NS != ns || e.Lock != lock || (e.Detail == "") != (what != "lock.hazard") {
			t.Errorf("%s: %s, %v", code, e.JSON, err)
		}
	}
	shown := func(ns, lock, code string, n int) {
		t.Helper()
		testkit.EventuallyNil(t, patience, func() error {
			l, _, err := w.Lock(t.Context(), lock, apitest.Query("ns="+ns))
			if codes := codesOf(l); err == nil && (n == 1 && !slices.Equal(codes, []string{code}) || n == 0 && codes != nil) {
				err = fmt.Errorf("hazards %q, want %d of %s", codes, n, code)
			}
			return err
		}, "%s is shown", code)
		a, err := w.Send(t.Context(), http.MethodGet, "/metrics")
		if line := fmt.Sprintf("lockkeeper_hazards{code=%q} %d\n", code, n); err != nil || !strings.Contains(string(a.Body), line) {
			t.Errorf("the metrics lack %s %v", line, err)
		}
	}
	for i, code := range slices.Sorted(maps.Keys(table)) {
		c := table[code]
		ns, lock := c.ns, fmt.Sprintf("lock-%d", i)
		if ns == "" {
			ns = "native"
		}
		dir := w.root + "/" + ns + "/" + lock
		if code == "contender_in_lock_root" {
			lock = kazoo + "0000000005"
			dir = w.root + "/" + ns + "/" + lock
		}
		w.mkdir("/"+ns+"/"+lock, nil)
		var there []string
		create := func(conn *zk.Conn, path string, flags int32, acl []zk.ACL) {
			path, err := conn.Create(path, nil, flags, acl)
			if err != nil {
				t.Fatal(err)
			}
			there = append(there, path)
		}
		end := func() error { return nil }
		if c.ours != "" {
			lease, err := w.acquire(t.Context(), ns, lock, "ttl=60s&mode="+c.ours)
			if err != nil {
				t.Fatalf("%s: %v", code, err)
			}
			end = func() error { return w.release(t.Context(), lease) }
		}
		for _, prefix := range c.theirs {
			create(w.conn, dir+"/"+prefix, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
		}
		for _, name := range c.nodes {
			create(w.conn, dir+"/"+name, 0, zk.WorldACL(zk.PermAll))
		}
		if code == "unreadable_contender" {
			create(stranger, dir+"/"+goZK, zk.FlagEphemeral|zk.FlagSequence, zk.AuthACL(zk.PermAll))
			if _, err := w.acquire(t.Context(), ns, lock, ""); err == nil {
				t.Error("a lease beside it")
			}
		}
		if code == "lock_invalid" {
			create(w.conn, dir+"_INVALID", zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		}
		told("lock.hazard", code, ns, lock)
		shown(ns, lock, code, 1)
		for _, path := range slices.Backward(there) {
			if err := w.conn.Delete(path, -1); err != nil {
				t.Fatal(err)
			}
		}
		if code == "contender_in_lock_root" {
			if err := w.conn.Delete(dir, -1); err != nil {
				t.Fatal(err)
			}
		}
		told("lock.hazard_cleared", code, ns, lock)
		shown(ns, lock, code, 0)
		if err := end(); err != nil {
			t.Errorf("%s: %v", code, err)
		}
	}
}
