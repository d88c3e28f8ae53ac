package main

import (
	"archive/tar"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// file is a regular file below a prefix. Its content is in memory, or in the file that from names.
type file struct {
	path string
	mode fs.FileMode
	data []byte
	from string
}

func (f file) content() ([]byte, error) {
	if f.from == "" {
		return f.data, nil
	}
	return os.ReadFile(f.from)
}

// archive writes a tar.gz whose bytes follow from its arguments alone: sorted, owned by root, of one date, and with the
// directories that the files are in.
func archive(to, prefix string, files []file, at time.Time) (err error) {
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() {
		if closed := out.Close(); err == nil {
			err = closed
		}
	}()
	// The header of gzip has neither name nor date.
	zip, err := gzip.NewWriterLevel(out, gzip.DefaultCompression)
	if err != nil {
		return err
	}
	writer := tar.NewWriter(zip)
	for _, entry := range entries(prefix, files) {
		if err := add(writer, entry, at); err != nil {
			return fmt.Errorf("%s: %w", entry.path, err)
		}
	}
	if err := writer.Close(); err != nil {
		return err
	}
	return zip.Close()
}

// entries are the files below the prefix with each directory before what is in it. A directory's path ends in a slash.
func entries(prefix string, files []file) []file {
	var all []file
	seen := map[string]bool{}
	for _, f := range files {
		f.path = path.Join(prefix, f.path)
		for dir := path.Dir(f.path); dir != "." && dir != "/" && !seen[dir]; dir = path.Dir(dir) {
			seen[dir] = true
			all = append(all, file{path: dir + "/", mode: fs.ModeDir | 0o755})
		}
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b file) int { return strings.Compare(a.path, b.path) })
	return all
}

func add(writer *tar.Writer, f file, at time.Time) error {
	header := &tar.Header{Name: f.path, Mode: int64(f.mode.Perm()), Typeflag: tar.TypeReg, Uname: "root", Gname: "root", ModTime: at, Format: tar.FormatUSTAR}
	if f.mode.IsDir() {
		header.Typeflag = tar.TypeDir
		return writer.WriteHeader(header)
	}
	data, err := f.content()
	if err != nil {
		return err
	}
	header.Size = int64(len(data))
	if err := writer.WriteHeader(header); err != nil {
		return err
	}
	_, err = writer.Write(data)
	return err
}

// compressed is gzip as archive writes it.
func compressed(to io.Writer, data []byte) error {
	zip, err := gzip.NewWriterLevel(to, gzip.DefaultCompression)
	if err != nil {
		return err
	}
	if _, err := zip.Write(data); err != nil {
		return err
	}
	return zip.Close()
}
