package certs

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"
)

const (
	// pollEvery is how often the files are read.
	pollEvery = 5 * time.Second
	// warnBefore is how long before a certificate expires the log says so, at most; a sixth of its time if that is less.
	warnBefore = 14 * 24 * time.Hour
	// warnEvery is how often it repeats that.
	warnEvery = 24 * time.Hour
)

// Metrics are told what is in force. Their methods must be safe for concurrent use.
type Metrics interface {
	// CertificateExpires says when the certificate of a source expires.
	CertificateExpires(source string, at time.Time)
	// CertificateReload says whether the files of a source, as they are now, are in force.
	CertificateReload(source string, failed bool)
}

// Options of a Source.
type Options struct {
	Files
	Name    string // what it is for, in the log and in metrics
	Logger  *slog.Logger
	Metrics Metrics // nil: none
}

// Source keeps what its files have. Make one with Load.
type Source struct {
	opt     Options
	inForce atomic.Pointer[loaded]

	// Of the goroutine in Run alone.
	failed string    // why the files could not be used when they were read last, "" when they could
	warned time.Time // when the log said last that the certificate expires
}

// Load reads the files. Its error is an *Error.
func Load(o Options) (*Source, error) {
	s := &Source{opt: o}
	c, err := o.read()
	if err != nil {
		return nil, err
	}
	l, err := o.parse(c)
	if err != nil {
		return nil, err
	}
	s.use(l)
	s.warn(time.Now())
	return s, nil
}

// use takes over what was loaded.
func (s *Source) use(l *loaded) {
	s.inForce.Store(l)
	if m := s.opt.Metrics; m != nil {
		m.CertificateReload(s.opt.Name, false)
		if l.cert != nil {
			m.CertificateExpires(s.opt.Name, l.cert.Leaf.NotAfter)
		}
	}
}

// Run reads the files again and again until ctx ends.
func (s *Source) Run(ctx context.Context) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.look(time.Now())
			s.warn(time.Now())
		}
	}
}

// look reads the files once, and takes over what has changed.
func (s *Source) look(now time.Time) {
	c, err := s.opt.read()
	old := s.inForce.Load()
	if err == nil && c.sum() == old.sum {
		s.recovered(old)
		return
	}
	var l *loaded
	if err == nil {
		l, err = s.opt.parse(c)
	}
	if err == nil {
		err = s.worse(l, old, now)
	}
	if err != nil {
		s.keep(err)
		return
	}
	s.failed, s.warned = "", time.Time{}
	s.use(l)
	s.opt.Logger.Info("certificates were read again", append([]any{"certificates", s.opt.Name}, l.describe()...)...)
}

// worse is why a certificate must not replace the one in force.
func (s *Source) worse(l, old *loaded, now time.Time) error {
	if l.cert == nil {
		return nil
	}
	leaf, is := l.cert.Leaf, old.cert.Leaf
	valid := func(c *x509.Certificate) bool { return !now.Before(c.NotBefore) && !now.After(c.NotAfter) }
	if valid(is) && !valid(leaf) {
		return &Error{File: s.opt.Cert, Err: fmt.Errorf("it is valid from %s until %s", stamp(leaf.NotBefore), stamp(leaf.NotAfter)), Hint: "give one that is valid now"}
	}
	return nil
}

// recovered: the files are those in force again.
func (s *Source) recovered(l *loaded) {
	if s.failed != "" {
		s.failed = ""
		s.use(l)
		s.opt.Logger.Info("the files of the certificates in force are back", "certificates", s.opt.Name)
	}
}

// keep says once why the files cannot be used.
func (s *Source) keep(err error) {
	if m := s.opt.Metrics; m != nil {
		m.CertificateReload(s.opt.Name, true)
	}
	if text := err.Error(); text != s.failed {
		s.failed = text
		var hint string
		if e, ok := errors.AsType[*Error](err); ok {
			hint = e.Hint
		}
		s.opt.Logger.Warn("the files of certificates have changed and cannot be used; the old certificates stay in force", "certificates", s.opt.Name, "err", err, "hint", hint)
	}
}

// warn says that the certificate expires soon, or has expired.
func (s *Source) warn(now time.Time) {
	l := s.inForce.Load()
	if l.cert == nil {
		return
	}
	leaf := l.cert.Leaf
	left := leaf.NotAfter.Sub(now)
	if left >= min(warnBefore, leaf.NotAfter.Sub(leaf.NotBefore)/6) || !s.warned.IsZero() && now.Sub(s.warned) < warnEvery {
		return
	}
	s.warned = now
	said := append([]any{"certificates", s.opt.Name, "file", s.opt.Cert.Path}, l.describe()...)
	if left <= 0 {
		s.opt.Logger.Warn("the certificate has expired: clients that check it refuse to connect", said...)
		return
	}
	s.opt.Logger.Warn("the certificate expires soon", said...)
}

// describe is what the log says of a certificate.
func (l *loaded) describe() []any {
	if l.cert == nil {
		return nil
	}
	leaf := l.cert.Leaf
	return []any{"expires", stamp(leaf.NotAfter), "serial", leaf.SerialNumber.Text(16), "sha256", fmt.Sprintf("%x", sha256.Sum256(leaf.Raw))}
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Server is for a server. Each connection is accepted with what is in force when it comes.
func (s *Source) Server() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return s.inForce.Load().server, nil
	}}
}

// PeerServer is for a server whose clients are servers themselves: the authorities are those of servers.
func (s *Source) PeerServer() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return s.inForce.Load().peer, nil
	}}
}

// Client is for one connection to a server. The server's certificate has to be signed by the authorities, or by those that the
// system trusts where no file is given. The certificate is shown to a server that asks for one of its authority.
func (s *Source) Client() *tls.Config {
	l := s.inForce.Load()
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: l.servers, GetClientCertificate: l.shown}
}

// shown is the certificate that a server gets which asks for one.
func (l *loaded) shown(asked *tls.CertificateRequestInfo) (*tls.Certificate, error) {
	if l.cert == nil || !forClients(l.cert) || asked.SupportsCertificate(l.cert) != nil {
		return new(tls.Certificate), nil // none
	}
	return l.cert, nil
}

// ForClients reports whether the certificate may be shown to a server, by what it says of its use.
func (s *Source) ForClients() bool {
	l := s.inForce.Load()
	return l.cert != nil && forClients(l.cert)
}
