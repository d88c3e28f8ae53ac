package migrate

import (
	"context"
	"slices"
	"strings"

	"lockkeeper/internal/zk"
)

// isToken reports whether a node of an archive is the record of an API token.
func isToken(path string) bool { return strings.HasPrefix(path, zk.NodeTokens+"/") }

// dropForgedTokens leaves behind the records of API tokens that others than the fleet could have written: the target would
// take them for the fleet's own. Without an identity that is each of them.
func (e *exporter) dropForgedTokens(ctx context.Context) error {
	forged := make([]bool, len(e.a.Nodes))
	err := e.each(ctx, "checking API tokens", len(forged), func(ctx context.Context, i int) error {
		if !isToken(e.a.Nodes[i].Path) {
			return nil
		}
		changes, fits, err := e.ACLChanges(ctx, e.Root()+e.a.Nodes[i].Path)
		forged[i] = !fits || changes != 0
		return err
	})
	if err != nil {
		return err
	}
	var kept []Node
	for i, n := range e.a.Nodes {
		if forged[i] {
			e.sum.TokensLeft++
		} else {
			kept = append(kept, n)
		}
	}
	e.a.Nodes = kept
	return nil
}

// dropTokens leaves behind all API tokens: without an identity of the fleet every client of ZooKeeper could read the hashes, and
// make tokens.
func (c *content) dropTokens() {
	c.nodes = slices.DeleteFunc(c.nodes, func(n Node) bool {
		if isToken(n.Path) {
			c.tokensLeft++
		}
		return isToken(n.Path)
	})
}
