// Package deploytest holds the tests of what is in deploy/ and of compose.yaml: that each file means what it is meant
// to, by the word of the program that it is for (systemd-analyze, promtool, nginx) or of that program's own types
// (compose-go, k8s.io/api), and that the gateway is started with settings that it takes. What runs on a live gateway
// (the dashboard's queries, nginx in front of two of them) is in internal/test/e2e.
package deploytest
