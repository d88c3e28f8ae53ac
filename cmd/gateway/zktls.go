package main

import (
	"cmp"
	"errors"
	"log/slog"

	"lockkeeper/internal/certs"
	"lockkeeper/internal/metrics"
	"lockkeeper/internal/zk"
)

// zkTLSFlags are the flags about TLS to the servers of --zk.
type zkTLSFlags struct {
	On       bool   `name:"zk-tls" help:"Speak TLS with the servers of --zk: name the ports that they have as secureClientPort. Their certificates have to be good for the names, or addresses, in --zk."`
	CAFile   string `name:"zk-ca-file" placeholder:"FILE" help:"Certificates (PEM) of the authorities of these servers; those that the system trusts unless given."`
	CertFile string `name:"zk-cert-file" placeholder:"FILE" help:"The certificate (PEM) that the gateway shows to these servers. Without --zk-auth-file the name that ZooKeeper finds in it (x509) is the fleet's identity: the certificates of all gateways must have the same one."`
	KeyFile  string `name:"zk-key-file" placeholder:"FILE" help:"The private key of --zk-cert-file (PEM). Must not be readable by others."`
}

func (f *zkTLSFlags) check(zk string) error {
	switch {
	case f.On && zk == "":
		return usage("name the servers with --zk zk1:2281,zk2:2281,zk3:2281", "--zk-tls is about the servers of --zk, and there are none")
	case !f.On && cmp.Or(f.CAFile, f.CertFile, f.KeyFile) != "":
		return usage("add --zk-tls, and the ports that the servers have as secureClientPort to --zk", "--zk-ca-file, --zk-cert-file and --zk-key-file need --zk-tls")
	case (f.CertFile == "") != (f.KeyFile == ""):
		return usage("give both, or neither", "--zk-cert-file and --zk-key-file must be given together")
	}
	return nil
}

// identified reports whether the fleet has an identity at the servers of --zk.
func (c *config) identified() bool { return c.ZKAuthFile != "" || c.ZKTLS.CertFile != "" }

// zkCertificates loads what the gateway shows to ZooKeeper, and by what it judges its servers; nil without --zk-tls.
func (c *config) zkCertificates(logger *slog.Logger, m *metrics.Metrics) (*certs.Source, error) {
	if err := c.ZKTLS.check(c.ZK); err != nil || !c.ZKTLS.On {
		return nil, err
	}
	o := certs.Options{Name: "zookeeper", Logger: logger, Files: certs.Files{Cert: certs.File{Flag: "--zk-cert-file", Path: c.ZKTLS.CertFile},
		Key: certs.File{Flag: "--zk-key-file", Path: c.ZKTLS.KeyFile}, Servers: certs.File{Flag: "--zk-ca-file", Path: c.ZKTLS.CAFile}}}
	if m != nil {
		o.Metrics = m
	}
	source, err := loadCertificates(o)
	if err == nil && c.ZKTLS.CertFile != "" && !source.ForClients() {
		return nil, &problemError{code: exitConfig, err: errors.New("--zk-cert-file " + c.ZKTLS.CertFile + ": it is for servers alone, and the gateway is ZooKeeper's client"),
			hint: "give a certificate whose extended key usage has clientAuth"}
	}
	return source, err
}

// secure has ZooKeeper reached over TLS.
func (c *config) secure(cfg *zk.Config, source *certs.Source) {
	if source == nil {
		return
	}
	cfg.Dial = zk.OverTLS(source.Client)
	if cfg.Auth == nil && c.ZKTLS.CertFile != "" {
		cfg.Certificate = new(zk.CertificateAuth)
	}
}
