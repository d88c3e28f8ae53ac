// Package charttest holds the tests of deploy/helm/lockkeeper. Helm's own library checks the values, renders the
// templates and lints the chart; the types of Kubernetes and of the Prometheus operator say whether they understand each
// object; and the gateway says whether it takes the settings of its pod and would start with them. No cluster is needed.
//
// What this cannot show is what only a cluster does: that volumes are bound, that a NetworkPolicy is enforced.
package charttest
