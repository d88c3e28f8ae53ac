package auth

import (
	"crypto/x509"

	"lockkeeper/internal/locks"
)

// certificateName is the name in a client's certificate, which the listener has verified.
func (p *Policy) certificateName(cert *x509.Certificate) (name string, err error) {
	where := "the subject alternative names"
	switch {
	case p.common:
		name, where = cert.Subject.CommonName, "the common name"
	case len(cert.DNSNames) > 0:
		name = cert.DNSNames[0]
	case len(cert.URIs) > 0:
		name = cert.URIs[0].String()
	case len(cert.EmailAddresses) > 0:
		name = cert.EmailAddresses[0]
	}
	if name == "" || locks.CheckText("name", name, maxName) != nil {
		return "", refused("the client certificate must have a name of at most %d bytes in %s", maxName, where)
	}
	return name, nil
}
