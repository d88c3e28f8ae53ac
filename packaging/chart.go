package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// chart packs deploy/helm/lockkeeper as helm does, with the version of the release.
func (d *distribution) chart() error {
	top := filepath.Join(d.top, "deploy/helm/lockkeeper")
	var files []file
	err := filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(top, path)
		if err != nil {
			return err
		}
		if name == "Chart.yaml" {
			// The chart is of one release of the gateway.
			text := strings.Replace(string(data), "version: 0.0.0\n", "version: "+d.version+"\n", 1)
			data = []byte(strings.Replace(text, "appVersion: v0.0.0\n", "appVersion: v"+d.version+"\n", 1))
		}
		files = append(files, file{path: filepath.ToSlash(name), mode: 0o644, data: data})
		return nil
	})
	if err != nil {
		return err
	}
	return archive(filepath.Join(d.dir, "lockkeeper-"+d.version+".tgz"), "lockkeeper", files, d.time)
}
