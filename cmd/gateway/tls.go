package main

import (
	"errors"
	"log/slog"

	"lockkeeper/internal/certs"
	"lockkeeper/internal/metrics"
)

// tlsFlags are the flags about the certificates of clients and gateways.
type tlsFlags struct {
	CertFile     string `name:"tls-cert-file" placeholder:"FILE" help:"The gateway's certificate (PEM), and after it those that lead to its authority. With it --listen and --fleet-listen speak TLS alone, HTTP/1.1 and HTTP/2. It is read again when it changes, like all files of certificates."`
	KeyFile      string `name:"tls-key-file" placeholder:"FILE" help:"The private key of --tls-cert-file (PEM). Must not be readable by others."`
	ClientCAFile string `name:"tls-client-ca-file" placeholder:"FILE" help:"Certificates (PEM) of the authorities whose certificates clients of --listen may show. A client need not show one; a connection with one of another authority is refused."`
}

func (f *tlsFlags) on() bool { return f.CertFile != "" }

func (f *tlsFlags) check() error {
	if (f.CertFile == "") != (f.KeyFile == "") {
		return usage("give both, or neither", "--tls-cert-file and --tls-key-file must be given together")
	}
	if f.ClientCAFile != "" && !f.on() {
		return usage("give --tls-cert-file and --tls-key-file, too", "--tls-client-ca-file needs TLS")
	}
	return nil
}

// certificates loads what the gateway shows to clients and to other gateways, and by what it judges theirs.
func (c *config) certificates(logger *slog.Logger, m *metrics.Metrics) (*certs.Source, error) {
	return loadCertificates(certs.Options{Name: "gateway", Logger: logger, Metrics: m, Files: certs.Files{
		Cert: certs.File{Flag: "--tls-cert-file", Path: c.TLS.CertFile}, Key: certs.File{Flag: "--tls-key-file", Path: c.TLS.KeyFile},
		Clients: certs.File{Flag: "--tls-client-ca-file", Path: c.TLS.ClientCAFile}, Servers: certs.File{Flag: "--peer-ca-file", Path: c.PeerCAFile}}})
}

func loadCertificates(o certs.Options) (*certs.Source, error) {
	source, err := certs.Load(o)
	if e, ok := errors.AsType[*certs.Error](err); ok {
		return nil, &problemError{code: exitConfig, err: e, hint: e.Hint}
	}
	return source, err
}
