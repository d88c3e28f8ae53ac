package difftest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk/wire"
)

func TestPathsAreMovedThereAndBack(t *testing.T) {
	p := place{root: "/d1"}
	for path, sent := range map[string]string{"/": "/d1", "/a": "/d1/a", "//": "/d1//", "^/zookeeper": "/zookeeper",
		"^a": "a", "^": "", "^/q{root}/x": "/q/d1/x"} {
		assert.Equal(t, p.absolute(path), sent, "%q is sent as", path)
		assert.Equal(t, p.relative(sent), path, "%q is read as", sent)
	}
}

func TestSurrogatesAreReadAsTheCharacterThatTheyAre(t *testing.T) {
	for sent, want := range map[string]string{
		"/\xed\xa0\xbd\xed\xb4\x92x": "/\U0001f512x", "/a": "/a", "": "", "\xed\xa0\xbd": "\xed\xa0\xbd",
		"\xed\xb4\x92\xed\xa0\xbd": "\xed\xb4\x92\xed\xa0\xbd", "é\xed": "é\xed",
	} {
		assert.Equal(t, inUTF8(sent), want, "%q is read as", sent)
	}
}

// TestTimesThatCannotBeAreTold: a view does not write times down, so it must see by itself what is wrong with them.
func TestTimesThatCannotBeAreTold(t *testing.T) {
	now := time.Now()
	fresh := func() *view {
		return &view{place: place{root: "/d1", base: 10}, began: now, times: map[int64]int64{}}
	}
	ms := now.UnixMilli()
	for what, second := range map[string]wire.Stat{
		"HAS TWO TIMES":   {Czxid: 11, Ctime: ms + 1, Mzxid: 11, Mtime: ms + 1},
		"IS OUT OF ORDER": {Czxid: 12, Ctime: ms - 1, Mzxid: 12, Mtime: ms - 1},
		"IS NOT NOW":      {Czxid: 12, Ctime: ms, Mzxid: 13, Mtime: ms + 60_000},
		"":                {Czxid: 11, Ctime: ms, Mzxid: 12, Mtime: ms + 1},
	} {
		v := fresh()
		v.stat("/a", wire.Stat{Czxid: 11, Ctime: ms, Mzxid: 11, Mtime: ms})
		got := v.stat("/a", second)
		assert.That(t, (what == "" || strings.Contains(got, what)) && (what != "" || !strings.Contains(got, "TIME")),
			"want %q, got %s", what, got)
	}
}

// TestOnlyTheEventsOfASessionsEndAreSorted: what any other step tells has one order, and so have events and replies.
func TestOnlyTheEventsOfASessionsEndAreSorted(t *testing.T) {
	said := func() []string {
		return []string{"c0 event b", "c0 event a", "c0 reply", "c0 event a", "c1 reply", "c1 event b", "c1 event a", "c2 event z", "c2 event y"}
	}
	sorted := []string{"c0 event a", "c0 event b", "c0 reply", "c0 event a", "c1 reply", "c1 event a", "c1 event b", "c2 event y", "c2 event z"}
	for _, test := range []struct {
		step Step
		want []string
	}{
		{c(0).closes(), sorted}, {Step{0, Expire{1}}, sorted}, {c(0).does(del("/a"), Request{Op: wire.OpCloseSession}), sorted},
		{c(0).does(del("/a")), said()}, {c(0).drops(), said()}, {c(0).opens(), said()},
	} {
		got := said()
		endInAnyOrder(test.step, got)
		assert.That(t, slices.Equal(got, test.want), "%v: %q, want %q", test.step, got, test.want)
	}
}
