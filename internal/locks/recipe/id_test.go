package recipe

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"lockkeeper/internal/test/assert"
)

const (
	testFleet   FleetID   = "abcdefgh"
	testGateway GatewayID = "mnopqrstuvwxy"
	testLease   LeaseID   = "lkabcdefghmnopqrstuvwxy234567abcdefghij"
)

func TestALeaseIDNamesItsFleetAndItsGateway(t *testing.T) {
	fleet := assert.Value(NewFleetID(rand.Reader))(t)
	gateway := assert.Value(NewGatewayID(rand.Reader))(t)
	id := assert.Value(NewLeaseID(fleet, gateway, rand.Reader))(t)
	assert.That(t, id.Fleet() == fleet && id.Gateway() == gateway && len(id) == LeaseIDLen && LeaseIDLen == 39,
		"lease id %q of fleet %q, gateway %q", id, fleet, gateway)
	parsed, err := ParseLeaseID(string(id))
	assert.That(t, err == nil && parsed == id, "ParseLeaseID(%q) = %q, %v", id, parsed, err)
	if parsed, err := ParseFleetID(string(fleet)); err != nil || parsed != fleet {
		t.Errorf("ParseFleetID(%q) = %q, %v", fleet, parsed, err)
	}
	if parsed, err := ParseGatewayID(string(gateway)); err != nil || parsed != gateway {
		t.Errorf("ParseGatewayID(%q) = %q, %v", gateway, parsed, err)
	}
	id = LeaseID("short")
	assert.That(t, id.Fleet() == "" && id.Gateway() == "", "a short id has a fleet or a gateway")
}

func TestIDsHaveOneSpelling(t *testing.T) {
	for _, test := range []struct {
		id, problem string
	}{
		{string(testLease), ""},
		{"lkabcdefgh" + "mnopqrstuvwxz" + "234567abcdefghij", "unused bits"}, // z carries a fifth bit
		{"lkabcdefgh" + "mnopqrstuvwx3" + "234567abcdefghij", "unused bits"},
		{"lkabcdefgh" + "mnopqrstuvwx2" + "234567abcdefghij", ""},
		{"lkabcdefgh" + "mnopqrstuvwx6" + "234567abcdefghij", ""},
		{strings.ToUpper(string(testLease)), "a-z and 2-7"},
		{"kl" + string(testLease[2:]), "start with lk"},
		{string(testLease[:38]), "39 characters, not 38"},
		{string(testLease) + "a", "39 characters, not 40"},
		{string(testLease[:38]) + "1", "a-z and 2-7"},
		{string(testLease[:38]) + "8", "a-z and 2-7"},
		{string(testLease[:38]) + ".", "a-z and 2-7"},
		{"", "39 characters, not 0"},
	} {
		_, err := ParseLeaseID(test.id)
		if test.problem == "" && err != nil || test.problem != "" && (err == nil || !strings.Contains(err.Error(), test.problem)) {
			t.Errorf("ParseLeaseID(%q): %v; want %q", test.id, err, test.problem)
		}
	}
	for _, s := range []string{"", "abcdefg", "abcdefghi", "abcdefg1", "ABCDEFGH"} {
		_, err := ParseFleetID(s)
		assert.That(t, err != nil, "ParseFleetID(%q) accepts it", s)
	}
	for _, s := range []string{"", "mnopqrstuvwx", "mnopqrstuvwxz", "mnopqrstuvwx7", "mnopqrstuvwx-"} {
		_, err := ParseGatewayID(s)
		assert.That(t, err != nil, "ParseGatewayID(%q) accepts it", s)
	}
}

func TestNoIDWithoutRandomness(t *testing.T) {
	broken := errors.New("entropy pool is on fire")
	_, err := NewFleetID(iotest.ErrReader(broken))
	assert.That(t, errors.Is(err, broken), "NewFleetID: %v", err)
	_, err = NewGatewayID(strings.NewReader("1234567"))
	assert.That(t, errors.Is(err, io.ErrUnexpectedEOF), "NewGatewayID of seven bytes: %v", err)
	id, err := NewLeaseID(testFleet, testGateway, strings.NewReader("123456789"))
	assert.That(t, errors.Is(err, io.ErrUnexpectedEOF) && id == "", "NewLeaseID of nine bytes: %q, %v", id, err)
	_, err = NewLeaseID("fleet", testGateway, rand.Reader)
	assert.That(t, err != nil, "a lease id of no fleet")
	_, err = NewLeaseID(testFleet, "gateway", rand.Reader)
	assert.That(t, err != nil, "a lease id of no gateway")
}

func FuzzLeaseID(f *testing.F) {
	f.Add(string(testLease), []byte("0123456789abcdefghijklm"))
	f.Add("lkabcdefghmnopqrstuvwxz234567abcdefghij", []byte{})
	f.Add("lk", []byte{0xff})
	f.Fuzz(func(t *testing.T, s string, random []byte) {
		if id, err := ParseLeaseID(s); err == nil {
			assert.Must(t, Tag+string(id.Fleet())+string(id.Gateway())+s[randomAt:] == s, "the parts of %q are not the whole", s)
			for _, part := range []string{string(id.Fleet()), string(id.Gateway()), s[randomAt:]} {
				bits, err := encoding.DecodeString(part)
				assert.Must(t, err == nil && encoding.EncodeToString(bits) == part,
					"%q of %q is another spelling of %q", part, s, encoding.EncodeToString(bits))
			}
		}
		r := bytes.NewReader(random)
		fleet, err := NewFleetID(r)
		if err != nil {
			return
		}
		gateway, err := NewGatewayID(r)
		if err != nil {
			return
		}
		id, err := NewLeaseID(fleet, gateway, r)
		if err != nil {
			return
		}
		if got, err := ParseLeaseID(string(id)); err != nil || got != id || id.Fleet() != fleet || id.Gateway() != gateway {
			t.Fatalf("NewLeaseID made %q: %q, %v", id, got, err)
		}
	})
}
