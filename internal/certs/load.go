package certs

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	"lockkeeper/internal/secretfile"
)

// maxFile bounds each file, in bytes. The authorities that a system trusts are a quarter of it.
const maxFile = 1 << 20

// File is a file and the flag that names it. Without a path there is none.
type File struct{ Flag, Path string }

// Error is why a file cannot be used.
type Error struct {
	File File
	Err  error
	Hint string
}

func (e *Error) Error() string { return fmt.Sprintf("%s %s: %v", e.File.Flag, e.File.Path, e.Err) }

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Files are the files of a Source. A certificate has a key.
type Files struct {
	Cert, Key File
	Clients   File // the authorities of certificates that clients show
	Servers   File // the authorities of servers' certificates; those that the system trusts where there is no file
}

// content is what the files have.
type content struct{ cert, key, clients, servers []byte }

func (f Files) read() (c content, err error) {
	for _, one := range []struct {
		file File
		to   *[]byte
		read func(string, int64) ([]byte, error)
	}{{f.Cert, &c.cert, secretfile.ReadPublic}, {f.Key, &c.key, secretfile.Read}, {f.Clients, &c.clients, secretfile.ReadPublic}, {f.Servers, &c.servers, secretfile.ReadPublic}} {
		if one.file.Path == "" {
			continue
		}
		if *one.to, err = one.read(one.file.Path, maxFile); err != nil {
			e := &Error{File: one.file, Err: err, Hint: "it must be a file in PEM form that this user can read"}
			if _, open := errors.AsType[*secretfile.OpenError](err); open {
				e.Hint = "chmod 600 " + one.file.Path
			}
			return c, e
		}
	}
	return c, nil
}

// sum tells one content from another.
func (c *content) sum() [sha256.Size]byte {
	var all []byte
	for _, part := range [][]byte{c.cert, c.key, c.clients, c.servers} {
		one := sha256.Sum256(part)
		all = append(all, one[:]...)
	}
	return sha256.Sum256(all)
}

// loaded is what is in force. It is immutable.
type loaded struct {
	sum              [sha256.Size]byte
	cert             *tls.Certificate // nil: none
	clients, servers *x509.CertPool   // nil: none
	server, peer     *tls.Config      // for connections that come in from clients, and from those whose certificates Servers has
}

func (f Files) parse(c content) (*loaded, error) {
	l := &loaded{sum: c.sum()}
	if f.Cert.Path != "" {
		pair, err := tls.X509KeyPair(c.cert, c.key)
		if err != nil {
			return nil, &Error{File: f.Cert, Err: err, Hint: "it must have the certificate first, then those that lead to its authority, and " + f.Key.Flag + " its private key"}
		}
		l.cert = &pair
	}
	for _, one := range []struct {
		file File
		data []byte
		to   **x509.CertPool
	}{{f.Clients, c.clients, &l.clients}, {f.Servers, c.servers, &l.servers}} {
		if one.file.Path == "" {
			continue
		}
		var err error
		if *one.to, err = pool(one.data); err != nil {
			return nil, &Error{File: one.file, Err: err, Hint: "it must have certificates in PEM form, each between BEGIN CERTIFICATE and END CERTIFICATE; replace the one that cannot be read, or take it out"}
		}
	}
	l.server, l.peer = l.serverConfig(l.clients), l.serverConfig(l.servers)
	return l, nil
}

const beginCertificate = "-----BEGIN CERTIFICATE-----"

// pool are the certificates of a file. Anything between them is left out, but what claims to be one has to be one: a bundle that
// lacks an authority would be noticed when a peer that it has signed is refused. The error says which one it is.
func pool(data []byte) (*x509.CertPool, error) {
	found := x509.NewCertPool()
	at, n := 0, 0
	for {
		next := bytes.Index(data[at:], []byte(beginCertificate))
		if next < 0 {
			break
		}
		at += next
		n++
		end, err := addCertificate(found, data[at:])
		if err != nil {
			return nil, fmt.Errorf("certificate %d, which begins in line %d, cannot be read: %w", n, 1+bytes.Count(data[:at], []byte("\n")), err)
		}
		at += end
	}
	if n == 0 {
		return nil, errors.New("it has no certificate")
	}
	return found, nil
}

// addCertificate adds the certificate at the beginning of data, and says where it ends.
func addCertificate(to *x509.CertPool, data []byte) (end int, err error) {
	block, rest := pem.Decode(data)
	end = len(data) - len(rest)
	if block == nil || bytes.Count(data[:end], []byte(beginCertificate)) > 1 { // a broken block is passed over
		return 0, errors.New("it must be in base64, and end with END CERTIFICATE")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err == nil {
		to.AddCert(cert)
	}
	return end, err
}

// serverConfig is for connections that come in. A client need not show a certificate; one that it shows has to be signed by
// the authorities.
func (l *loaded) serverConfig(clients *x509.CertPool) *tls.Config {
	if l.cert == nil {
		return nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*l.cert}, NextProtos: []string{"h2", "http/1.1"}}
	if clients != nil {
		c.ClientCAs, c.ClientAuth = clients, tls.VerifyClientCertIfGiven
	}
	return c
}

// forClients reports whether the certificate may be shown to a server.
func forClients(cert *tls.Certificate) bool {
	usages := cert.Leaf.ExtKeyUsage
	return len(usages) == 0 || slices.Contains(usages, x509.ExtKeyUsageClientAuth) || slices.Contains(usages, x509.ExtKeyUsageAny)
}
