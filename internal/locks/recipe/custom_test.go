package recipe

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"lockkeeper/internal/test/assert"
)

const hosts = "custom exclusive={id}-W- shared={id}-R-"

func mustNaming(t testing.TB, s string) *Naming {
	t.Helper()
	n := assert.Value(ParseNaming(s))(t, "%s", s)
	return n
}

func TestACustomDialectHasTheNamesThatAreConfigured(t *testing.T) {
	for _, test := range []struct {
		dialect   string
		contender Contender
		name      string
	}{
		{hosts, Contender{Number: 5}, "v1." + id39 + "-W-0000000005"},
		{hosts, Contender{Mode: Shared, Number: -1500000000}, "v1." + id39 + "-R--1500000000"},
		{hosts, Contender{Mode: Shared, Ephemeral: true, Group: 2, Groups: 3, FirstCzxid: 9}, "v1." + id39 + ".e.g2of3.f9-R-0000000000"},
		{"custom exclusive=host_{id}_W_ shared=host_{id}_R_", Contender{Number: -7}, "host_v1." + id39 + "_W_-000000007"},
		{"custom exclusive={id}-", Contender{Number: 1500000000}, "v1." + id39 + "-1500000000"},
	} {
		n, c := mustNaming(t, test.dialect), test.contender
		c.LeaseID, c.Form = testLease, FormCustom
		assert.Equal(t, n.Format(&c), test.name, "Format")
		c.Name, c.Ours, c.Version = test.name, true, 1
		c.Member, c.Members, c.Group, c.Groups = 1, 1, max(c.Group, 1), max(c.Groups, 1)
		got, ok := n.Parse(testFleet, test.name)
		assert.That(t, ok && got == c, "Parse(%q) = %+v, %v; want %+v", test.name, got, ok, c)
		// In a namespace of another dialect another program made it, or a later release.
		got, ok = Parse(testFleet, test.name)
		assert.That(t, ok && got.Unknown && got.Mode == Exclusive, "elsewhere %q is %+v, %v", test.name, got, ok)
	}
	got, ok := mustNaming(t, hosts).Parse(testFleet, "read-v1."+id39+"-lock-0000000001")
	assert.That(t, ok && got.Unknown && got.Mode == Exclusive, "a native name in a custom namespace is %+v, %v", got, ok)
	alone := mustNaming(t, "custom exclusive={id}-W-")
	if alone.Has(Shared) || alone.Has(Permit) || !alone.Has(Exclusive) || alone.Contenders(Contender{LeaseID: testLease, Mode: Shared}) != nil {
		t.Error("without shared= there are names for shared contenders")
	}
	n := mustNaming(t, hosts)
	assert.That(t, n.Has(Shared) && !n.Has(Permit), "with shared= there are none, or there are permits")
}

// In a custom dialect the pattern alone tells who reads: a host called read-replica writes, too.
func TestForeignNamesOfACustomDialectAreSharedWhereItSaysSo(t *testing.T) {
	for _, test := range []struct {
		dialect, name string
		mode          Mode
	}{
		{hosts, "db7-R-0000000001", Shared},
		{hosts, "db7-R--000000001", Shared},
		{hosts, "db7-W-0000000001", Exclusive},
		{hosts, "db7-R-x-0000000001", Exclusive},
		{hosts, "read-replica-W-0000000001", Exclusive},
		{hosts, "read-0000000001", Exclusive},
		{hosts, "x-__READ__0000000001", Exclusive},
		{hosts, "0000000001", Exclusive},
		{hosts, "_c_c8b0d5e4-1111-4222-8333-123456789abc-lease-0000000001", Permit},
		{hosts + " foreign-shared=-(R|READ)-$", "db7-READ-0000000001", Shared},
		{hosts + ` foreign-shared=^[a-z0-9.]{3,90}-R-$`, "db7-R-0000000001", Shared},
		{"custom exclusive={id}-W-", "db7-R-0000000001", Exclusive},
		{"custom exclusive={id}-W- foreign-shared=-R-$", "db7-R-0000000001", Shared},
		{"custom exclusive=h_{id}_W_ shared=h_{id}_R_", "h_7_R_0000000001", Shared},
		{"custom exclusive=h_{id}_W_ shared=h_{id}_R_", "g_7_R_0000000001", Exclusive},
		{hosts, "v1." + Tag + "zzzzzzzzijklmnopqrstuvwxyz234567abcde-R-0000000001", Shared}, // another fleet's
		{hosts, "v1." + Tag + "zzzzzzzzijklmnopqrstuvwxyz234567abcde-W-0000000001", Exclusive},
	} {
		got, ok := mustNaming(t, test.dialect).Parse(testFleet, test.name)
		assert.That(t, ok && got.Mode == test.mode && !got.Ours,
			"with %s %q is %+v, %v; want %v", test.dialect, test.name, got, ok, test.mode)
	}
}

func TestACustomDialectIsRecordedInOneWay(t *testing.T) {
	want := `custom exclusive={id}-W- shared={id}-R- foreign-shared=-R-$`
	for _, s := range []string{want, hosts, "custom shared={id}-R-   exclusive={id}-W-", "custom foreign-shared=-R-$ shared={id}-R- exclusive={id}-W-"} {
		assert.Equal(t, mustNaming(t, s).String(), want, "%q is recorded as", s)
	}
	got := mustNaming(t, "custom exclusive=a.b_{id}|W- shared=a.b_{id}|R-").String()
	assert.That(t, strings.HasSuffix(got, ` foreign-shared=^a\.b_.+\|R-$`), "%v", got)
}

func TestCustomDialectsThatWouldBreakAProgramAreRefused(t *testing.T) {
	for s, why := range map[string]string{
		"":                                    "needs the names",
		"shared={id}-R-":                      "needs the names",
		"exclusive=":                          "nothing behind it",
		"exclusive":                           "is none of",
		"exclusive={id}-W- semaphore={id}-P-": "is none of",
		"exclusive={id}-W- exclusive={id}-X-": "twice",
		"exclusive=lock-":                     "must have {id}",
		"exclusive={id}-{id}-":                "once",
		"exclusive={id}/W-":                   `'/'`,
		"exclusive={id}-\x01-":                `'\x01'`,
		"exclusive={id}-ü-":                   "not '",
		"exclusive={id}-W,-":                  `','`,
		"exclusive=-{id}-W-":                  "must begin with",
		"exclusive=.{id}-W-":                  "must begin with",
		"exclusive=!{id}-W-":                  "must begin with",
		"exclusive=+{id}-W-":                  "must begin with",
		"exclusive=#{id}-W-":                  "must begin with",
		"exclusive=0_{id}-W-":                 "must begin with",
		"exclusive=h{id}-W-":                  "beside",
		"exclusive=h.{id}-W-":                 "beside",
		"exclusive={id}w-":                    "beside",
		"exclusive={id}.W-":                   "beside",
		"exclusive={id}7-":                    "beside",
		"exclusive={id}":                      "must end in a dash",
		"exclusive={id}-W":                    "must end in a dash",
		"exclusive={id}-W-0":                  "must end in a dash",
		"exclusive={id}-W.":                   "must end in a dash",
		"exclusive={id}-W--":                  "sign",
		"exclusive={id}_-":                    "sign",
		"exclusive=" + strings.Repeat("h", 32) + "-{id}-":                       "more than 32",
		"exclusive={id}-" + strings.Repeat("h", 32) + "-":                       "more than 32",
		"exclusive=lock--{id}-W-":                                               `behind "lock-"`,
		"exclusive={id}-lock-5W-":                                               `behind "lock-"`,
		"exclusive={id}-latch-.-":                                               `behind "latch-"`,
		"exclusive={id}__WRIT__-W-":                                             `behind "__WRIT__"`,
		"exclusive=read-{id}-lock-":                                             "shared contender",
		"exclusive=read-_{id}-W-":                                               "shared contender",
		"exclusive={id}__READ__":                                                "shared contender",
		"exclusive={id}__rlock__":                                               "shared contender",
		"exclusive={id}-lease-":                                                 "semaphore contender",
		"exclusive=permit-{id}-1of3-lock-":                                      "semaphore contender",
		"exclusive={id}-W- shared={id}-W-":                                      "must differ",
		"exclusive={id}-W- shared={id}-lease-":                                  "semaphore contender",
		"exclusive={id}-W- shared={id}__lock__":                                 "exclusive contender",
		"exclusive={id}-W- shared={id}__WRIT__":                                 "exclusive contender",
		"exclusive={id}-W- shared=write-{id}-R-":                                "exclusive contender",
		"exclusive={id}-W- shared=write-_{id}-R-":                               "exclusive contender",
		"exclusive={id}-W-R- shared={id}-R-":                                    "fits a name of exclusive",
		"exclusive={id}-W- foreign-shared=.*":                                   "fits a name of exclusive",
		"exclusive={id}-W- foreign-shared=^v1":                                  "fits a name of exclusive",
		"exclusive={id}-W- shared={id}-R- foreign-shared=-R-[0-9]+$":            "without their number",
		"exclusive={id}-W- foreign-shared=(":                                    "no regular expression",
		"exclusive={id}-W- foreign-shared=(?!x)":                                "no regular expression",
		"exclusive={id}-W- foreign-shared=" + strings.Repeat("x", MaxPattern+1): "at most 200",
	} {
		n, err := ParseNaming("custom " + s)
		assert.That(t, err != nil && strings.Contains(err.Error(), why), "%q: %v, %v; want an error with %q", s, n, err, why)
	}
}

// drawTemplate makes templates, most of which are accepted.
func drawTemplate(t *rapid.T, label string) string {
	part := rapid.OneOf(rapid.SampledFrom([]string{"", "host", "W", "R", "lock-", "-lock-", "__", "read-", "write-", "lease-", "v1.lk", "of3"}),
		rapid.StringMatching(`[A-Za-z0-9._~@:=+#!-]{0,6}`))
	edge := rapid.SampledFrom([]string{"-", "_", "-", "_", "", "x", "7", "."})
	return part.Draw(t, label+" start") + edge.Draw(t, label+" before") + placeholder + edge.Draw(t, label+" behind") +
		part.Draw(t, label+" end") + rapid.SampledFrom([]string{"-", "_", "__", "--", "9", ""}).Draw(t, label+" last")
}

func TestOnlyItsOwnTemplateReadsTheNamesOfEachAcceptedTemplate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := "custom exclusive=" + drawTemplate(t, "exclusive")
		if rapid.Bool().Draw(t, "shared") {
			s += " shared=" + drawTemplate(t, "shared")
		}
		if n, err := ParseNaming(s); err == nil {
			checkNaming(t, n, drawLease(t))
		}
	})
}

// drawSound makes a template that every rule accepts: its own letters show its mode, and
// make up no word of another program.
func drawSound(t *rapid.T, mode, letters string) string {
	start := rapid.OneOf(rapid.Just(""), rapid.StringMatching(`[A-Z_][A-Z0-9.]{0,30}[_~@:=+#!-]`)).Draw(t, mode+" start")
	return start + placeholder + rapid.StringMatching(`[_~@:=+#!-]`+letters+`{1,30}[_-]`).Draw(t, mode+" end")
}

// The rules refuse only templates that would break another program.
func TestEverySoundTemplateIsAcceptedAndReadsItsOwnNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := "custom exclusive=" + drawSound(t, "exclusive", `[WX]`)
		if rapid.Bool().Draw(t, "shared") {
			s += " shared=" + drawSound(t, "shared", `[RS]`)
		}
		n := assert.Value(ParseNaming(s))(t, "%s", s)
		checkNaming(t, n, drawLease(t))
	})
}

// drawLease is a contender of any kind, without its form.
func drawLease(t *rapid.T) Contender {
	gateway := assert.Value(NewGatewayID(strings.NewReader(rapid.StringN(8, 8, 32).Draw(t, "gateway") + "12345678")))(t)
	id := assert.Value(NewLeaseID(testFleet, gateway, strings.NewReader(rapid.StringN(10, 10, 40).Draw(t, "random")+"1234567890")))(t)
	c := Contender{LeaseID: id, Ephemeral: rapid.Bool().Draw(t, "ephemeral"), Group: 1, Groups: 1,
		Mode:   rapid.SampledFrom([]Mode{Exclusive, Shared}).Draw(t, "mode"),
		Number: rapid.OneOf(rapid.Int32(), rapid.SampledFrom([]int32{0, 5, -1, 999999999, 1000000000, -999999999, -1000000000, 2147483647, -2147483648})).Draw(t, "number")}
	if rapid.Bool().Draw(t, "group") {
		c.Groups = uint8(rapid.IntRange(2, MaxGroup).Draw(t, "groups"))
		c.Group = uint8(rapid.IntRange(1, int(c.Groups)).Draw(t, "of"))
	}
	if rapid.Bool().Draw(t, "downgraded") {
		c.FirstCzxid = rapid.Int64Min(1).Draw(t, "czxid")
	}
	return c
}

// checkNaming proves of one contender that its name is read back, by every program in its mode.
func checkNaming(t assert.T, n *Naming, c Contender) {
	again, err := ParseNaming(n.String())
	assert.Must(t, err == nil && again.String() == n.String(), "%q is read back as %v, %v", n, again, err)
	all := n.Contenders(c)
	assert.Must(t, (len(all) > 0) == n.Has(c.Mode), "with %s a %s lease has %d names", n, c.Mode, len(all))
	for _, c := range all {
		name := n.Format(&c)
		c.Name, c.Ours, c.Version = name, true, version
		got, ok := n.Parse(testFleet, name)
		assert.Must(t, ok && got == c, "with %s %q is %+v, not %+v", n, name, got, c)
		prefix := n.Prefix(&c)
		assert.Must(t, name == prefix+fmt.Sprintf("%010d", c.Number), "with %s %q has the prefix %q", n, name, prefix)
		other, ok := n.Parse("zzzzzzzz", name)
		assert.Must(t, c.LeaseID.Fleet() == "zzzzzzzz" || ok && !other.Ours && (other.Mode == c.Mode || !n.custom.lookalike()),
			"with %s another fleet reads %q as %+v", n, name, other)
		// To those who do not know the dialect it excludes, unless it is shared.
		plain, ok := Parse("zzzzzzzz", name)
		assert.Must(t, ok && (plain.Mode == Exclusive || plain.Mode == c.Mode), "with %s %q is %+v elsewhere", n, name, plain)
		assert.Must(t, name[0] == '_' || isLetter(name[0]), "%q sorts before digits", name)
	}
}

// lookalike reports whether the pattern is the one that the templates give.
func (c *custom) lookalike() bool {
	return c != nil && (c.shared == template{} || c.foreignShared.String() == c.shared.lookalikes())
}

func FuzzParseNaming(f *testing.F) {
	for _, s := range []string{"native", "all", hosts, hosts + " foreign-shared=-R-$", "custom exclusive=h_{id}_", "custom exclusive={id}-W- foreign-shared=(a|b)*$"} {
		f.Add(s, int32(7), int64(0), false)
	}
	f.Fuzz(func(t *testing.T, s string, number int32, czxid int64, shared bool) {
		n, err := ParseNaming(s)
		if err != nil {
			assert.That(t, err.Error() != "" && n == nil, "%v, %v", n, err)
			return
		}
		c := Contender{LeaseID: testLease, Number: number, FirstCzxid: max(czxid, 0), Group: 1, Groups: 1}
		if shared {
			c.Mode = Shared
		}
		checkNaming(t, n, c)
	})
}
