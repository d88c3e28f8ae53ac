package webhooks

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestADeadHostsMessagesAreNotAllLoggedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		s := New(Options{Logger: slog.New(slog.NewTextHandler(&text, nil))})
		k := s.writer
		many := func(n int) {
			for i := range n {
				k.GivenUp(&Event{LeaseID: fmt.Sprint("lease", i), Type: Released}, "https://hooks.example.com", "no")
			}
		}
		many(1000)
		if n := strings.Count(text.String(), "lease_id="); n != linesAMinute {
			t.Errorf("%d lines", n)
		}
		s.writer.reportGivenUp()
		s.writer.reportGivenUp()
		if want := fmt.Sprintf("messages=%d", 1000-linesAMinute); strings.Count(text.String(), want) != 1 || strings.Count(text.String(), "messages=") != 1 {
			t.Errorf("%s", text.String())
		}
		time.Sleep(time.Minute)
		text.Reset()
		many(1)
		if !strings.Contains(text.String(), "lease0") {
			t.Error("a minute later one is not logged")
		}
	})
}
