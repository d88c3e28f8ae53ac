package main

import (
	"strings"

	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/zk"
)

const namespaceHint = "for example --namespace python=/app/locks:kazoo; the dialects are native (the default), curator-rw, kazoo and all"

// namespaces reads --namespace: NAME=ROOT[:DIALECT]. A colon in the last part of
// a root needs a dialect behind it.
func (c *config) namespaces(chroot string) (map[string]zk.Namespace, error) {
	list := make(map[string]zk.Namespace, len(c.Namespace))
	for _, given := range c.Namespace {
		name, root, ok := strings.Cut(given, "=")
		if !ok {
			return nil, usage(namespaceHint, "--namespace %q is not NAME=ROOT[:DIALECT]", given)
		}
		dialect := string(recipe.Native)
		if i := strings.LastIndexByte(root, ':'); i > strings.LastIndexByte(root, '/') {
			root, dialect = root[:i], root[i+1:]
		}
		if _, known := recipe.ParseDialect(dialect); !known {
			return nil, usage(namespaceHint, "--namespace %q: there is no dialect %q", given, dialect)
		}
		if err := zk.CheckNamespaceName(name); err != nil {
			return nil, usage(namespaceHint, "--namespace %q: %w", given, err)
		}
		if _, twice := list[name]; twice {
			return nil, usage("give each namespace once", "--namespace: %s is there twice", name)
		}
		list[name] = zk.Namespace{Root: root, Dialect: dialect}
	}
	// What contradicts itself need not wait for ZooKeeper.
	check := zk.Config{Chroot: chroot, Root: c.Root}
	if err := check.CheckNamespaces(list); err != nil {
		return nil, err
	}
	return list, nil
}
