package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"lockkeeper/internal/locks/manager"
	"lockkeeper/internal/metrics"
	"lockkeeper/internal/secretfile"
	"lockkeeper/internal/traces"
)

// traceFlags are the flags about traces.
type traceFlags struct {
	OTLP      string `name:"otlp" placeholder:"URL|env" help:"Export a span for each request, wait and hold to this OpenTelemetry collector, by OTLP over HTTP: http://127.0.0.1:4318, to which /v1/traces is added. env takes OTEL_EXPORTER_OTLP_ENDPOINT. The other standard variables OTEL_... hold too, such as OTEL_TRACES_SAMPLER. Off unless given."`
	Headers   string `name:"otlp-headers-file" placeholder:"FILE" help:"Headers for the collector, each on a line: NAME: VALUE. Must not be readable by others. Those of OTEL_EXPORTER_OTLP_HEADERS unless given."`
	Plaintext bool   `name:"otlp-plaintext" help:"Let --otlp be http:// to another machine: names of locks, owners and the headers cross the network as they are."`
}

// flushWithin bounds how long the end of the process waits for the collector.
const flushWithin = 5 * time.Second

// Bounds of --otlp-headers-file.
const (
	maxHeadersFile = 16 << 10
	maxHeaders     = 32
)

// endpoint is the URL that spans are posted to; "" when traces are off. Errors do not have the URL, which may hold a password.
func (f *traceFlags) endpoint(env func(string) string) (string, error) {
	if f.OTLP == "" {
		if f.Headers != "" || f.Plaintext {
			return "", usage("add --otlp http://127.0.0.1:4318, or leave them out", "--otlp-headers-file and --otlp-plaintext need --otlp")
		}
		return "", nil
	}
	given, path, from := f.OTLP, "/v1/traces", "--otlp"
	if given == "env" {
		if given, path, from = env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), "", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"; given == "" {
			given, path, from = env("OTEL_EXPORTER_OTLP_ENDPOINT"), "/v1/traces", "OTEL_EXPORTER_OTLP_ENDPOINT"
		}
		if given == "" {
			return "", usage("set OTEL_EXPORTER_OTLP_ENDPOINT, or give the collector's URL: --otlp http://127.0.0.1:4318", "--otlp env needs OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
		}
	}
	refuse := func(hint, format string, args ...any) (string, error) {
		return "", usage(hint, "%s "+format, append([]any{from}, args...)...)
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		if p := env(name); p != "" && p != "http/protobuf" && p != "http/json" {
			return "", usage("leave it out, and give the collector's port for OTLP over HTTP, which is 4318", "%s must be http/protobuf or http/json", name)
		}
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"} {
		for pair := range strings.SplitSeq(env(name), ",") {
			if key, _, ok := strings.Cut(pair, "="); pair != "" && (!ok || strings.TrimSpace(key) == "") {
				return "", usage("for example "+name+"=x-api-key=...", "%s must be NAME=VALUE,...", name)
			}
		}
	}
	u, err := url.Parse(given)
	switch {
	case err != nil, u.Hostname() == "", u.Scheme != "http" && u.Scheme != "https":
		return refuse("for example --otlp http://127.0.0.1:4318", "must be the http:// or https:// URL of a collector, or env")
	case u.User != nil, u.RawQuery != "", u.Fragment != "":
		return refuse("put credentials into --otlp-headers-file", "must have no user, password, query or fragment: settings are printed and seen in process lists")
	case u.Scheme == "http" && !loopback(u.Hostname()) && !f.Plaintext:
		return refuse("use https://, a collector on this machine, or add --otlp-plaintext", "is http:// to another machine (%s): names of locks and owners would cross the network as they are", u.Host)
	}
	if path != "" {
		u = u.JoinPath(path)
	}
	return u.String(), nil
}

// headers reads --otlp-headers-file; nil without one.
func (f *traceFlags) headers() (map[string]string, error) {
	if f.Headers == "" {
		return nil, nil
	}
	refuse := func(hint, format string, args ...any) error {
		return &problemError{code: exitConfig, err: fmt.Errorf("--otlp-headers-file "+f.Headers+": "+format, args...), hint: hint}
	}
	data, err := secretfile.Read(f.Headers, maxHeadersFile)
	if _, open := errors.AsType[*secretfile.OpenError](err); open {
		return nil, refuse("chmod 600 "+f.Headers, "%w", err)
	}
	if err != nil {
		return nil, refuse("create it with a header on each line: NAME: VALUE", "%w", err)
	}
	list := map[string]string{}
	n := 0
	for line := range strings.Lines(string(data)) {
		n++
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !ok || !httpguts.ValidHeaderFieldName(name) || value == "" || !httpguts.ValidHeaderFieldValue(value) {
			return nil, refuse("for example: Authorization: Bearer ...", "line %d must be NAME: VALUE", n)
		}
		list[name] = value
	}
	if len(list) == 0 || len(list) > maxHeaders {
		return nil, refuse("a header on each line: NAME: VALUE", "it must have 1 to %d headers", maxHeaders)
	}
	return list, nil
}

// tracer exports the gateway's traces; nil when they are off.
func (f *traceFlags) tracer(logger *slog.Logger, m *metrics.Metrics) (*traces.Tracer, error) {
	endpoint, err := f.endpoint(os.Getenv)
	if err != nil || endpoint == "" || strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return nil, err
	}
	headers, err := f.headers()
	if err != nil {
		return nil, err
	}
	t, err := traces.New(traces.Options{Endpoint: endpoint, Headers: headers, Secrets: secretsOf(headers, os.Getenv), Version: version(), Log: logger, Metrics: m})
	if err != nil {
		return nil, usage("see docs/guides/traces.md", "--otlp: %w", err)
	}
	logger.Info("traces are exported", "to", endpoint)
	return t, nil
}

// secretsOf are the values of the headers for the collector, which no line of the log may have.
func secretsOf(headers map[string]string, env func(string) string) (list []string) {
	add := func(value string) {
		if value = strings.TrimSpace(value); value != "" {
			list = append(list, value)
		}
		if _, credential, ok := strings.Cut(value, " "); ok { // Bearer ...
			list = append(list, credential)
		}
	}
	for _, value := range headers {
		add(value)
	}
	for pair := range strings.SplitSeq(cmp.Or(env("OTEL_EXPORTER_OTLP_TRACES_HEADERS"), env("OTEL_EXPORTER_OTLP_HEADERS")), ",") {
		_, value, _ := strings.Cut(pair, "=")
		add(value)
		if plain, err := url.PathUnescape(value); err == nil {
			add(plain)
		}
	}
	return list
}

// leaseTraces gets the waits and holds of leases; nil without --otlp.
func (g *gateway) leaseTraces() manager.Traces {
	if g.traces == nil {
		return nil
	}
	return g.traces
}

// endTraces exports what waits.
func (g *gateway) endTraces() {
	ctx, cancel := context.WithTimeout(context.Background(), flushWithin)
	defer cancel()
	if err := g.traces.Shutdown(ctx); err != nil {
		g.log.Warn("not all traces were exported before the end", "err", err)
	}
}
