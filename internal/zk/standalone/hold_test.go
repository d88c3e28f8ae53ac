package standalone

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
)

func TestNoOutsideClientIsServedBeforeItIsAdmitted(t *testing.T) {
	testkit.NoLeaks(t)
	dir := filepath.Join(t.TempDir(), "data")
	for name, admit := range map[string]bool{"admitted": true, "never admitted": false} {
		t.Run(name, func(t *testing.T) {
			p := &process{log: new(journal), ended: make(chan error, 1)}
			var err error
			p.Node = assert.Value(Open(Config{Dir: dir, Listen: "127.0.0.1:0", Hold: true}))(t)
			p.end = p.run()
			early := assert.Value(net.Dial("tcp", p.Addr().String()))(t)
			defer early.Close()
			assert.Value(early.Write([]byte("ruok")))(t)
			ours := p.client(t)
			create(t, ours, "/"+name, 0) // the process itself is served
			assert.NoError(t, early.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
			n, err := early.Read(make([]byte, 4))
			assert.That(t, os.IsTimeout(err), "answered %d bytes, %v", n, err)
			if admit {
				p.Admit()
				p.Admit()
				assert.NoError(t, early.SetReadDeadline(time.Now().Add(patience)))
				said, err := io.ReadAll(early)
				assert.That(t, string(said) == "imok", "answered %q, %v", said, err)
			}
			ours.Close()
			p.stop(t)
		})
	}
}
