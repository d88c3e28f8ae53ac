package recipe

import (
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"pgregory.net/rapid"

	"lockkeeper/internal/test/assert"
)

const id39 = string(testLease)

func TestNamesOfEveryModeAndDialect(t *testing.T) {
	for _, test := range []struct {
		contender Contender
		name      string
	}{
		{Contender{Number: 5}, "write-v1." + id39 + "-lock-0000000005"},
		{Contender{Mode: Shared, Number: 12}, "read-v1." + id39 + "-lock-0000000012"},
		{Contender{Mode: Permit, Permits: 2, Limit: 5}, "permit-v1." + id39 + "-2of5-lock-0000000000"},
		{Contender{Mode: Permit, Permits: 1, Limit: MaxPermits, Ephemeral: true}, "permit-v1." + id39 + ".e-1of2147483647-lock-0000000000"},
		{Contender{Form: FormCurator, Number: -5}, "write-v1." + id39 + "-__WRIT__-000000005"},
		{Contender{Form: FormCurator, Mode: Shared}, "read-v1." + id39 + "-__READ__0000000000"},
		{Contender{Form: FormKazoo, Number: -2147483648}, "v1." + id39 + "__lock__-2147483648"},
		{Contender{Form: FormKazoo, Mode: Shared}, "v1." + id39 + "__rlock__0000000000"},
		{Contender{Ephemeral: true, Number: -1500000000}, "write-v1." + id39 + ".e-lock--1500000000"},
		{Contender{Member: 1, Members: 3}, "write-v1." + id39 + ".m1of3-lock-0000000000"},
		{Contender{Mode: Shared, Form: FormKazoo, Member: 2, Members: 3, FirstCzxid: 4294967299}, "v1." + id39 + ".m2of3.f4294967299__rlock__0000000000"},
		{Contender{Mode: Shared, Ephemeral: true, Member: 9, Members: 9, FirstCzxid: 9223372036854775807}, "read-v1." + id39 + ".e.m9of9.f9223372036854775807-lock-0000000000"},
		{Contender{Group: 1, Groups: 2}, "write-v1." + id39 + ".g1of2-lock-0000000000"},
		{Contender{Group: 64, Groups: 64, FirstCzxid: 7, Mode: Shared}, "read-v1." + id39 + ".g64of64.f7-lock-0000000000"},
		{Contender{Group: 10, Groups: 11, Mode: Permit, Permits: 1, Limit: 3}, "permit-v1." + id39 + ".g10of11-1of3-lock-0000000000"},
		{Contender{Group: 3, Groups: 12, Member: 2, Members: 3, Form: FormKazoo, Ephemeral: true}, "v1." + id39 + ".e.m2of3.g3of12__lock__0000000000"},
	} {
		c := test.contender
		c.LeaseID = testLease
		assert.Equal(t, c.Format(), test.name, "Format")
		got, want := c.Prefix(), test.name[:len(test.name)-len(fmt.Sprintf("%010d", c.Number))]
		assert.Equal(t, got, want, "Prefix")
		c.Name, c.Ours, c.Version = test.name, true, 1
		c.Member, c.Members = max(c.Member, 1), max(c.Members, 1)
		c.Group, c.Groups = max(c.Group, 1), max(c.Groups, 1)
		if got, ok := Parse(testFleet, test.name); !ok || got != c {
			t.Errorf("Parse(%q) = %+v, %v; want %+v", test.name, got, ok, c)
		}
		if got, ok := Parse("zzzzzzzz", test.name); !ok || got.Ours || got.LeaseID != "" || got.Number != c.Number {
			t.Errorf("to another fleet %q is %+v, %v", test.name, got, ok)
		}
	}
}

func TestForeignNamesHaveTheModeOfTheirClient(t *testing.T) {
	for _, test := range []struct {
		name string
		mode Mode
	}{
		{"_c_c8b0d5e4-1111-4222-8333-123456789abc-lock-0000000001", Exclusive},
		{"_c_c8b0d5e4-1111-4222-8333-123456789abc-__WRIT__0000000001", Exclusive},
		{"_c_c8b0d5e4-1111-4222-8333-123456789abc-__READ__0000000001", Shared},
		{"_c_c8b0d5e4-1111-4222-8333-123456789abc-lease-0000000001", Permit},
		{"_c_c8b0d5e4-1111-4222-8333-123456789abc-latch-0000000001", Exclusive},
		{"_c_0123456789abcdef0123456789abcdef-lock-0000000001", Exclusive},
		{"0123456789abcdef0123456789abcdef__lock__0000000001", Exclusive},
		{"0123456789abcdef0123456789abcdef__rlock__-000000001", Shared},
		{"write-0000000001", Exclusive},
		{"read-0000000001", Shared},
		{"x-72057594037927936-0000000001", Exclusive},
		{"0000000001", Exclusive},
		{"thread-0000000001", Exclusive},                                                // read- starts a name or means nothing
		{"__READ__-lock-0000000001", Exclusive},                                         // it is what precedes the number that tells
		{"write-v1.lkzzzzzzzzmnopqrstuvwxy234567abcdefghij-lock-0000000001", Exclusive}, // another fleet's
		{"read-v2.lkzzzzzzzzmnopqrstuvwxy234567abcdefghij-lock-0000000001", Shared},
		{"permit-v1.lkzzzzzzzzmnopqrstuvwxy234567abcdefghij-1of3-lock-0000000001", Exclusive},
		{"write-v1.abcdefgh-lock-0000000001", Exclusive},                                 // the fleet without the tag
		{"write-v1.zzabcdefghmnopqrstuvwxy234567abcdefghij-lock-0000000001", Exclusive},  // with another's
		{"write-v1.lkzzzzzzzzlkabcdefghmnopq234567abcdefghi-lock-0000000001", Exclusive}, // our id by chance, inside random bits
	} {
		c, ok := Parse(testFleet, test.name)
		n, _ := Number(test.name)
		want := Contender{Name: test.name, Number: n, Mode: test.mode, Member: 1, Members: 1, Group: 1, Groups: 1}
		if test.mode == Permit {
			want.Permits = 1
		}
		assert.That(t, ok && c == want, "Parse(%q) = %+v, %v; want %+v", test.name, c, ok, want)
	}
}

func TestANameOfOursInAnUnknownFormatIsRespectedAsExclusive(t *testing.T) {
	for _, test := range []struct {
		name    string
		lease   LeaseID
		version uint8
	}{
		{"read-v2." + id39 + "-lock-0000000001", testLease, 2},
		{"read-v255." + id39 + "-lock-0000000001", testLease, 255},
		{"read-v256." + id39 + "-lock-0000000001", testLease, 0},
		{"read-v01." + id39 + "-lock-0000000001", testLease, 0},
		{"read-" + id39 + "-lock-0000000001", testLease, 0},
		{"read-v1." + id39 + ".z-lock-0000000001", testLease, 1},
		{"read-v1." + id39 + ".f0-lock-0000000001", testLease, 1},
		{"read-v1." + id39 + ".f007-lock-0000000001", testLease, 1},
		{"read-v1." + id39 + ".f9223372036854775808-lock-0000000001", testLease, 1},
		{"read-v1." + id39 + ".f1.e-lock-0000000001", testLease, 1}, // another order is another spelling
		{"read-v1." + id39 + ".m1of1-lock-0000000001", testLease, 1},
		{"read-v1." + id39 + ".m0of3-lock-0000000001", testLease, 1},
		{"read-v1." + id39 + ".m4of3-lock-0000000001", testLease, 1},
		{"read-v1." + id39 + ".m1of12-lock-0000000001", testLease, 1},
		{"read-v1." + id39 + ".g1of1-lock-0000000001", testLease, 1},
		{"read-v1." + id39 + ".g0of2-lock-0000000001", testLease, 1},
		{"read-v1." + id39 + ".g3of2-lock-0000000001", testLease, 1},
		{"read-v1." + id39 + ".g1of65-lock-0000000001", testLease, 1},
		{"read-v1." + id39 + ".g01of2-lock-0000000001", testLease, 1},
		{"read-v1." + id39 + ".g1of02-lock-0000000001", testLease, 1},
		{"read-v1." + id39 + ".g1of258-lock-0000000001", testLease, 1},
		{"read-v1." + id39 + ".g1-lock-0000000001", testLease, 1},
		{"read-v1." + id39 + ".g-lock-0000000001", testLease, 1},
		{"read-v1." + id39 + ".g1of2of3-lock-0000000001", testLease, 1},
		{"read-v1." + id39 + ".g1of2.-lock-0000000001", testLease, 1},
		{"read-v1." + id39 + ".g1of2.g1of2-lock-0000000001", testLease, 1},
		{"read-v1." + id39 + ".g1of2.m1of2-lock-0000000001", testLease, 1}, // another order is another spelling
		{"read-v1." + id39 + ".f7.g1of2-lock-0000000001", testLease, 1},
		{"read-v1." + id39 + ".e.e-lock-0000000001", testLease, 1},
		{"read-v1." + id39 + ".-lock-0000000001", testLease, 1},
		{"permit-v1." + id39 + "-lock-0000000001", testLease, 1},
		{"permit-v1." + id39 + "-0of3-lock-0000000001", testLease, 1},
		{"permit-v1." + id39 + "-4of3-lock-0000000001", testLease, 1},
		{"permit-v1." + id39 + "-1of2147483648-lock-0000000001", testLease, 1},
		{"permit-v1." + id39 + "-01of3-lock-0000000001", testLease, 1},
		{"permit-v1." + id39 + "-1of3-__READ__0000000001", testLease, 1},
		{"upgrade-v1." + id39 + "-lock-0000000001", testLease, 1},
		{"v1." + id39 + "__lease__0000000001", testLease, 1},
		{"read-v1." + id39 + "-lock--000000000", testLease, 1}, // ZooKeeper does not print it so
		{"read-v1." + id39 + "x-lock-0000000001", "", 1},       // a longer id
		{"read-v1." + id39[:38] + "-lock-0000000001", "", 1},
		{"read-v1.lkabcdefghmnopqrstuvwxz234567abcdefghij-lock-0000000001", "", 1}, // not canonical
	} {
		c, ok := Parse(testFleet, test.name)
		n, _ := Number(test.name)
		want := Contender{Name: test.name, Number: n, LeaseID: test.lease, Version: test.version, Mode: Exclusive, Ours: true, Unknown: true}
		assert.That(t, ok && c == want, "Parse(%q) = %+v, %v; want %+v", test.name, c, ok, want)
	}
}

func TestAChildWithoutANumberIsNoContender(t *testing.T) {
	for _, name := range []string{"", "notes", "write-v1." + id39 + "-lock-", "write-v1." + id39 + "-lock-2147483648", "limit-5"} {
		c, ok := Parse(testFleet, name)
		assert.That(t, !ok && c == (Contender{}), "Parse(%q) = %+v, %v", name, c, ok)
	}
}

func TestNothingCountsAsOursWithoutAFleetID(t *testing.T) {
	c, _ := Parse("", "write-v1."+id39+"-lock-0000000001")
	assert.That(t, !c.Ours, "a gateway without a fleet id takes a name for its own")
}

func TestALeaseOfTheDialectAllHasThreeContenders(t *testing.T) {
	for _, test := range []struct {
		dialect  Dialect
		mode     Mode
		prefixes []string
	}{
		{Native, Exclusive, []string{"write-v1." + id39 + "-lock-"}},
		{Native, Shared, []string{"read-v1." + id39 + "-lock-"}},
		{Native, Permit, []string{"permit-v1." + id39 + "-1of2-lock-"}},
		{CuratorRW, Exclusive, []string{"write-v1." + id39 + "-__WRIT__"}},
		{CuratorRW, Shared, []string{"read-v1." + id39 + "-__READ__"}},
		{CuratorRW, Permit, nil},
		{Kazoo, Exclusive, []string{"v1." + id39 + "__lock__"}},
		{Kazoo, Shared, []string{"v1." + id39 + "__rlock__"}},
		{Kazoo, Permit, nil},
		{All, Exclusive, []string{"write-v1." + id39 + ".m1of3-lock-", "v1." + id39 + ".m2of3__lock__", "write-v1." + id39 + ".m3of3-__WRIT__"}},
		{All, Shared, []string{"read-v1." + id39 + ".m1of3-lock-", "v1." + id39 + ".m2of3__rlock__", "read-v1." + id39 + ".m3of3-__READ__"}},
		{All, Permit, nil},
	} {
		c := Contender{LeaseID: testLease, Mode: test.mode}
		if c.Mode == Permit {
			c.Permits, c.Limit = 1, 2
		}
		var got []string
		for _, member := range naming(test.dialect).Contenders(c) {
			got = append(got, member.Prefix())
		}
		assert.That(t, strings.Join(got, " ") == strings.Join(test.prefixes, " "),
			"%s, %s: %q, want %q", test.dialect, test.mode, got, test.prefixes)
	}
	for _, s := range []string{"", "hbase", "Native", " native", "native ", "all exclusive={id}-W-"} {
		n, err := ParseNaming(s)
		assert.That(t, err != nil, "%q is the dialect %s", s, n)
	}
}

// naming is a dialect without anything behind its name.
func naming(d Dialect) *Naming {
	n, err := ParseNaming(string(d))
	if err != nil || n.String() != string(d) || n.Dialect() != d {
		panic(fmt.Sprint(d, n, err))
	}
	return n
}

func TestAContenderWithoutANamePanics(t *testing.T) {
	for _, c := range []Contender{
		{},
		{LeaseID: "lk"},
		{LeaseID: testLease, Unknown: true},
		{LeaseID: testLease, Mode: Permit},
		{LeaseID: testLease, Mode: Permit, Permits: 3, Limit: 2},
		{LeaseID: testLease, Mode: Permit, Permits: 1, Limit: 2, Form: FormKazoo},
		{LeaseID: testLease, Mode: Shared, Permits: 1, Limit: 2},
		{LeaseID: testLease, Mode: Permit + 1},
		{LeaseID: testLease, Form: forms},
		{LeaseID: testLease, Form: FormCustom},
		{LeaseID: testLease, Member: 2, Members: 1},
		{LeaseID: testLease, Member: 0, Members: 2},
		{LeaseID: testLease, Member: 1, Members: 10},
		{LeaseID: testLease, Group: 2, Groups: 1},
		{LeaseID: testLease, Group: 0, Groups: 2},
		{LeaseID: testLease, Group: 1, Groups: 65},
		{LeaseID: testLease, FirstCzxid: -1},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%+v is called %q", c, c.Format())
				}
			}()
			_ = c.Prefix()
		}()
	}
}

func TestModesAreCalledAsInTheAPI(t *testing.T) {
	assert.Equal(t, fmt.Sprint(Exclusive, Shared, Permit, Mode(7)), "exclusive shared semaphore mode 7")
}

func TestAContenderHas64Bytes(t *testing.T) {
	size := unsafe.Sizeof(Contender{})
	assert.That(t, size == 64, "a contender has %d bytes", size)
}

// anyContender draws a contender of ours, of any mode and dialect, named.
func anyContender() *rapid.Generator[Contender] {
	return rapid.Custom(func(t *rapid.T) Contender {
		random := rapid.SliceOfN(rapid.Byte(), 10, 10).Draw(t, "random")
		c := Contender{
			LeaseID:   LeaseID(Tag + string(testFleet) + string(testGateway) + encoding.EncodeToString(random)),
			Number:    anyNumber().Draw(t, "number"),
			Mode:      Mode(rapid.IntRange(0, int(Permit)).Draw(t, "mode")),
			Ephemeral: rapid.Bool().Draw(t, "ephemeral"),
			Members:   uint8(rapid.IntRange(1, maxMembers).Draw(t, "members")),
			Groups:    uint8(rapid.IntRange(1, MaxGroup).Draw(t, "groups")),
			Version:   1, Ours: true,
		}
		c.Member = uint8(rapid.IntRange(1, int(c.Members)).Draw(t, "member"))
		c.Group = uint8(rapid.IntRange(1, int(c.Groups)).Draw(t, "group"))
		if rapid.Bool().Draw(t, "downgraded") {
			c.FirstCzxid = rapid.Int64Min(1).Draw(t, "czxid")
		}
		if c.Mode == Permit {
			c.Limit = rapid.Int32Range(1, MaxPermits).Draw(t, "limit")
			c.Permits = rapid.Int32Range(1, c.Limit).Draw(t, "permits")
		} else {
			c.Form = Form(rapid.IntRange(0, int(FormKazoo)).Draw(t, "form"))
		}
		c.Name = c.Format()
		return c
	})
}

func TestParseReadsWhatFormatWrites(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := anyContender().Draw(t, "contender")
		got, ok := Parse(testFleet, c.Name)
		assert.Must(t, ok && got == c, "Parse(%q) = %+v, %v; want %+v", c.Name, got, ok, c)
		assert.NoError(t, CheckLockName(c.Name), "%q has characters of another alphabet", c.Name)
	})
}

func TestParseDoesNotAllocate(t *testing.T) {
	for _, name := range []string{
		"write-v1." + id39 + "-lock-0000000005", "permit-v1." + id39 + ".e-1of3-lock-0000000005",
		"v1." + id39 + ".m2of3.f4294967299__rlock__0000000000", "write-v1." + id39 + ".g12of64.f7-lock-0000000005",
		"_c_c8b0d5e4-1111-4222-8333-123456789abc-lock-0000000001", "notes",
	} {
		n := testing.AllocsPerRun(100, func() { Parse(testFleet, name) })
		assert.That(t, n == 0, "Parse(%q) allocates %v times", name, n)
	}
}

func FuzzParseName(f *testing.F) {
	for _, name := range []string{
		"write-v1." + id39 + "-lock-0000000005", "permit-v1." + id39 + ".e-1of3-lock-0000000005",
		"v1." + id39 + ".m2of3.f42__rlock__-000000001", "read-v2." + id39 + "-__READ__0000000005",
		"write-v1." + id39 + ".m1of2.g12of64.f42-lock-0000000005", "write-v1." + id39 + ".g65of64-lock-0000000005",
		"lkabcdefgh0000000001", "lkabcdefgh", "_c_x-lease-0000000001", "vlkabcdefgh.0000000001",
	} {
		f.Add(name, int32(5), uint32(0), int64(0), int32(1), int32(3))
	}
	f.Add("", int32(-1), uint32(0xffff), int64(1)<<32, int32(7), int32(7))
	f.Add("", int32(7), uint32(64<<20|9<<13|3<<8|2<<4), int64(1)<<32, int32(0), int32(0))
	f.Fuzz(func(t *testing.T, name string, number int32, bits uint32, czxid int64, permits, limit int32) {
		c, ok := Parse(testFleet, name)
		n, numbered := Number(name)
		assert.Must(t, ok == numbered && c.Number == n, "Parse(%q) = %+v, %v; its number is %d, %v", name, c, ok, n, numbered)
		assert.Must(t, !c.Ours || c.Unknown || c.Format() == name, "%q is not what it is called by", name)
		if c.Unknown && (c.Mode != Exclusive || !c.Ours) || !c.Ours && c.LeaseID != "" || c.LeaseID != "" && c.LeaseID.Fleet() != testFleet {
			t.Fatalf("Parse(%q) = %+v", name, c)
		}
		c = Contender{
			LeaseID: testLease, Number: number, FirstCzxid: czxid, Permits: permits, Limit: limit,
			Mode: Mode(bits & 3), Form: Form(bits >> 2 & 3), Member: uint8(bits >> 4 & 15), Members: uint8(bits >> 8 & 15),
			Ephemeral: bits>>12&1 == 1, Group: uint8(bits >> 13 & 127), Groups: uint8(bits >> 20 & 127),
		}
		if c.unnameable() != "" {
			return
		}
		c.Name, c.Ours, c.Version = c.Format(), true, version
		c.Member, c.Members = max(c.Member, 1), max(c.Members, 1)
		c.Group, c.Groups = max(c.Group, 1), max(c.Groups, 1)
		got, ok := Parse(testFleet, c.Name)
		assert.Must(t, ok && got == c, "Parse(%q) = %+v, %v; want %+v", c.Name, got, ok, c)
	})
}
