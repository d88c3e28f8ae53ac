package clientsuite

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
)

// credentials are about the API token, and the configuration. What each request may carry is checked in every case.
var credentials = []transcript{
	{name: "an acquire carries the API token", play: func(s *scene) {
		s.start()
		s.hold()
		equal(s, s.all(acquire)[0].header.Get("Authorization"), "Bearer "+apiToken, "Authorization")
	}},
	{name: "without a token an acquire carries none", play: func(s *scene) {
		s.start(func(l *Lock) { l.Token = "" })
		s.hold()
		equal(s, s.all(acquire)[0].header.Get("Authorization"), "", "Authorization")
	}},
	{name: "the token file is read for each acquire", gateways: 2, play: func(s *scene) {
		file := filepath.Join(s.t.TempDir(), "token")
		assert.NoError(s.t, os.WriteFile(file, []byte("one-token\n"), 0o600))
		s.play(acquire)
		s.start(func(l *Lock) { l.Token, l.TokenFile = "", file })
		x := s.next(acquire)
		equal(s, x.header.Get("Authorization"), "Bearer one-token", "Authorization")
		assert.NoError(s.t, os.WriteFile(file, []byte("another-token\n"), 0o600))
		x.reply(503, problem(503, "zookeeper_unavailable"))
		x = s.next(acquire)
		equal(s, x.header.Get("Authorization"), "Bearer another-token", "Authorization of the repeat")
		x.reply(201, s.lease("held", "waited_ms", 0))
		s.hold()
	}},
	{name: "a token and a token file together are an error", play: func(s *scene) {
		s.start(func(l *Lock) { l.TokenFile = filepath.Join(s.t.TempDir(), "token") })
		s.failed("Invalid")
		equal(s, len(s.asked), 0, "the number of requests")
	}},
	{name: "a token and a token file in the environment are an error", play: func(s *scene) {
		s.start(func(l *Lock) { l.URL, l.Token = "", "" })
		s.failed("Invalid")
	}},
	{name: "a path of the URL leads to the gateway", play: func(s *scene) {
		s.prefix = "/locks"
		s.start(func(l *Lock) { l.URL += "/locks/" })
		s.hold()
	}},
}

func TestEachClientReadsItsEnvironment(t *testing.T) {
	t.Parallel()
	for _, l := range languages {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			argv := l.make(t, t.TempDir())
			file := filepath.Join(t.TempDir(), "token")
			assert.NoError(t, os.WriteFile(file, []byte(apiToken), 0o600))
			fromEnv := func(l *Lock) { l.URL, l.Token = "", "" }

			// The driver gets the URLs with its environment, so the scene is made first.
			s := newScene(t, nil, 2)
			s.bases[0].Close()
			s.driver = driverT(t, argv, "LOCKKEEPER_URL="+strings.ReplaceAll(s.urls(), ",", ", "), "LOCKKEEPER_TOKEN=", "LOCKKEEPER_TOKEN_FILE="+file)
			s.start(fromEnv)
			s.hold()
			equal(s, s.all(acquire)[0].header.Get("Authorization"), "Bearer "+apiToken, "Authorization")
		})
	}
}
