// Package authtest proves over HTTP who may do what. It is test support; no shipped code may import it.
//
// A World is a fleet of two gateways in virtual time (testing/synctest): the real HTTP server, manager, webhooks, dashboard,
// audit log, API tokens and rules on the embedded ZooKeeper of package zktest, with OIDC issuers, a client CA and receivers of
// webhooks beside it. Its tests are:
//
//   - table_test.go, rows.go: each route for each caller, at the lease's owner and through another gateway. The status is as the row says,
//     and a refusal has changed nothing: neither a node, nor a list, nor a deadline. A route without a row fails;
//   - canaries_test.go: two teams, each with a text of its own in each field that a team can set. No byte that one of them
//     receives has the other's text, and no line of a log has a secret;
//   - webhooks_test.go: what a webhook is sent is what its maker may read, and stops with the maker's rights;
//   - ends_test.go: what lives long ends when its caller's token is revoked or expires; an issuer that is away ends nothing;
//   - leasetokens_test.go: what the lease token alone gives, and what it never gives;
//   - hostile_test.go: what one team tries in order to learn of, or change, what belongs to the other.
//
// A gateway here is put together as cmd/gateway does it; internal/test/e2e asks the gateway as it is shipped the same routes.
package authtest
