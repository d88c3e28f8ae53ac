package main

import (
	"bytes"
	"cmp"
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	"github.com/goreleaser/nfpm/v2/rpm"
)

// What packages have besides the tree: the user, settings, what is done when they are installed and removed.
//
//go:embed files
var packaged embed.FS

// packages makes a Debian and an RPM package.
func (d *distribution) packages(prod product, p platform, t tree, work string) error {
	for _, kind := range []struct {
		name     string
		packager nfpm.Packager
	}{{"deb", deb.Default}, {"rpm", rpm.DefaultRPM}} {
		s := &stage{dir: filepath.Join(work, kind.name)}
		if err := d.install(s, kind.name, prod, t); err != nil {
			return err
		}
		info := nfpm.WithDefaults(&nfpm.Info{
			Name: prod.name, Arch: p.arch, Platform: "linux", Version: d.version, VersionSchema: "semver", Release: revision,
			Section: "admin", Priority: "optional", License: "Apache-2.0", MTime: d.time, DisableGlobbing: true,
			Maintainer:  maintainer(),
			Description: prod.summary + "\n" + descriptions[prod.name],
			Overridables: nfpm.Overridables{
				Contents: s.contents,
				RPM:      nfpm.RPM{BuildHost: "localhost", Summary: prod.summary},
			},
		})
		if prod.service {
			// lockctl is a package of its own: most machines need it alone.
			info.Recommends = []string{"lockctl"}
			if kind.name == "deb" {
				info.Depends = []string{"systemd | systemd-sysusers"}
			}
			info.Scripts = nfpm.Scripts{PostInstall: s.script("postinst"), PreRemove: s.script("prerm"), PostRemove: s.script("postrm")}
			if s.err != nil {
				return s.err
			}
		}
		var out bytes.Buffer
		if err := kind.packager.Package(info, &out); err != nil {
			return fmt.Errorf("the %s: %w", kind.name, err)
		}
		// After Package, which completes the version and the name of the processor.
		name := kind.packager.ConventionalFileName(info)
		if err := os.WriteFile(filepath.Join(d.dir, name), out.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// revision is the package's own, of a version of the source.
const revision = "1"

// maintainer is who publishes the packages.
func maintainer() string { return cmp.Or(os.Getenv("MAINTAINER"), "Lockkeeper <lockkeeper@localhost>") }

var descriptions = map[string]string{
	"lockkeeper": "Leases with tokens, time limits and fencing tokens, and one fair\nqueue for each lock. The gateway keeps everything itself, or in your\nZooKeeper.",
	"lockctl":    "It stops a command before its lease can pass to another holder, and\nshows queues, holders and hazards.",
}

// install puts a product's files where the distribution has them.
func (d *distribution) install(s *stage, kind string, prod product, t tree) error {
	doc := "/usr/share/doc/" + prod.name + "/"
	for _, f := range t.programs {
		// The product lockkeeper is the gateway here; lockctl is in the package of that name.
		if !prod.service || f.path == "bin/"+gateway.name {
			s.add("/usr/"+f.path, f, "")
		}
	}
	for _, f := range t.manual {
		if prod.service && !strings.Contains(f.path, gateway.name) {
			continue
		}
		switch {
		case strings.HasPrefix(f.path, "share/man/"):
			s.zipped("/usr/"+f.path+".gz", f.data)
		case kind == "deb" && strings.HasPrefix(f.path, "share/zsh/"):
			s.add("/usr/share/zsh/vendor-completions/"+filepath.Base(f.path), f, "")
		default:
			s.add("/usr/"+f.path, f, "")
		}
	}
	if kind == "deb" {
		s.own(doc+"copyright", "copyright", "")
		s.add(doc+"THIRD-PARTY-LICENSES", file{mode: 0o644, data: t.notices}, "")
		s.zipped(doc+"changelog.Debian.gz", fmt.Appendf(nil, "%s (%s-%s) stable; urgency=medium\n\n  * CHANGELOG.md of the source says what this release changes.\n\n -- %s  %s\n",
			prod.name, strings.Replace(d.version, "-", "~", 1), revision, maintainer(), d.time.Format(time.RFC1123Z)))
	} else {
		licences := "/usr/share/licenses/" + prod.name + "/"
		s.add(licences+"LICENSE", file{mode: 0o644, data: t.licence}, files.TypeRPMLicense)
		s.add(licences+"THIRD-PARTY-LICENSES", file{mode: 0o644, data: t.notices}, files.TypeRPMLicense)
	}
	if prod.service {
		unit, err := t.packaged()
		if err != nil {
			return err
		}
		s.add("/usr/lib/systemd/system/lockkeeper.service", file{mode: 0o644, data: unit}, "")
		s.own("/usr/lib/sysusers.d/lockkeeper.conf", "sysusers.conf", "")
		s.own("/usr/lib/tmpfiles.d/lockkeeper.conf", "tmpfiles.conf", "")
		s.own("/etc/lockkeeper/gateway.env", "gateway.env", files.TypeConfigNoReplace)
	}
	return s.err
}

// stage collects the contents of one package in a directory, because nfpm reads files.
type stage struct {
	dir      string
	contents files.Contents
	err      error // the first
}

// add stages one file. kind is nfpm's, "" for a file that is a file.
func (s *stage) add(to string, f file, kind string) {
	data, err := f.content()
	from := filepath.Join(s.dir, to)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(from), 0o700)
	}
	if err == nil {
		err = os.WriteFile(from, data, 0o600)
	}
	s.err = cmp.Or(s.err, err)
	s.contents = append(s.contents, &files.Content{Source: from, Destination: to, Type: kind, FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: f.mode}})
}

func (s *stage) zipped(to string, data []byte) {
	var b bytes.Buffer
	s.err = cmp.Or(s.err, compressed(&b, data))
	s.add(to, file{mode: 0o644, data: b.Bytes()}, "")
}

// own stages a file of files/. Settings are root's alone: systemd reads them before it becomes the service's user.
func (s *stage) own(to, name, kind string) {
	data, err := packaged.ReadFile("files/" + name)
	s.err = cmp.Or(s.err, err)
	f := file{mode: 0o644, data: data}
	if kind != "" {
		f.mode = 0o640
	}
	s.add(to, f, kind)
}

// script stages one of files/ that dpkg or rpm runs, and returns its path.
func (s *stage) script(name string) string {
	data, err := packaged.ReadFile("files/" + name)
	s.err = cmp.Or(s.err, err)
	path := filepath.Join(s.dir, name)
	s.err = cmp.Or(s.err, os.WriteFile(path, data, 0o700))
	return path
}
