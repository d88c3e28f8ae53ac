package embeddedtest

import (
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/zkreal"
)

func TestTestsRunOnTheEmbeddedServerUnlessTheRealOneIsAskedFor(t *testing.T) {
	StandIn()
	t.Cleanup(func() { zkreal.UseStandIn(nil) })
	for _, c := range []struct {
		value string
		opts  []zkreal.Option
		real  bool
	}{
		{value: ""},
		{value: "embedded"},
		{value: "real", real: true},
		{value: "embedded", opts: []zkreal.Option{zkreal.Real()}, real: true},
	} {
		t.Setenv(Variable, c.value)
		s := zkreal.StartT(t, append(c.opts, zkreal.WithoutFsync())...)
		answer, err := s.FourLetter("srvr")
		assert.That(t, err == nil && strings.Contains(answer, "embedded") != c.real,
			"%q, %d options: %s, %v", c.value, len(c.opts), answer, err)
	}
	t.Setenv(Variable, "")
	if s, err := zkreal.Start(zkreal.WithConfig("maxClientCnxns", "1")); err == nil || !strings.Contains(err.Error(), "maxClientCnxns") {
		s.Close()
		t.Errorf("a stand-in took a line of zoo.cfg: %v", err)
	}
}

func TestAValueOfTheVariableThatMeansNothingIsNamed(t *testing.T) {
	for _, value := range []string{"Real", "true", "0", " real"} {
		if _, err := wantsReal(value); err == nil || !strings.Contains(err.Error(), Variable) || !strings.Contains(err.Error(), `"`+value+`"`) {
			t.Errorf("%q: %v", value, err)
		}
	}
}
