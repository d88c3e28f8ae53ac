package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
)

func TestWhereTracesGoIsCheckedAtTheStart(t *testing.T) {
	const hidden = "hunter2"
	for _, c := range []struct {
		flags traceFlags
		env   string
		want  string // the endpoint; else
		wrong string // a part of the error
	}{
		{traceFlags{}, "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318", "", ""},
		{traceFlags{OTLP: "http://127.0.0.1:4318"}, "", "http://127.0.0.1:4318/v1/traces", ""},
		{traceFlags{OTLP: "http://localhost:4318/"}, "", "http://localhost:4318/v1/traces", ""},
		{traceFlags{OTLP: "http://[::1]:4318"}, "", "http://[::1]:4318/v1/traces", ""},
		{traceFlags{OTLP: "https://collector.example.com/otlp"}, "", "https://collector.example.com/otlp/v1/traces", ""},
		{traceFlags{OTLP: "http://collector:4318", Plaintext: true}, "", "http://collector:4318/v1/traces", ""},
		{traceFlags{OTLP: "env"}, "OTEL_EXPORTER_OTLP_ENDPOINT=https://c:4318", "https://c:4318/v1/traces", ""},
		{traceFlags{OTLP: "env"}, "OTEL_EXPORTER_OTLP_ENDPOINT=https://c:4318 OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=https://t:4318/in", "https://t:4318/in", ""},
		{traceFlags{OTLP: "http://127.0.0.1:4318"}, "OTEL_EXPORTER_OTLP_PROTOCOL=http/json OTEL_EXPORTER_OTLP_HEADERS=a=b,c=d", "http://127.0.0.1:4318/v1/traces", ""},

		{traceFlags{OTLP: "env"}, "", "", "--otlp env needs OTEL_EXPORTER_OTLP_ENDPOINT"},
		{traceFlags{OTLP: "env"}, "OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318", "", "OTEL_EXPORTER_OTLP_ENDPOINT is http:// to another machine (c:4318)"},
		{traceFlags{OTLP: "http://collector:4318"}, "", "", "--otlp is http:// to another machine"},
		{traceFlags{OTLP: "127.0.0.1:4318"}, "", "", "--otlp must be the http:// or https:// URL"},
		{traceFlags{OTLP: "grpc://127.0.0.1:4317"}, "", "", "--otlp must be"},
		{traceFlags{OTLP: "https://me:" + hidden + "@collector"}, "", "", "--otlp must have no user"},
		{traceFlags{OTLP: "https://collector/?key=" + hidden}, "", "", "--otlp must have no user, password, query"},
		{traceFlags{OTLP: "https://col lector/" + hidden}, "", "", "--otlp must be"},
		{traceFlags{OTLP: "https://collector"}, "OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "", "OTEL_EXPORTER_OTLP_PROTOCOL must be http/protobuf"},
		{traceFlags{OTLP: "https://collector"}, "OTEL_EXPORTER_OTLP_HEADERS=" + hidden, "", "OTEL_EXPORTER_OTLP_HEADERS must be NAME=VALUE"},
		{traceFlags{Headers: "file"}, "", "", "need --otlp"},
		{traceFlags{Plaintext: true}, "", "", "need --otlp"},
	} {
		env := map[string]string{}
		for pair := range strings.FieldsSeq(c.env) {
			key, value, _ := strings.Cut(pair, "=")
			env[key] = value
		}
		got, err := c.flags.endpoint(func(name string) string { return env[name] })
		assert.Equal(t, got, c.want, "%+v %s", c.flags, c.env)
		if c.wrong == "" {
			assert.NoError(t, err, "%+v %s", c.flags, c.env)
			continue
		}
		problem, ok := errors.AsType[*problemError](err)
		assert.Must(t, ok && strings.Contains(err.Error(), c.wrong), "%+v %s: %v", c.flags, c.env, err)
		assert.That(t, problem.hint != "" && !strings.Contains(err.Error()+problem.hint, hidden), "%v, %s", err, problem.hint)
	}
}

func TestTheCollectorsHeadersAreInAFileOfOneUser(t *testing.T) {
	const hidden = "hunter2"
	path := filepath.Join(t.TempDir(), "headers")
	read := func(text string, mode os.FileMode) (map[string]string, error) {
		assert.NoError(t, os.RemoveAll(path))
		assert.NoError(t, os.WriteFile(path, []byte(text), mode))
		return (&traceFlags{OTLP: "https://collector", Headers: path}).headers()
	}
	got, err := read("# of the collector\nAuthorization: Bearer "+hidden+"\n\nx-scope:a:b\n", 0o600)
	assert.NoError(t, err)
	assert.That(t, len(got) == 2 && got["Authorization"] == "Bearer "+hidden && got["x-scope"] == "a:b", "%v", got)
	assert.Equal(t, strings.Join(secretsOf(map[string]string{"Authorization": "Bearer " + hidden}, func(string) string { return "" }), ","), "Bearer "+hidden+","+hidden)
	assert.Equal(t, strings.Join(secretsOf(nil, func(name string) string { return map[string]string{"OTEL_EXPORTER_OTLP_HEADERS": "a=b%20c"}[name] }), ","), "b%20c,b c,c")
	for _, c := range []struct {
		text, wrong string
		mode        os.FileMode
	}{
		{"a: " + hidden, "others can read it", 0o644},
		{"", "1 to 32 headers", 0o600},
		{"a: b\n" + hidden, "line 2 must be NAME: VALUE", 0o600},
		{"a b: " + hidden, "line 1", 0o600},
		{"a: " + hidden + "\x01", "line 1", 0o600},
		{"a:", "line 1", 0o600},
		{strings.Repeat("a", maxHeadersFile+1), "at most", 0o600},
	} {
		_, err := read(c.text, c.mode)
		problem, ok := errors.AsType[*problemError](err)
		assert.That(t, ok && problem.code == exitConfig && problem.hint != "" && strings.Contains(err.Error(), c.wrong) && !strings.Contains(err.Error(), hidden), "%q: %v", c.text, err)
	}
	_, err = (&traceFlags{Headers: path + "-missing"}).headers()
	assert.That(t, err != nil, "a file that is missing")
}
