// Package static holds the files that the dashboard's pages and the documentation load: stylesheets,
// scripts, the mark, and htmx as its authors published it (README.md has
// versions, checksums and how htmx is used).
//
// They are minified, joined and compressed once, when the process starts.
//
// All of them live under one path that has a hash of their contents in it. So
// a browser may keep them for ever, and never mixes those of two versions. A
// path with another hash is 404: during an upgrade a page of the old gateway
// must not get files of the new one under a name that it will keep.
package static

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tdewolff/minify/v2"
	"github.com/tdewolff/minify/v2/css"
	"github.com/tdewolff/minify/v2/js"

	"lockkeeper/internal/gzipped"
)

// Prefix is where Handler must be mounted.
const Prefix = "/static/"

//go:embed activity.css app.css docs.css more.css actions.js app.js copy.js curl.js docs.js follow.js glide.js hooks.js login.js order.js overview.css owner.js queue.js reservation.js rest.js search.js tell.js theme.js zone.js favicon.svg favicon-open.svg vendor/*.js
var files embed.FS

// contentTypes are those of all files that are embedded. The system's table is
// not asked: it differs between machines, and some call JavaScript text/plain.
var contentTypes = map[string]string{
	".css": "text/css; charset=utf-8",
	".js":  "text/javascript; charset=utf-8",
	".svg": "image/svg+xml",
}

type asset struct {
	contentType string
	content     []byte
	packed      []byte // in gzip; nil where that is not smaller
}

// together are the scripts of the live pages behind htmx, which browsers load as one file, pagesScript: that is smaller than they are alone. Each is
// a function of its own; but for zone, which zone.js has for those behind it, only the order counts.
var together = []string{"vendor/hx-ws.min.js", copyScript, "zone.js", "app.js", "rest.js", "glide.js", "curl.js", "order.js", "reservation.js", "actions.js", "tell.js"}

const pagesScript = "pages.js"

// copyScript is also loaded by the pages that load none of the others.
const copyScript = "copy.js"

// join makes one file of them.
func join(contents map[string][]byte) map[string][]byte {
	var all []byte
	for _, name := range together {
		all = append(append(all, contents[name]...), '\n')
		if name != copyScript {
			delete(contents, name)
		}
	}
	contents[pagesScript] = all
	return contents
}

var (
	assets  = pack(join(load(files)))
	version = hash(assets)
)

// URLs returns the path of every file by its name, "vendor/htmx.min.js".
func URLs() map[string]string {
	urls := make(map[string]string, len(assets))
	for name := range assets {
		urls[name] = Prefix + version + "/" + name
	}
	return urls
}

// Version differs when any file does.
func Version() string { return version }

// Handler serves the files. It answers paths from Prefix on.
func Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
			return
		}
		name, ok := strings.CutPrefix(r.URL.Path, Prefix+version+"/")
		a, known := assets[name]
		if !ok || !known {
			http.NotFound(w, r)
			return
		}
		h := w.Header()
		h.Set("Content-Type", a.contentType)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
		if a.packed != nil {
			gzipped.Varies(h)
			if gzipped.Accepts(r.Header) {
				a.servePacked(w, r)
				return
			}
		}
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(a.content))
	})
}

// servePacked answers with the whole file, compressed: a range of it is of no use to a browser.
func (a asset) servePacked(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Encoding", "gzip")
	w.Header().Set("Content-Length", strconv.Itoa(len(a.packed)))
	if r.Method != http.MethodHead {
		_, _ = w.Write(a.packed) // an error: the client is gone
	}
}

// load reads and minifies all files. It panics when one has no content type or cannot be parsed: a bug that the first test finds.
func load(fsys fs.FS) map[string][]byte {
	found := make(map[string][]byte)
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if contentTypes[path.Ext(name)] == "" {
			return fmt.Errorf("%s: no content type for its extension", name)
		}
		content, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		if !strings.HasPrefix(name, "vendor/") { // those are served as published
			if content, err = minified(path.Ext(name), content); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		found[name] = content
		return nil
	})
	if err != nil {
		panic(fmt.Sprintf("static: %v", err))
	}
	return found
}

// minifiers are those of the extensions that have one. Names at the top of a script stay: other scripts use them. The marks (SVG) have
// nothing to leave out.
var minifiers = func() *minify.M {
	m := minify.New()
	m.Add(".css", &css.Minifier{})
	m.Add(".js", &js.Minifier{})
	return m
}()

// minified is a file without comments, spaces and long names of variables, where its extension has a minifier.
func minified(extension string, content []byte) ([]byte, error) {
	out, err := minifiers.Bytes(extension, content)
	if errors.Is(err, minify.ErrNotExist) {
		return content, nil
	}
	return out, err
}

// pack compresses all files.
func pack(contents map[string][]byte) map[string]asset {
	packed := make(map[string]asset, len(contents))
	for name, content := range contents {
		a := asset{contentType: contentTypes[path.Ext(name)], content: content}
		if small := gzipped.Best(content); len(small) < len(content) {
			a.packed = small
		}
		packed[name] = a
	}
	return packed
}

func hash(assets map[string]asset) string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(assets)) {
		fmt.Fprintf(h, "%s %d\n", name, len(assets[name].content))
		h.Write(assets[name].content)
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}
