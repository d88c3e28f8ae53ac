package dashboard

import (
	"context"
	"strings"

	"github.com/a-h/templ"

	"lockkeeper/internal/locks"
	"lockkeeper/web/templates"
)

const pageNamespaces = "namespaces"

// namespacesPage is the list of namespaces.
type namespacesPage struct{ plain }

func (namespacesPage) name() string  { return pageNamespaces }
func (namespacesPage) title() string { return "Namespaces" }

func (namespacesPage) read(ctx context.Context, from *Options, as reading) (content, error) {
	shown := &namespacesContent{templates.Namespaces{Page: as.frame}}
	list, err := from.Locks.Namespaces(ctx, as.who)
	if err != nil {
		shown.Problem = problemOf(err)
		return shown, err
	}
	for i := range list {
		shown.Rows = append(shown.Rows, spaceRowOf(&list[i]))
	}
	return shown, nil
}

type namespacesContent struct{ templates.Namespaces }

func (c *namespacesContent) document() templ.Component { return templates.NamespacesPage(c.Namespaces) }
func (c *namespacesContent) parts() []part {
	return []part{{"namespaces", templates.NamespacesFragment(c.Namespaces)}}
}

// spaceRowOf is the row of a namespace.
func spaceRowOf(n *locks.NamespaceInfo) templates.NamespaceRow {
	row := templates.NamespaceRow{Name: visible(n.Name), Root: visible(n.Root), Dialect: n.Dialect, Ready: n.Ready, Problem: visible(n.Problem),
		Locks: n.Locks, Hazards: n.Hazardous}
	if n.Problem != "" {
		row.Problem = sentence(row.Problem)
	}
	for _, names := range []string{n.Names.Exclusive, n.Names.Shared} {
		if names != "" {
			row.Names = strings.TrimPrefix(row.Names+" "+visible(names), " ")
		}
	}
	if n.Ready {
		row.URL = urlOf(overviewPage{ns: n.Name})
		row.HazardsURL = urlOf(overviewPage{ns: n.Name, state: stateHazard})
	}
	return row
}
