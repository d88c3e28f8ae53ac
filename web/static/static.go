// Package static holds the files that the dashboard's pages and the documentation load: stylesheets,
// scripts, the mark, and htmx as its authors published it (README.md has
// versions, checksums and how htmx is used).
//
// They are made lean, joined and compressed once, when the process starts.
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
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"lockkeeper/internal/gzipped"
)

// Prefix is where Handler must be mounted.
const Prefix = "/static/"

//go:embed activity.css app.css docs.css more.css actions.js app.js copy.js curl.js docs.js follow.js login.js order.js overview.css owner.js queue.js reservation.js rest.js search.js tell.js theme.js favicon.svg favicon-open.svg vendor/*.js
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
// a function of its own, so that only the order counts.
var together = []string{"vendor/hx-ws.min.js", copyScript, "app.js", "rest.js", "curl.js", "order.js", "queue.js", "reservation.js", "actions.js", "tell.js"}

const pagesScript = "pages.js"

// copyScript is also loaded by the pages that load none of the others.
const copyScript = "copy.js"

// join makes one file of them.
func join(assets map[string]asset) map[string]asset {
	var all []byte
	for _, name := range together {
		all = append(append(all, assets[name].content...), '\n')
		if name != copyScript {
			delete(assets, name)
		}
	}
	assets[pagesScript] = assetOf(pagesScript, all)
	return assets
}

var (
	assets  = join(load(files))
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

// load panics when a file is embedded that has no content type: a bug that the
// first test finds.
func load(fsys fs.FS) map[string]asset {
	found := make(map[string]asset)
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		contentType := contentTypes[path.Ext(name)]
		if contentType == "" {
			return fmt.Errorf("%s: no content type for its extension", name)
		}
		content, err := fs.ReadFile(fsys, name)
		if !strings.HasPrefix(name, "vendor/") {
			content = lean(path.Ext(name), content)
		}
		found[name] = assetOf(name, content)
		return err
	})
	if err != nil {
		panic(fmt.Sprintf("static: %v", err))
	}
	return found
}

func assetOf(name string, content []byte) asset {
	a := asset{contentType: contentTypes[path.Ext(name)], content: content}
	if packed := gzipped.Best(content); len(packed) < len(content) {
		a.packed = packed
	}
	return a
}

// Of our own files browsers need neither the comments nor the indentation, nor all ends of lines: a tenth of what they load.
var (
	scriptComments = regexp.MustCompile(`(?m)^[ \t]*//.*\n|^[ \t]+`)
	styleComments  = regexp.MustCompile(`(?ms)/\*.*?\*/|^[ \t]+`)
	scriptEnds     = regexp.MustCompile("(?m)[ \t]+// [^\"'`\n]*$") // behind code; a text would end on its line, with a quote
	styleSpaces    = regexp.MustCompile(`\s*([{};,])\s*`)
	emptyLines     = regexp.MustCompile(`(?m)^\n`)
)

// lean is a file without comments. No text in our scripts and styles has more than one line.
func lean(extension string, content []byte) []byte {
	switch extension {
	case ".js":
		return joined(emptyLines.ReplaceAll(scriptEnds.ReplaceAll(scriptComments.ReplaceAll(content, nil), nil), nil))
	case ".css":
		content = styleSpaces.ReplaceAll(styleComments.ReplaceAll(content, nil), []byte("$1"))
	}
	return emptyLines.ReplaceAll(content, nil)
}

// joined leaves the ends of lines out that a script does not need. A line that may have a comment keeps its own.
func joined(script []byte) []byte {
	var b bytes.Buffer
	for line := range bytes.Lines(script) {
		code := bytes.TrimSuffix(line, []byte("\n"))
		if len(code) > 0 && bytes.IndexByte([]byte(";{,("), code[len(code)-1]) >= 0 && !bytes.Contains(code, []byte("//")) {
			line = code
		}
		b.Write(line)
	}
	return b.Bytes()
}

func hash(assets map[string]asset) string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(assets)) {
		fmt.Fprintf(h, "%s %d\n", name, len(assets[name].content))
		h.Write(assets[name].content)
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}
