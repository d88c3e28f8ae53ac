package main

import (
	"bytes"
	"fmt"
	"strings"
)

// tree is what a product installs on one platform.
type tree struct {
	programs, manual []file
	licence, notices []byte
	unit             []byte // of systemd, as it is in deploy; nil where there is none
}

// prefix is the tree for a directory such as /usr/local.
func (t tree) prefix(prod product) ([]file, error) {
	files := append(append([]file{}, t.programs...), t.manual...)
	doc := "share/doc/" + prod.name + "/"
	files = append(files, file{path: doc + "LICENSE", mode: 0o644, data: t.licence}, file{path: doc + "THIRD-PARTY-LICENSES", mode: 0o644, data: t.notices})
	if t.unit != nil {
		unit, err := changed(t.unit, map[string]string{
			unitHead:                             "# Lockkeeper as a systemd service, unpacked below /usr/local. It starts when you say so:\n#\n#   systemctl daemon-reload && systemctl enable --now lockkeeper\n",
			"ExecStart=/usr/local/bin/gateway\n": "ExecStart=/usr/local/bin/lockkeeper\n",
		})
		if err != nil {
			return nil, err
		}
		files = append(files, file{path: "lib/systemd/system/lockkeeper.service", mode: 0o644, data: unit})
	}
	return files, nil
}

// packaged is the unit of a package: the program is in /usr/bin, and the user is one that stays, so that files in
// /etc/lockkeeper can be its own. Everything that DynamicUser= implies stands in the unit by itself.
func (t tree) packaged() ([]byte, error) {
	return changed(t.unit, map[string]string{
		unitHead:                             "# Lockkeeper as a systemd service. It starts when you say so:\n#\n#   systemctl enable --now lockkeeper\n",
		"ExecStart=/usr/local/bin/gateway\n": "ExecStart=/usr/bin/lockkeeper\n",
		"# A user that exists while the service runs. What is in the state directory is its own each time.\nDynamicUser=yes\n": "User=lockkeeper\nGroup=lockkeeper\n",
	})
}

// unitHead is how the unit in deploy says to install it.
const unitHead = `# Lockkeeper as a systemd service.
#
#   install -m 0755 gateway /usr/local/bin/gateway
#   install -m 0644 lockkeeper.service /etc/systemd/system/
#   install -d -m 0755 /etc/lockkeeper
#   systemctl daemon-reload && systemctl enable --now lockkeeper
`

// changed replaces each text, which must stand there once.
func changed(in []byte, by map[string]string) ([]byte, error) {
	out := string(in)
	for from, to := range by {
		if n := strings.Count(out, from); n != 1 {
			return nil, fmt.Errorf("the unit has %d times, not once:\n%s", n, from)
		}
		out = strings.Replace(out, from, to, 1)
	}
	return bytes.TrimSpace([]byte(out)), nil
}
