// Package api is openapi.yaml in Go: the types of requests and answers, and a
// client. Everything in it but this file is generated; the server encodes
// these types, the test client and the public client decode them, so that
// neither side can have a shape of its own.
package api

//go:generate go tool oapi-codegen -config oapi-codegen.yaml ../../../openapi.yaml
