package dashboard

import (
	"context"
	"net/http"
	"strings"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/web/templates"
)

// searchPath is where pages ask for the results of their search.
const searchPath = uiPrefix + "search"

const (
	// searchResults is how many results a search shows, and searchOfKind how many of each kind.
	searchResults = 20
	searchOfKind  = 8
)

// search answers with the results for a text, for the dialog of a page.
func (d *Dashboard) search(w http.ResponseWriter, r *http.Request) {
	values, wrong := parameters(r)
	if wrong == nil {
		wrong = only(values, []string{"q"})
	}
	if wrong != nil {
		d.refuse(w, r, wrong)
		return
	}
	text := strings.TrimSpace(values.Get("q"))
	found := locks.Found{}
	if text != "" {
		var err error
		if found, err = d.find(r.Context(), locks.FindRequest{Principal: visitor(r), Text: text, Limit: searchOfKind}); err != nil {
			if wrong := refusalOf(err); wrong != nil {
				d.failed(r, wrong, err)
				d.refuse(w, r, wrong)
				return
			}
			html, err := render(r.Context(), templates.SearchFragment(templates.Search{Query: text, Problem: problemOf(err)}))
			d.answer(w, r, http.StatusOK, html, err)
			return
		}
	}
	html, err := render(r.Context(), templates.SearchFragment(d.resultsOf(text, &found, visitor(r))))
	d.answer(w, r, http.StatusOK, html, err)
}

// find searches. Searches take turns with the pages that look at every lock.
func (d *Dashboard) find(ctx context.Context, req locks.FindRequest) (locks.Found, error) {
	select {
	case d.searching <- struct{}{}:
		defer func() { <-d.searching }()
	case <-ctx.Done():
		return locks.Found{}, context.Cause(ctx)
	}
	return d.opt.Locks.Find(ctx, req)
}

// resultsOf puts what was found in groups: what is named exactly first, then locks, owners, hosts, and pages.
func (d *Dashboard) resultsOf(text string, found *locks.Found, who locks.Principal) templates.Search {
	s := templates.Search{Query: text, More: found.More, Stopped: found.Stopped}
	left := searchResults
	add := func(kind string, list []templates.Result) {
		if len(list) > left {
			list, s.More = list[:left], true
		}
		if left -= len(list); len(list) > 0 {
			s.Groups = append(s.Groups, templates.ResultGroup{Kind: kind, Results: list})
		}
	}
	var contenders, names, owners, hosts []templates.Result
	for i := range found.Contenders {
		c := &found.Contenders[i]
		what := "waits for " + lockLink(c.NS, c.Lock).Name
		if c.Position == 0 {
			what = "holds " + lockLink(c.NS, c.Lock).Name
		}
		contenders = append(contenders, templates.Result{Name: templates.WhoName(whoOf(&c.Contender)), Says: what, URL: contenderURL(c.NS, c.Lock, standingID(&locks.Standing{LeaseID: c.LeaseID, Znode: c.Znode}))})
	}
	exact := false
	for i := range found.Locks {
		l := &found.Locks[i]
		link := lockLink(l.NS, l.Name)
		exact = exact || l.NS == locks.DefaultNamespace && l.Name == text
		names = append(names, templates.Result{Name: link.Name, Says: countsOf(l.Holders, l.Waiting), URL: link.URL})
	}
	if link, free := freeLock(text, who); free && !exact {
		names = append(names, templates.Result{Name: link.Name, Says: "not in use: open its page", URL: link.URL})
	}
	for _, o := range found.Owners {
		owners = append(owners, templates.Result{Name: visible(o.Name), Says: countsOf(o.Holds, o.Waiting), URL: urlOf(ownerPage{owner: o.Name})})
	}
	for _, o := range found.Hosts {
		hosts = append(hosts, templates.Result{Name: visible(o.Name), Says: countsOf(o.Holds, o.Waiting), URL: urlOf(ownerPage{host: o.Name})})
	}
	add("Leases", contenders)
	add("Locks", names)
	add("Owners", owners)
	add("Hosts", hosts)
	add("Pages", matching(text, d.pageResults()))
	add("Actions", matching(text, actionResults))
	return s
}

// countsOf says how many hold and wait.
func countsOf(holds, waits int) string {
	return templates.Counted(holds, "holder") + ", " + templates.Count(waits) + " waiting"
}

// freeLock is the page of the lock with that name, where clients can take one.
func freeLock(text string, who locks.Principal) (templates.Link, bool) {
	ns, name := locks.DefaultNamespace, text
	if name == "" || locks.CheckPlace(&ns, &name) != nil || name != text || !who.Rules.May(access.Read, ns, name) {
		return templates.Link{}, false
	}
	return lockLink(ns, name), true
}

// pageResults are the pages that the navigation leads to.
func (d *Dashboard) pageResults() (list []templates.Result) {
	for _, link := range d.Navigation() {
		list = append(list, templates.Result{Name: link.Name, URL: link.URL})
	}
	return append(list, templates.Result{Name: "Documentation", URL: templates.DocsPath}, templates.Result{Name: "API", Says: "reference", URL: templates.ReferencePath})
}

// actionResults are what the page itself does.
var actionResults = []templates.Result{
	{Name: "Colours", Says: "auto, light, dark", Run: "theme"},
	{Name: "Keyboard shortcuts", Run: "keys"},
	{Name: "Copy the address of this page", Run: "copy"},
}

// matching are the results whose names or words have the text, in upper or lower case.
func matching(text string, list []templates.Result) (fits []templates.Result) {
	for _, r := range list {
		if strings.Contains(strings.ToLower(r.Name+" "+r.Says), strings.ToLower(text)) {
			fits = append(fits, r)
		}
	}
	return fits
}
