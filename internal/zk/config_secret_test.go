package zk

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
)

func TestNoWayOfPrintingACredentialShowsThePassword(t *testing.T) {
	auth := &DigestAuth{User: "fleet", Password: "hush"}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "auth", auth, "value", *auth)
	for _, s := range []string{fmt.Sprint(auth), fmt.Sprintf("%v %+v %s", *auth, *auth, *auth), log.String(), fmt.Sprintf("%+v", Config{Auth: auth})} {
		assert.That(t, !strings.Contains(s, "hush"), "the password shows: %s", s)
	}
}
