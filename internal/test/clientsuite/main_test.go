package clientsuite

import (
	"flag"
	"os"
	"testing"

	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/test/zkreal"
)

func TestMain(m *testing.M) {
	// Nearly all of them wait nearly all the time, but not when they begin.
	if err := flag.Set("test.parallel", "120"); err != nil {
		panic(err)
	}
	os.Exit(testkit.RunPrograms(zkreal.Wrap(m), &binary))
}
