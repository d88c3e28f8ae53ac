// Package certtest makes certificates for tests. None of them outlives its test.
package certtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
)

// Authority signs certificates.
type Authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New makes an authority of that name.
func New(t testing.TB, name string) *Authority {
	t.Helper()
	a := &Authority{t: t}
	template := &x509.Certificate{SerialNumber: serial(t), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(365 * 24 * time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	a.cert, a.key = a.sign(template)
	return a
}

func serial(t testing.TB) *big.Int {
	t.Helper()
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	assert.NoError(t, err)
	return n
}

// sign makes a certificate with a key of its own; an authority without a certificate signs its own.
func (a *Authority) sign(template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	assert.NoError(a.t, err)
	parent, by := a.cert, a.key
	if parent == nil {
		parent, by = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	assert.NoError(a.t, err)
	cert, err := x509.ParseCertificate(der)
	assert.NoError(a.t, err)
	return cert, key
}

// Pool holds the authority's certificate alone.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// PEM is the authority's certificate.
func (a *Authority) PEM() []byte { return encode("CERTIFICATE", a.cert.Raw) }

// File writes the authority's certificate to a file.
func (a *Authority) File() string {
	a.t.Helper()
	return write(a.t, filepath.Join(a.t.TempDir(), "ca.pem"), a.PEM())
}

// Leaf is a certificate with its key, as PEM.
type Leaf struct {
	t         testing.TB
	Cert, Key []byte
	X509      *x509.Certificate
}

// Option changes a certificate before it is signed.
type Option func(*x509.Certificate)

// Valid sets from when until when it is valid.
func Valid(from, until time.Time) Option {
	return func(c *x509.Certificate) { c.NotBefore, c.NotAfter = from, until }
}

// For sets what it may be used for; servers and clients unless given.
func For(usages ...x509.ExtKeyUsage) Option {
	return func(c *x509.Certificate) { c.ExtKeyUsage = usages }
}

// Issue signs a certificate for names and addresses. The first name is its common name. It is valid for a day.
func (a *Authority) Issue(names []string, options ...Option) *Leaf {
	a.t.Helper()
	template := &x509.Certificate{SerialNumber: serial(a.t), Subject: pkix.Name{CommonName: names[0]}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(24 * time.Hour), KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	for _, option := range options {
		option(template)
	}
	cert, key := a.sign(template)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	assert.NoError(a.t, err)
	return &Leaf{t: a.t, Cert: encode("CERTIFICATE", cert.Raw), Key: encode("PRIVATE KEY", der), X509: cert}
}

// Files writes the certificate and its key to files of a new directory.
func (l *Leaf) Files() (cert, key string) {
	l.t.Helper()
	dir := l.t.TempDir()
	cert, key = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	l.Write(cert, key)
	return cert, key
}

// Write writes them over two files.
func (l *Leaf) Write(cert, key string) {
	l.t.Helper()
	write(l.t, cert, l.Cert)
	write(l.t, key, l.Key)
}

func write(t testing.TB, path string, content []byte) string {
	t.Helper()
	assert.NoError(t, os.WriteFile(path, content, 0o600))
	return path
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
