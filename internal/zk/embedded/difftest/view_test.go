package difftest

import (
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/zk/wire"
)

func TestPathsAreMovedThereAndBack(t *testing.T) {
	p := place{root: "/d1"}
	for path, sent := range map[string]string{"/": "/d1", "/a": "/d1/a", "//": "/d1//", "^/zookeeper": "/zookeeper",
		"^a": "a", "^": "", "^/q{root}/x": "/q/d1/x"} {
		if got := p.absolute(path); got != sent {
			t.Errorf("%q is sent as %q, want %q", path, got, sent)
		}
		if got := p.relative(sent); got != path {
			t.Errorf("%q is read as %q, want %q", sent, got, path)
		}
	}
}

func TestSurrogatesAreReadAsTheCharacterThatTheyAre(t *testing.T) {
	for sent, want := range map[string]string{
		"/\xed\xa0\xbd\xed\xb4\x92x": "/\U0001f512x", "/a": "/a", "": "", "\xed\xa0\xbd": "\xed\xa0\xbd",
		"\xed\xb4\x92\xed\xa0\xbd": "\xed\xb4\x92\xed\xa0\xbd", "é\xed": "é\xed",
	} {
		if got := inUTF8(sent); got != want {
			t.Errorf("%q is read as %q, want %q", sent, got, want)
		}
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
		if what != "" && !strings.Contains(got, what) || what == "" && strings.Contains(got, "TIME") {
			t.Errorf("want %q, got %s", what, got)
		}
	}
}
