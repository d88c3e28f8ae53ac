// Package apitest is the HTTP client of every end-to-end test. It reports, as a failure of the test, each response that
// openapi.yaml does not describe: a status that the operation does not list, a body or header that its schema does not
// allow, a member that no schema names (the published schemas are open, for version 1 grows; here they are closed), a
// problem that contradicts its own headers.
//
// A Client may be used by many goroutines at once. Violations are reported with t.Errorf, which is allowed from any of
// them; what comes back as an error is the transport's (the gateway was killed, the context ended).
package apitest
