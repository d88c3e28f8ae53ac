package state

import (
	"strings"
	"unicode/utf8"
)

// Nodes that ZooKeeper owns.
const (
	procPath   = "/zookeeper"
	quotaPath  = "/zookeeper/quota"
	configPath = "/zookeeper/config"
)

// special reports whether clients may not delete the node at this path.
func special(path string) bool {
	return path == "/" || path == procPath || path == quotaPath || path == configPath
}

// validPath is ZooKeeper's rule for paths that are written to: absolute, no empty name, no "." and "..", and no character
// that Java counts among controls, surrogates, private use and specials. (Characters above U+FFFF are surrogates to it.)
func validPath(path string) bool {
	if path == "/" {
		return true
	}
	if path == "" || path[0] != '/' || path[len(path)-1] == '/' {
		return false
	}
	start := 1
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			if c := path[i]; c < 0x20 || c >= 0x7f {
				if c < utf8.RuneSelf || !validRunes(path[i:]) {
					return false
				}
			}
			continue
		}
		if name := path[start:i]; name == "" || name == "." || name == ".." {
			return false
		}
		start = i + 1
	}
	return true
}

// validRunes checks the first character; the others have their turn.
func validRunes(s string) bool {
	if !utf8.RuneStart(s[0]) {
		return true // inside a character that was checked
	}
	r, size := utf8.DecodeRuneInString(s)
	switch {
	case r == utf8.RuneError && size <= 1, r <= 0x9f, r >= 0xd800 && r <= 0xf8ff, r >= 0xfff0:
		return false
	}
	return true
}

// javaText is a string as Java reads it from the wire: what is not UTF-8 becomes U+FFFD.
func javaText(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	return string([]rune(string(b)))
}

// split cuts a path at its last slash. The parent of "/a" is "".
func split(path string) (parent, name string, ok bool) {
	i := strings.LastIndexByte(path, '/')
	if i < 0 {
		return "", "", false
	}
	return path[:i], path[i+1:], true
}

// watched is a parent's path as watches know it.
func watched(parent string) string {
	if parent == "" {
		return "/"
	}
	return parent
}
