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
			if p.Node, err = Open(Config{Dir: dir, Listen: "127.0.0.1:0", Hold: true}); err != nil {
				t.Fatal(err)
			}
			p.end = p.run()
			early, err := net.Dial("tcp", p.Addr().String())
			assert.NoError(t, err)
			defer early.Close()
			if _, err := early.Write([]byte("ruok")); err != nil {
				t.Fatal(err)
			}
			ours := p.client(t)
			create(t, ours, "/"+name, 0) // the process itself is served
			assert.NoError(t, early.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
			if n, err := early.Read(make([]byte, 4)); !os.IsTimeout(err) {
				t.Errorf("answered %d bytes, %v", n, err)
			}
			if admit {
				p.Admit()
				p.Admit()
				assert.NoError(t, early.SetReadDeadline(time.Now().Add(patience)))
				if said, err := io.ReadAll(early); string(said) != "imok" {
					t.Errorf("answered %q, %v", said, err)
				}
			}
			ours.Close()
			p.stop(t)
		})
	}
}
