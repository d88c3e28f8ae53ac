package chaos

import (
	"os"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/test/zkreal"
)

func TestMain(m *testing.M) { os.Exit(testkit.RunPrograms(zkreal.Wrap(m), &binary)) }

// elapse lets real time pass, for what is itself a span of real time.
func elapse(t testing.TB, d time.Duration) {
	t.Helper()
	assert.Must(t, sleep(t.Context(), d), "the test ended meanwhile")
}
