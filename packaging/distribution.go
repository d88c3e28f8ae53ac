package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// product is one thing that is installed as a whole: an archive, and a package of each kind.
type product struct {
	name     string
	summary  string
	programs []program
	service  bool // it runs as a service
}

var products = []product{
	{"lockkeeper", "gateway that serves locks over HTTP, held on ZooKeeper", []program{gateway, lockctl}, true},
	{"lockctl", "command line of Lockkeeper: runs commands under locks", []program{lockctl}, false},
}

// distribution is the making of one release.
type distribution struct {
	release
	top      string // the checkout
	dir      string // what is made
	products []product
}

// programs are those of the products, each once.
func (d *distribution) programs() (list []program) {
	for _, prod := range d.products {
		for _, prog := range prod.programs {
			if !slices.Contains(list, prog) {
				list = append(list, prog)
			}
		}
	}
	return list
}

// stem is what the names of an archive and what belongs to it begin with.
func (d *distribution) stem(prod product, p platform) string {
	return prod.name + "-" + d.version + "-" + p.String()
}

func (d *distribution) make(ctx context.Context, chosen []platform) error {
	work, err := os.MkdirTemp("", "lockkeeper-dist-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	manual := map[string][]file{}
	for _, prog := range d.programs() {
		if manual[prog.name], err = d.manual(ctx, prog, work); err != nil {
			return err
		}
	}
	for _, p := range chosen {
		made := map[string]*built{}
		for _, prog := range d.programs() {
			if made[prog.name], err = d.build(ctx, p, prog, work); err != nil {
				return err
			}
		}
		for _, prod := range d.products {
			if err := d.product(ctx, prod, p, made, manual, work); err != nil {
				return fmt.Errorf("%s for %s: %w", prod.name, p, err)
			}
		}
	}
	script, err := os.ReadFile(filepath.Join(d.top, "install.sh"))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(d.dir, "install.sh"), script, 0o755); err != nil {
		return err
	}
	if err := d.chart(); err != nil {
		return err
	}
	return errors.Join(sums(d.dir), readable(d.dir))
}

// product makes everything of one product for one platform.
func (d *distribution) product(ctx context.Context, prod product, p platform, made map[string]*built, manual map[string][]file, work string) error {
	var programs []*built
	for _, prog := range prod.programs {
		programs = append(programs, made[prog.name])
	}
	parts, err := d.parts(ctx, programs)
	if err != nil {
		return err
	}
	licence, err := os.ReadFile(filepath.Join(d.top, "LICENSE"))
	if err != nil {
		return err
	}
	t := tree{licence: licence, notices: notices(parts)}
	for _, b := range programs {
		t.programs = append(t.programs, file{path: "bin/" + b.name, mode: 0o755, from: b.path})
		t.manual = append(t.manual, manual[b.name]...)
	}
	if prod.service && p.os == "linux" {
		if t.unit, err = os.ReadFile(filepath.Join(d.top, "deploy/systemd/lockkeeper.service")); err != nil {
			return err
		}
	}
	files, err := t.prefix(prod)
	if err != nil {
		return err
	}
	stem := d.stem(prod, p)
	if err := archive(filepath.Join(d.dir, stem+".tar.gz"), stem, files, d.time); err != nil {
		return err
	}
	if err := d.bom(filepath.Join(d.dir, stem+".cdx.json"), prod, p, programs, parts); err != nil {
		return err
	}
	if p.os != "linux" {
		return nil
	}
	return d.packages(prod, p, t, filepath.Join(work, stem))
}

// readable gives all files the rights of what is passed on, whatever the umask.
func readable(dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		mode := fs.FileMode(0o644)
		if filepath.Ext(path) == ".sh" {
			mode = 0o755
		}
		return os.Chmod(path, mode)
	})
}
