package embedded_test

import (
	"context"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/embeddedtest"
	"lockkeeper/internal/test/rawzk"
	"lockkeeper/internal/test/zkreal"
	"lockkeeper/internal/zk/wire"
)

func TestMain(m *testing.M) { zkreal.Main(m) }

var (
	versionText = regexp.MustCompile(`3\.8\.0-[^\n]*UTC`)
	number      = regexp.MustCompile(`0x[0-9a-f]+|-?\d+(\.\d+)?`)
)

// shape is an answer with its numbers taken out, all but whether they are whole.
func shape(answer string) string {
	answer = versionText.ReplaceAllString(answer, "VERSION")
	return number.ReplaceAllStringFunc(answer, func(n string) string {
		switch {
		case strings.HasPrefix(n, "0x"):
			return "HEX"
		case strings.Contains(n, "."):
			return "FLOAT"
		}
		return "INT"
	})
}

func TestFourLetterWordsAreAnsweredAsByTheRealServer(t *testing.T) {
	real := zkreal.StartT(t, zkreal.WithoutFsync())
	s := embeddedtest.RunT(t)
	openRaw(t, s, time.Minute).ping()
	ask := func(word string) (theirs, ours string) {
		t.Helper()
		theirs = assert.Value(real.FourLetter(word))(t)
		ours = assert.Value(s.FourLetter(word))(t)
		return theirs, ours
	}
	for _, word := range []string{"ruok", "isro", "srvr"} {
		theirs, ours := ask(word)
		assert.That(t, shape(theirs) == shape(ours), "%s: theirs\n%s\nours\n%s", word, theirs, ours)
	}
	// stat has one line for each connection.
	var theirs, ours string
	soon(func() bool {
		theirs, ours = ask("stat")
		return strings.Count(ours, "queued=") == 2
	})
	client := regexp.MustCompile(`(?m)^ /INT.INT.INT.INT:INT\[INT\]\(queued=INT,recved=INT,sent=INT\)\n|^ /FLOAT.FLOAT:INT\[INT\]\(queued=INT,recved=INT,sent=INT\)\n`)
	a, b := client.ReplaceAllString(shape(theirs), ""), client.ReplaceAllString(shape(ours), "")
	assert.That(t, a == b, "stat: theirs\n%s\nours\n%s", theirs, ours)
	n := strings.Count(ours, "queued=")
	assert.That(t, n == 2, "stat tells of %d connections, want 2:\n%s", n, ours)
	// Every line of ours is one of theirs, with a number of the same kind.
	for _, word := range []string{"mntr", "conf", "envi"} {
		theirs, ours := ask(word)
		known := make(map[string]bool)
		for line := range strings.Lines(theirs) {
			known[shape(line)] = true
		}
		for line := range strings.Lines(ours) {
			assert.That(t, known[shape(line)], "%s: %q is no line of theirs", word, line)
		}
	}
}

func TestOtherWordsAreAnsweredAsOffTheRealServersWhitelist(t *testing.T) {
	// conf is what zkreal knows its own server by; srvr is always on.
	real := zkreal.StartT(t, zkreal.WithoutFsync(), zkreal.WithConfig("4lw.commands.whitelist", "conf"))
	s := embeddedtest.RunT(t)
	for _, word := range []string{
		"cons", "dump", "wchs", "wchc", "wchp", "crst", "srst", "dirs", "hash", "gtmk", "stmk", "\xff\xf4\xff\xfd", "abcd", "RUOK", "ruo\n",
	} {
		theirs, _ := real.FourLetter(word) // what is no word may end in a reset: that is an answer, too
		ours, _ := s.FourLetter(word)
		assert.That(t, ours == theirs, "%q: theirs %q, ours %q", word, theirs, ours)
	}
	// These are on here for a purpose (doc.go) and off there.
	for _, word := range []string{"ruok", "stat", "mntr", "isro", "envi"} {
		theirs, err := real.FourLetter(word)
		if ours, ourErr := s.FourLetter(word); err != nil || ourErr != nil || !strings.Contains(theirs, "whitelist") || strings.Contains(ours, "whitelist") {
			t.Errorf("%s: theirs %q, %v, ours %q, %v", word, theirs, err, ours, ourErr)
		}
	}
}

func TestEnviTellsNothingOfTheMachine(t *testing.T) {
	answer, err := embeddedtest.RunT(t).FourLetter("envi")
	lines := strings.Split(answer, "\n")
	assert.That(t, err == nil && len(lines) == 3 && strings.HasPrefix(lines[1], "zookeeper.version=3.8.0-"), "%q, %v", answer, err)
}

// soon asks until it is so, for some seconds: each question is a connection of its
// own, and the one before may still be leaving.
func soon(so func() bool) bool {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for range 1000 {
		if so() {
			return true
		}
		<-tick.C
	}
	return false
}

func TestFiguresTellWhatIsThere(t *testing.T) {
	s := embeddedtest.RunT(t)
	c := openRaw(t, s, time.Minute)
	before := metric(t, s, "znode_count")
	c.create("/a", []byte("data"), 1)
	c.exists("/a")
	for name, want := range map[string]int{
		"znode_count": before + 1, "ephemerals_count": 1, "global_sessions": 1, "num_alive_connections": 2, "watch_count": 0,
	} {
		got := 0
		assert.That(t, soon(func() bool { got = metric(t, s, name); return got == want }), "%s is %d, want %d", name, got, want)
	}
	c.close()
	assert.That(t, (metric(t, s, "global_sessions")+metric(t, s, "ephemerals_count")) == 0, "a closed session is still counted")
}

// FuzzConnection sends arbitrary bytes on a connection, some of them behind a good handshake, and looks whether another client
// is still served and the server still stands.
func FuzzConnection(f *testing.F) {
	hello := wire.AppendFrame(nil, &wire.ConnectRequest{TimeoutMs: 5000, Passwd: make([]byte, 16)})
	for _, b := range [][]byte{
		nil, []byte("ruok"), []byte("mntr"), {0xff, 0xff, 0xff, 0xff}, {0x7f, 0xff, 0xff, 0xff}, {0, 0, 0, 0}, hello[4:],
		rawzk.Request(1, wire.OpCreate, &wire.CreateRequest{Path: "/a", ACL: everyone}),
		rawzk.Request(2, wire.OpCreateTTL, &wire.CreateTTLRequest{CreateRequest: wire.CreateRequest{Path: "/t", ACL: everyone, Flags: 5}, TTL: 1}),
		rawzk.Request(3, wire.OpMulti, &wire.MultiRequest{Ops: []wire.MultiOp{
			{Op: wire.OpCreate, Record: &wire.CreateRequest{Path: "/m-", ACL: everyone, Flags: 2}},
			{Op: wire.OpCheck, Record: &wire.VersionRequest{Path: "/m", Version: 3}},
		}}),
		rawzk.Request(4, wire.OpMultiRead, &wire.MultiRequest{Ops: []wire.MultiOp{{Op: wire.OpGetData, Record: &wire.ReadRequest{Path: "/"}}}}),
		rawzk.Request(5, wire.OpAddWatch, &wire.AddWatchRequest{Path: "/", Mode: 1}),
		rawzk.Request(-8, wire.OpSetWatches2, &wire.SetWatches2Request{SetWatchesRequest: wire.SetWatchesRequest{Data: []string{"/a", "b"}}, Recursive: []string{"/"}}),
		rawzk.Request(-4, wire.OpAuth, &wire.AuthRequest{Scheme: "digest", Auth: []byte("a:b")}),
		rawzk.Request(6, wire.OpSetACL, &wire.SetACLRequest{Path: "/a", ACL: everyone, Version: -1}),
		rawzk.Request(7, wire.OpRemoveWatches, &wire.WatchTypeRequest{Path: "/", Type: 3}),
		rawzk.Request(8, wire.OpWhoAmI, nil), rawzk.Request(9, wire.OpReconfig, nil), rawzk.Request(10, wire.OpSASL, nil),
		append(rawzk.Request(11, wire.OpCloseSession, nil), rawzk.Request(12, wire.OpPing, nil)...),
	} {
		f.Add(true, b)
		f.Add(false, b)
	}
	s := embeddedtest.RunT(f, embeddedtest.Pipes())
	f.Fuzz(func(t *testing.T, greeted bool, input []byte) {
		nc, err := s.Dial(context.Background(), "", "")
		if err != nil {
			t.Fatalf("the server is gone: %v", s.Err())
		}
		defer nc.Close()
		go func() { _, _ = io.Copy(io.Discard, nc) }() // ends with nc
		assert.NoError(t, nc.SetWriteDeadline(time.Now().Add(time.Second)))
		if greeted {
			input = append(append([]byte(nil), hello...), input...)
		}
		_, _ = nc.Write(input) // the server may close it meanwhile

		other := openRaw(t, s, time.Minute)
		other.ping()
		other.must(wire.OpExists, &wire.ReadRequest{Path: "/zookeeper"})
		other.close()
	})
}
