package templates

// htmxConfig is what htmx reads from the page's head. Its own style element
// would break the content security policy. An open <details> stays open when its
// fragment is pushed (morphIgnore), and a ticking time is the page's, not the
// push's (morphSkipChildren). Locks change all the time: going back in the
// history reloads the page.
const htmxConfig = `{
	"includeIndicatorCSS": false,
	"history": "reload",
	"defaultSwap": "none",
	"extensions": "ws, rows",
	"morphIgnore": ["data-htmx-powered", "open", "data-on", "data-copied", "stroke-dasharray"],
	"morphSkipChildren": "time[data-since], time[data-until], time[data-ago], time[data-about], time[data-clock], [data-origin]",
	"ws": {
		"reconnectDelay": 500,
		"reconnectMaxDelay": 8000,
		"reconnectCodes": [1000, 1001, 1005, 1006, 1008, 1009, 1011, 1012, 1013, 1014]
	}
}`
