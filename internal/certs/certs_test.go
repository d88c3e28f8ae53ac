package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/certtest"
)

// told are metrics that remember what they were told last.
type told struct {
	expires map[string]time.Time
	failed  map[string]bool
}

func (m *told) CertificateExpires(source string, at time.Time) { m.expires[source] = at }
func (m *told) CertificateReload(source string, failed bool)   { m.failed[source] = failed }
func newTold() *told                                           { return &told{map[string]time.Time{}, map[string]bool{}} }
func files(cert, key, cas string) Files {
	return Files{Cert: File{"--cert", cert}, Key: File{"--key", key}, Clients: File{"--ca", cas}, Servers: File{"--ca", cas}}
}
func logTo(out *bytes.Buffer) *slog.Logger { return slog.New(slog.NewTextHandler(out, nil)) }
func (s *Source) serial() string           { return s.inForce.Load().cert.Leaf.SerialNumber.Text(16) }
func serialOf(l *certtest.Leaf) string     { return l.X509.SerialNumber.Text(16) }
func must(t *testing.T, o Options) *Source { t.Helper(); return assert.Value(Load(o))(t) }

func TestFilesThatCannotBeUsedAreRefusedWithAHint(t *testing.T) {
	ca := certtest.New(t, "ca")
	cert, key := ca.Issue([]string{"a.example"}).Files()
	_, other := ca.Issue([]string{"b.example"}).Files()
	open := filepath.Join(t.TempDir(), "open.key")
	assert.NoError(t, os.WriteFile(open, assert.Value(os.ReadFile(key))(t), 0o600))
	assert.NoError(t, os.Chmod(open, 0o640))
	empty := filepath.Join(t.TempDir(), "empty")
	assert.NoError(t, os.WriteFile(empty, nil, 0o600))
	torn := filepath.Join(t.TempDir(), "torn")
	assert.NoError(t, os.WriteFile(torn, []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), 0o600))
	for _, c := range []struct {
		files      Files
		flag, says string
		hint       string
	}{
		{files(cert, other, ""), "--cert", "private key does not match", "--key"},
		{files(cert, open, ""), "--key", "others can read it (mode 0640)", "chmod 600 " + open},
		{files("/does/not/exist", key, ""), "--cert", "no such file", "PEM"},
		{files(key, key, ""), "--cert", "failed to find certificate", "certificate first"},
		{files("", "", empty), "--ca", "no certificate", "BEGIN CERTIFICATE"},
		{files("", "", key), "--ca", "no certificate", "BEGIN CERTIFICATE"},
		{files("", "", torn), "--ca", "", "BEGIN CERTIFICATE"},
	} {
		_, err := Load(Options{Files: c.files, Logger: slog.New(slog.DiscardHandler)})
		e, ok := errors.AsType[*Error](err)
		assert.Must(t, ok, "%+v: %v", c.files, err)
		assert.That(t, e.File.Flag == c.flag && strings.Contains(e.Error(), c.says) && strings.Contains(e.Hint, c.hint), "%+v: %v (%s)", c.files, e, e.Hint)
	}
}

// A bundle of authorities with a broken one is refused, and the error says where that is.
func TestACertificateThatCannotBeReadIsNamedByItsPosition(t *testing.T) {
	good, more := string(certtest.New(t, "good").PEM()), string(certtest.New(t, "more").PEM())
	lines := strings.Count(good, "\n")
	for name, c := range map[string]struct{ bundle, want string }{
		"all good":            {"# the first\n" + good + "and another one\n" + more + "the end\n", ""},
		"another kind":        {good + "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n" + more, ""},
		"not a certificate":   {good + "# two\n-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n" + more, fmt.Sprintf("certificate 2, which begins in line %d,", lines+2)},
		"not base64":          {"-----BEGIN CERTIFICATE-----\n!!!!\n-----END CERTIFICATE-----\n" + good, "certificate 1, which begins in line 1,"},
		"cut off in the file": {good + more[:len(more)/2], fmt.Sprintf("certificate 2, which begins in line %d,", lines+1)},
		"cut off in between":  {good[:len(good)/2] + "\n" + more, "certificate 1, which begins in line 1,"},
		"without an end":      {good + "-----BEGIN CERTIFICATE-----\n" + more, fmt.Sprintf("certificate 2, which begins in line %d,", lines+1)},
	} {
		path := filepath.Join(t.TempDir(), "ca.pem")
		assert.NoError(t, os.WriteFile(path, []byte(c.bundle), 0o600))
		_, err := Load(Options{Files: Files{Servers: File{"--peer-ca-file", path}}, Logger: slog.New(slog.DiscardHandler)})
		if c.want == "" {
			assert.That(t, err == nil, "%s: %v", name, err)
			continue
		}
		e, ok := errors.AsType[*Error](err)
		assert.That(t, ok && strings.Contains(e.Error(), c.want) && strings.HasPrefix(e.Error(), "--peer-ca-file "+path) && strings.Contains(e.Hint, "replace"), "%s: %v", name, err)
	}
}

// Kubernetes swaps a symbolic link: the files' names stay.
func TestChangedFilesAreReadAgain(t *testing.T) {
	ca := certtest.New(t, "ca")
	dir := t.TempDir()
	generation := func(name string) *certtest.Leaf {
		leaf := ca.Issue([]string{"a.example"})
		assert.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o700))
		leaf.Write(filepath.Join(dir, name, "tls.crt"), filepath.Join(dir, name, "tls.key"))
		return leaf
	}
	link := func(name string) {
		t.Helper()
		assert.NoError(t, os.Symlink(name, filepath.Join(dir, "..new")))
		assert.NoError(t, os.Rename(filepath.Join(dir, "..new"), filepath.Join(dir, "..data")))
	}
	first, second := generation("1"), generation("2")
	link("1")
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		metrics := newTold()
		s := must(t, Options{Files: files(filepath.Join(dir, "..data", "tls.crt"), filepath.Join(dir, "..data", "tls.key"), ""), Name: "clients", Logger: logTo(&out), Metrics: metrics})
		ctx, stop := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer stop()
		go s.Run(ctx)
		assert.Equal(t, s.serial(), serialOf(first))
		link("2")
		time.Sleep(pollEvery + time.Millisecond)
		synctest.Wait()
		assert.Equal(t, s.serial(), serialOf(second))
		assert.That(t, strings.Contains(out.String(), "read again") && strings.Contains(out.String(), serialOf(second)), "%s", &out)
		assert.That(t, metrics.expires["clients"].Equal(second.X509.NotAfter) && !metrics.failed["clients"], "%+v", metrics)
	})
}

func TestAPairThatCannotBeUsedKeepsTheOldOne(t *testing.T) {
	ca := certtest.New(t, "ca")
	first, second := ca.Issue([]string{"a.example"}), ca.Issue([]string{"a.example"})
	expired := ca.Issue([]string{"a.example"}, certtest.Valid(time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)))
	cert, key := first.Files()
	var out bytes.Buffer
	metrics := newTold()
	s := must(t, Options{Files: files(cert, key, ""), Name: "clients", Logger: logTo(&out), Metrics: metrics})
	look := func(what, says string) {
		t.Helper()
		out.Reset()
		s.look(time.Now())
		s.look(time.Now())
		assert.That(t, s.serial() == serialOf(first), "%s: the certificate changed", what)
		assert.That(t, strings.Count(out.String(), "\n") == 1 && strings.Contains(out.String(), says), "%s: the log says\n%s", what, &out)
		assert.That(t, metrics.failed["clients"], "%s: no metric", what)
	}
	assert.NoError(t, os.WriteFile(cert, second.Cert, 0o600)) // and the old key
	look("half of a pair", "private key does not match")
	expired.Write(cert, key)
	look("an expired one", "valid from")
	second.Write(cert, key)
	assert.NoError(t, os.Chmod(key, 0o644))
	look("a key that others can read", "others can read it")
	assert.NoError(t, os.Remove(key))
	look("a key that is gone", "no such file")
	first.Write(cert, key)
	s.look(time.Now())
	assert.That(t, !metrics.failed["clients"] && strings.Contains(out.String(), "are back"), "%s", &out)
	second.Write(cert, key)
	s.look(time.Now())
	assert.Equal(t, s.serial(), serialOf(second))
}

func TestTheLogWarnsBeforeACertificateExpires(t *testing.T) {
	ca := certtest.New(t, "ca")
	now := time.Now()
	for _, c := range []struct {
		of, left time.Duration
		says     string
	}{
		{90 * 24 * time.Hour, 15 * 24 * time.Hour, ""},
		{90 * 24 * time.Hour, 13 * 24 * time.Hour, "expires soon"},
		{6 * time.Hour, 2 * time.Hour, ""},
		{6 * time.Hour, 59 * time.Minute, "expires soon"},
		{6 * time.Hour, -time.Minute, "has expired"},
	} {
		cert, key := ca.Issue([]string{"a.example"}, certtest.Valid(now.Add(c.left-c.of), now.Add(c.left))).Files()
		var out bytes.Buffer
		s := must(t, Options{Files: files(cert, key, ""), Logger: logTo(&out)})
		warned := strings.Contains(out.String(), "level=WARN")
		assert.That(t, warned == (c.says != "") && strings.Contains(out.String(), c.says), "%v of %v left: the log says\n%s", c.left, c.of, &out)
		if !warned {
			continue
		}
		s.warn(now.Add(warnEvery - time.Minute))
		assert.Equal(t, strings.Count(out.String(), "\n"), 1)
		s.warn(now.Add(warnEvery + time.Minute))
		assert.Equal(t, strings.Count(out.String(), "\n"), 2)
	}
}

// shake makes a connection between a server and a client, and returns what each says of it.
func shake(t *testing.T, server, client *tls.Config) (seen tls.ConnectionState, serverErr, clientErr error) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NoError(t, err)
	defer listener.Close()
	b, err := net.Dial("tcp", listener.Addr().String())
	assert.NoError(t, err)
	defer b.Close()
	a, err := listener.Accept()
	assert.NoError(t, err)
	defer a.Close()
	s := tls.Server(a, server)
	failed := make(chan error, 1)
	go func() {
		err := s.HandshakeContext(t.Context())
		if err == nil {
			_, err = s.Write([]byte("x"))
		}
		failed <- err
		if err != nil {
			a.Close()
		}
	}()
	c := tls.Client(b, client)
	if clientErr = c.HandshakeContext(t.Context()); clientErr == nil {
		_, clientErr = io.ReadFull(c, make([]byte, 1)) // with TLS 1.3 the server judges a certificate afterwards
	}
	if clientErr != nil {
		b.Close()
	}
	serverErr = <-failed
	return s.ConnectionState(), serverErr, clientErr
}

func TestAClientNeedNoCertificateAndNoneOfAnotherAuthority(t *testing.T) {
	ca, clients, others := certtest.New(t, "servers"), certtest.New(t, "clients"), certtest.New(t, "clients") // of the same name
	cert, key := ca.Issue([]string{"a.example"}).Files()
	s := must(t, Options{Files: files(cert, key, clients.File()), Logger: slog.New(slog.DiscardHandler)})
	client := func(by *certtest.Authority, options ...certtest.Option) *tls.Config {
		c := &tls.Config{ServerName: "a.example", RootCAs: ca.Pool()}
		if by != nil {
			leaf := by.Issue([]string{"client"}, options...)
			c.Certificates = []tls.Certificate{assert.Value(tls.X509KeyPair(leaf.Cert, leaf.Key))(t)}
		}
		return c
	}
	seen, serverErr, clientErr := shake(t, s.Server(), client(nil))
	assert.That(t, serverErr == nil && clientErr == nil && len(seen.VerifiedChains) == 0, "none: %v %v", serverErr, clientErr)
	seen, serverErr, clientErr = shake(t, s.Server(), client(clients))
	assert.That(t, serverErr == nil && clientErr == nil && len(seen.VerifiedChains) == 1, "its own: %v %v", serverErr, clientErr)
	_, serverErr, _ = shake(t, s.Server(), client(others))
	assert.That(t, serverErr != nil, "a certificate of another authority was taken")
	_, serverErr, _ = shake(t, s.Server(), client(clients, certtest.Valid(time.Now().Add(-time.Hour), time.Now().Add(-time.Minute))))
	assert.That(t, serverErr != nil, "an expired certificate was taken")
	_, serverErr, _ = shake(t, s.Server(), client(clients, certtest.For(x509.ExtKeyUsageServerAuth)))
	assert.That(t, serverErr != nil, "a server's certificate was taken for a client's")
	old := client(nil)
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	_, serverErr, _ = shake(t, s.Server(), old)
	assert.That(t, serverErr != nil, "TLS 1.1 was taken")
}

func TestASourceShowsItsCertificateToServersThatAskForIt(t *testing.T) {
	ca, others := certtest.New(t, "ca"), certtest.New(t, "others")
	server := func(clients *certtest.Authority) *tls.Config {
		leaf := ca.Issue([]string{"b.example"})
		return &tls.Config{Certificates: []tls.Certificate{assert.Value(tls.X509KeyPair(leaf.Cert, leaf.Key))(t)}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: clients.Pool()}
	}
	for what, c := range map[string]struct {
		options []certtest.Option
		clients *certtest.Authority
		name    string
		shown   bool
		fails   bool
	}{
		"asked for":        {nil, ca, "b.example", true, false},
		"of another":       {nil, others, "b.example", false, false},
		"of a server only": {[]certtest.Option{certtest.For(x509.ExtKeyUsageServerAuth)}, ca, "b.example", false, false},
		"another name":     {nil, ca, "c.example", false, true},
	} {
		cert, key := ca.Issue([]string{"a.example"}, c.options...).Files()
		s := must(t, Options{Files: files(cert, key, ca.File()), Logger: slog.New(slog.DiscardHandler)})
		config := s.Client()
		config.ServerName = c.name
		seen, _, err := shake(t, server(c.clients), config)
		assert.That(t, (err != nil) == c.fails && len(seen.VerifiedChains) == map[bool]int{true: 1}[c.shown], "%s: %v, %d chains", what, err, len(seen.VerifiedChains))
	}
}
