package recipe

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

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

func TestNumberIsWhatZooKeeperAppended(t *testing.T) {
	none := int64(math.MaxInt64)
	for _, test := range []struct {
		name string
		want int64
	}{
		{"write-v1.lkx-lock-0000000005", 5}, // the dash is the name's own
		{"_c_0b1a-lock--000000005", -5},
		{"_c_0b1a-lock-2147483647", 2147483647},
		{"_c_0b1a-lock--2147483648", -2147483648},
		{"_c_0b1a-lock--1000000000", -1000000000},
		{"_c_0b1a-lock--999999999", -999999999},
		{"_c_0b1a-lock-1000000000", 1000000000},
		{"x__lock__0000000000", 0},
		{"x__lock__-000000001", -1},
		{"x__lock__-2147483648", -2147483648},
		{"x__lock__2147483647", 2147483647},
		{"x-94026-0000000007", 7},
		{"write-0000000012", 12},
		{"read--000000012", -12},
		{"read--1500000000", -1500000000},
		{"0000000003", 3},
		{"-000000003", -3},
		{"x-1500000000", 1500000000},
		{"x--0000000005", 5},      // %010d never pads to eleven characters: both dashes are the name's
		{"x0000000005", 5},        // no separator at all
		{"x10000000005", 5},       // the name ends in a digit
		{"x-000000005", -5},       // nine digits cannot stand alone
		{"lock-2147483648", none}, // beyond int32
		{"lock-9999999999", none},
		{"lock--2147483649", none},
		{"x__lock__-9999999999", none},
		{"", none},
		{"123456789", none},
		{"lock-00000005", none}, // eight digits
		{"lock-00000000x5", none},
		{"lock-000000000 5", none},
		{"lock-000000000٥", none}, // a digit, but not one of ZooKeeper's
		{"lock-+000000005", none},
		{"lock---00000005", none},
		{"notes", none},
	} {
		n, ok := Number(test.name)
		assert.That(t, ok == (test.want != none) && (!ok || int64(n) == test.want),
			"Number(%q) = %d, %v; want %d", test.name, n, ok, test.want)
	}
}

func TestEveryNumberIsReadBackFromEveryPrefixOfAKnownClient(t *testing.T) {
	prefixes := []string{
		"_c_c8b0d5e4-1111-4222-8333-123456789abc-lock-", "_c_c8b0d5e4-1111-4222-8333-123456789abc-__WRIT__",
		"_c_c8b0d5e4-1111-4222-8333-123456789abc-__READ__", "_c_c8b0d5e4-1111-4222-8333-123456789abc-lease-",
		"_c_0123456789abcdef0123456789abcdef-lock-", "0123456789abcdef0123456789abcdef__lock__",
		"0123456789abcdef0123456789abcdef__rlock__", "write-", "read-", "x-72057594037927936-", "lock-", "_c_a-latch-",
	}
	rapid.Check(t, func(t *rapid.T) {
		n := anyNumber().Draw(t, "n")
		name := rapid.SampledFrom(prefixes).Draw(t, "prefix") + fmt.Sprintf("%010d", n)
		got, ok := Number(name)
		assert.Must(t, ok && got == n, "Number(%q) = %d, %v", name, got, ok)
	})
}

func TestNumbersArePrintedAsZooKeeperPrintsThem(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := anyNumber().Draw(t, "n")
		if got, want := string(appendNumber(nil, n)), fmt.Sprintf("%010d", n); got != want {
			t.Fatalf("appended %q, ZooKeeper appends %q", got, want)
		}
	})
}

// anyNumber draws numbers from the whole circle, often from where it breaks.
func anyNumber() *rapid.Generator[int32] {
	return rapid.OneOf(
		rapid.Int32(),
		rapid.Int32Range(-12, 12),
		rapid.Int32Range(math.MaxInt32-12, math.MaxInt32),
		rapid.Int32Range(math.MinInt32, math.MinInt32+12),
		rapid.Int32Range(-1000000012, -999999988),
		rapid.Int32Range(999999988, 1000000012),
	)
}

func TestOrderWrapsAroundAndTiesGoByName(t *testing.T) {
	for _, test := range []struct {
		aNum  int32
		aName string
		bNum  int32
		bName string
		want  int
	}{
		{1, "z", 2, "a", -1},
		{2, "a", 1, "z", 1},
		{math.MaxInt32, "a", math.MinInt32, "a", -1},
		{math.MinInt32, "a", math.MaxInt32, "a", 1},
		{-1, "a", 0, "a", -1},
		{2000000000, "a", -2000000000, "a", -1},
		{7, "a", 7, "b", -1},
		{7, "b", 7, "a", 1},
		{7, "a", 7, "a", 0},
	} {
		assert.Equal(t, Compare(test.aNum, test.aName, test.bNum, test.bName), test.want,
			"Compare(%d %q, %d %q)", test.aNum, test.aName, test.bNum, test.bName)
		assert.Equal(t, Less(test.aNum, test.aName, test.bNum, test.bName), test.want < 0,
			"Less(%d %q, %d %q)", test.aNum, test.aName, test.bNum, test.bName)
	}
}

// FuzzNumber checks the rule against its derivation: the number is one that
// ZooKeeper prints at the end of the name, zeros with a sign aside.
func FuzzNumber(f *testing.F) {
	for _, s := range []string{"a-lock-0000000005", "a-lock--000000005", "a__lock__-2147483648", "x--0000000005", "-000000000", "lock-2147483648", "é0000000001"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		n, ok := Number(name)
		if !ok {
			if len(name) >= 10 {
				if v, err := strconv.ParseInt(name[len(name)-10:], 10, 32); err == nil && name[len(name)-10] != '+' &&
					fmt.Sprintf("%010d", v) == name[len(name)-10:] && (len(name) == 10 || name[len(name)-11] != '-') {
					t.Fatalf("Number(%q) found none, there is %d", name, v)
				}
			}
			return
		}
		printed := fmt.Sprintf("%010d", n)
		if n == 0 && name[len(name)-10] == '-' {
			printed = "-000000000"
		}
		assert.Must(t, len(name) >= len(printed) && name[len(name)-len(printed):] == printed,
			"Number(%q) = %d, printed %s", name, n, printed)
	})
}
