package migrate

import (
	"strings"
	"testing"

	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

// Leases with configured names are this fleet's like all others, and
// keep those names and their modes.
func TestLeasesWithHomeMadeNamesAreMoved(t *testing.T) {
	t.Parallel()
	from, to := server(t), server(t)
	from.Root, to.Root = "/lockkeeper", "/lockkeeper"
	s := newSite(t, from)
	const record = `{"root":"/hosts","dialect":"custom exclusive={id}-W- shared={id}-R- foreign-shared=-R-$"}`
	naming := assert.Value(recipe.ParseNaming("custom exclusive={id}-W- shared={id}-R-"))(t)
	s.put(s.cfg.Root+"/namespaces/hosts", record)
	s.put("/hosts", "")
	s.put("/hosts/x", "")
	var want []string
	for _, c := range []recipe.Contender{{Mode: recipe.Shared, FirstCzxid: 1}, {Mode: recipe.Exclusive}} {
		c.LeaseID = newLease(t, s.fleet)
		c = naming.Contenders(c)[0]
		s.commit(zk.Op{Kind: zk.OpCreate, Path: "/hosts/x/" + naming.Prefix(&c), Sequential: true, Data: []byte(`{}`)})
		c.FirstCzxid = 0 // another ZooKeeper's
		want = append(want, naming.Prefix(&c))
	}
	a, sum, err := Export(testContext(t), from, ExportOptions{})
	assert.Must(t, err == nil && sum.Held == 1 && sum.Waiting == 1, "%+v, %v", sum, err)
	assert.Value(Import(testContext(t), to, throughFile(t, a), ImportOptions{}))(t)
	names, _, err := openOffline(t, to).Children(testContext(t), "/hosts/x")
	assert.Must(t, err == nil && len(names) == 2, "%q, %v", names, err)
	for i, prefix := range want {
		all := strings.Join(names, " ")
		assert.That(t, strings.Contains(all, prefix+"000000000"+string(rune('0'+i))), "%s lacks %s as the number %d", all, prefix, i)
	}
}
