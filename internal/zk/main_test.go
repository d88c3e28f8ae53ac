package zk

import (
	"testing"

	"lockkeeper/internal/zk/zkreal"
)

func TestMain(m *testing.M) { zkreal.Main(m) }
