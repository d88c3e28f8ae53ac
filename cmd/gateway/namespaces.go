package main

import (
	"strings"

	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/layout"
)

const (
	namespaceHint = "for example --namespace python=/app/locks:kazoo; the dialects are native (the default), curator-rw, kazoo, all and custom"
	customHint    = "for example --namespace 'app=/app/locks:custom exclusive={id}-W- shared={id}-R-'; docs/operate/namespaces.md has the rules"
)

// namespaces reads --namespace: NAME=ROOT[:DIALECT]. A colon in the last part of
// a root needs a dialect behind it.
func (c *config) namespaces(chroot string) (map[string]zk.Namespace, error) {
	list := make(map[string]zk.Namespace, len(c.Namespace))
	for _, given := range c.Namespace {
		name, root, ok := strings.Cut(given, "=")
		if !ok {
			return nil, usage(namespaceHint, "--namespace %q is not NAME=ROOT[:DIALECT]", given)
		}
		root, dialect := splitDialect(root)
		naming, err := recipe.ParseNaming(dialect)
		if err != nil {
			hint := namespaceHint
			if strings.HasPrefix(dialect, string(recipe.Custom)) {
				hint = customHint
			}
			return nil, usage(hint, "--namespace %q: the dialect %q: %w", given, dialect, err)
		}
		if err := layout.CheckNamespaceName(name); err != nil {
			return nil, usage(namespaceHint, "--namespace %q: %w", given, err)
		}
		if _, twice := list[name]; twice {
			return nil, usage("give each namespace once", "--namespace: %s is there twice", name)
		}
		list[name] = zk.Namespace{Root: root, Dialect: naming.String()}
	}
	// What contradicts itself need not wait for ZooKeeper.
	check := zk.Config{Chroot: chroot, Root: c.Root}
	if err := layout.CheckNamespaces(&check, list); err != nil {
		return nil, err
	}
	return list, nil
}

// splitDialect takes a root and the dialect behind it apart. What belongs to a custom
// dialect may have slashes and colons of its own.
func splitDialect(s string) (root, dialect string) {
	behind := ":" + string(recipe.Custom) + " "
	if at := strings.Index(s, behind); at >= 0 {
		return s[:at], s[at+1:]
	}
	if i := strings.LastIndexByte(s, ':'); i > strings.LastIndexByte(s, '/') {
		return s[:i], s[i+1:]
	}
	return s, string(recipe.Native)
}
