package templates

import (
	"time"

	"github.com/a-h/templ"
)

// viewerSamples are pages of a gateway that asks for credentials.
func viewerSamples(now time.Time) map[string]templ.Component {
	bare := page(now, "Log in · Lockkeeper")
	bare.Bare, bare.Live, bare.Poll = true, "", ""
	of := func(name string) Page {
		p := page(now, "Locks · Lockkeeper")
		p.Viewer = &Viewer{Name: name, LogOut: true}
		p.Status.Partial, p.Status.Locks, p.Status.Contenders, p.Status.Held, p.Status.Waiting = true, 0, 0, 0, 0
		p.Live, p.Poll = "/ui/live?still", "/ui/poll?still"
		return p
	}
	team := overviewSample(now)
	team.Page, team.Rows = of("corp:ann.with.a.rather.long.name@engineering.example.com"), team.Rows[:3]
	lock := lockSample(now, 3)
	lock.Page, lock.Revoke = of("token:ci-shop"), "/v1/locks/sample/revoke"
	for _, list := range [][]Contender{lock.Holders, lock.Waiters} {
		for i := range list {
			list[i].Break = ""
		}
	}
	reader := overviewSample(now)
	reader.Viewer = &Viewer{Name: "not logged in", LogIn: "/login"}
	noRole := bare
	noRole.Viewer = &Viewer{Name: "token:nothing", LogOut: true}
	return map[string]templ.Component{
		"/login":         LoginPage(Login{Page: bare, Next: "/"}),
		"/login-issuers": LoginPage(Login{Page: bare, Issuers: []string{"corp", "partners"}, Next: "/locks/deploy", Notice: "The session has ended. Log in again."}),
		"/login-refused": LoginPage(Login{Page: bare, Next: "/", Problem: "The API token must be one that this fleet has, not revoked and not expired: gateway token create makes one."}),
		"/evil-login":    LoginPage(Login{Page: bare, Issuers: []string{hostile}, Next: hostile, Notice: hostile, Problem: hostile}),
		"/no-role": ProblemPage(Problem{Page: noRole, Status: 403, Title: "Nothing here is yours to see", LogIn: "/login",
			Detail: "You are token:nothing. No role of the gateway's file of rules lets you read a lock: ask its operator for one."}),
		"/team": OverviewPage(team), "/team-lock": LockPage(lock), "/reader": OverviewPage(reader),
	}
}
