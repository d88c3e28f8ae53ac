package accesslog

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Which are the requests that get a line.
type Which string

// What --access-log may say. Defects of the gateway itself, which are logged at level error, get their line in any case.
const (
	All    Which = "all"
	Errors Which = "errors" // those that were answered with a problem
	Off    Which = "off"
)

// Log says how the lines of one server look and which there are.
type Log struct {
	To    *Writer
	JSON  bool       // else text
	Level slog.Level // the least of a line
	Which Which
	Part  string // of the gateway; it stands in each line
}

// Wants reports whether a request gets a line.
func (l *Log) Wants(level slog.Level, failed bool) bool {
	switch {
	case level >= slog.LevelError:
		return true
	case level < l.Level:
		return false
	}
	return l.Which == All || l.Which == Errors && failed
}

// Line is a line as it is put together. It can be used for one line after the other.
type Line struct {
	text []byte
	time int // where it goes
	json bool
}

// Begin begins a line.
func (l *Log) Begin(line *Line, level slog.Level, message string) {
	b := line.text[:0]
	if line.json = l.JSON; l.JSON {
		b = append(b, `{"time":"`...)
		line.time = len(b)
		line.text = append(b, '"')
	} else {
		b = append(b, "time="...)
		line.time = len(b)
		line.text = b
	}
	line.String("level", level.String())
	line.String("msg", message)
	line.String("part", l.Part)
}

// End hands the line over to be written, with the time at which it ended.
func (l *Log) End(line *Line, at time.Time) {
	if l.JSON {
		line.text = append(line.text, '}')
	}
	line.text = append(line.text, '\n')
	l.To.add(line.text, line.time, at)
	if cap(line.text) > 4<<10 {
		line.text = nil // it had an error with a stack, or the like
	}
}

// key begins an attribute. Keys are plain words.
func (line *Line) key(key string) {
	if line.json {
		line.text = append(line.text, `,"`...)
		line.text = append(line.text, key...)
		line.text = append(line.text, `":`...)
		return
	}
	line.text = append(line.text, ' ')
	line.text = append(line.text, key...)
	line.text = append(line.text, '=')
}

// String adds an attribute.
func (line *Line) String(key, value string) {
	line.key(key)
	switch {
	case line.json && plain(value):
		line.text = append(line.text, '"')
		line.text = append(line.text, value...)
		line.text = append(line.text, '"')
	case line.json:
		line.text = appendJSON(line.text, value)
	case plain(value) || unquoted(value):
		line.text = append(line.text, value...)
	default:
		line.text = strconv.AppendQuote(line.text, value)
	}
}

// Given adds an attribute unless its value is empty.
func (line *Line) Given(key, value string) {
	if value != "" {
		line.String(key, value)
	}
}

// Int adds an attribute.
func (line *Line) Int(key string, value int) {
	line.key(key)
	line.text = strconv.AppendInt(line.text, int64(value), 10)
}

// Millis adds a span in milliseconds, rounded down to microseconds.
func (line *Line) Millis(key string, value time.Duration) {
	line.key(key)
	format := byte('g')
	if line.json {
		format = 'f'
	}
	line.text = strconv.AppendFloat(line.text, float64(value.Microseconds())/1000, format, -1, 64)
}

// plain reports whether a value stands in either format as it is: most do.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c > '~' || c == '"' || c == '=' || c == '\\' {
			return false
		}
	}
	return s != ""
}

// unquoted reports whether a value stands in text as it is.
func unquoted(s string) bool {
	for _, r := range s {
		if r <= ' ' || r == '"' || r == '=' || r == utf8.RuneError || r > 0x7f && (unicode.IsSpace(r) || !unicode.IsPrint(r)) {
			return false
		}
	}
	return s != ""
}

// appendJSON appends a string of JSON.
func appendJSON(b []byte, s string) []byte {
	b = append(b, '"')
	for i, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r == '\n':
			b = append(b, `\n`...)
		case r == '\r':
			b = append(b, `\r`...)
		case r == '\t':
			b = append(b, `\t`...)
		case r < ' ' || r == '\u2028' || r == '\u2029' || r == utf8.RuneError && !strings.HasPrefix(s[i:], string(utf8.RuneError)):
			b = fmt.Appendf(b, `\u%04x`, r)
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}
