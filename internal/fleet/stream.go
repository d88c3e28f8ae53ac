package fleet

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// A stream is the endless answer to a sealed request: a gateway follows the reports of
// another one (internal/locks/reports). The seal of each line names the request and
// the line's number, so no line can be changed, left out, repeated or inserted.

// StreamPath is where gateways follow each other.
const StreamPath = "/internal/v1/ends"

// Bounds.
const (
	// StreamKeepalive is how often something is written at least.
	StreamKeepalive = 5 * time.Second
	// streamSilence is how long nothing may come before the stream is opened again.
	streamSilence = 12 * time.Second
	// maxLine bounds a line of a stream, in bytes.
	maxLine = 4 << 20
)

// Lines seals the lines of one stream, or opens them. It belongs to one goroutine.
type Lines struct {
	seal   *Seal
	secret []byte
	n      uint64
	mac    hash.Hash // of the line at hand
	room   []byte    // for its sum
}

// Lines are the lines of the answer to a request that Open has accepted, or that Close has sealed.
func (k *Keys) Lines(s *Seal) *Lines {
	l := &Lines{seal: s}
	for _, key := range k.keys {
		if key.id == s.key {
			l.secret = key.secret
		}
	}
	return l
}

// lineText is how the parts of a line are written: no part has a space or the end of a line in it.
var lineText = base64.RawURLEncoding.Strict()

// Close makes the next line: its seal, the place behind the reports, and the reports. The place is at least one printable
// character, and none of them a space.
func (l *Lines) Close(at string, news [][]byte) []byte {
	size := len(at)
	for _, one := range news {
		size += 1 + lineText.EncodedLen(len(one))
	}
	sealed := lineText.EncodedLen(sha256.Size) + 1
	line := make([]byte, sealed, sealed+size+1)
	line = append(line, at...)
	for _, one := range news {
		line = lineText.AppendEncode(append(line, ' '), one)
	}
	lineText.Encode(line, l.sum(line[sealed:]))
	line[sealed-1] = ' '
	l.n++
	return append(line, '\n')
}

// Open checks the next line, which is without its end.
func (l *Lines) Open(line []byte) (at string, news [][]byte, err error) {
	sum, doc, ok := bytes.Cut(line, []byte(" "))
	mac, err := lineText.AppendDecode(nil, sum)
	if !ok || err != nil || !hmac.Equal(mac, l.sum(doc)) {
		return "", nil, fmt.Errorf("%w: that of a stream's line must be of this line", ErrSeal)
	}
	l.n++
	place, rest, more := bytes.Cut(doc, []byte(" "))
	if !more {
		return string(place), nil, nil
	}
	room := make([]byte, 0, lineText.DecodedLen(len(rest))) // of all reports
	news = make([][]byte, 0, 1+bytes.Count(rest, []byte(" ")))
	for more {
		var one []byte
		one, rest, more = bytes.Cut(rest, []byte(" "))
		from := len(room)
		if room, err = lineText.AppendDecode(room, one); err != nil {
			return "", nil, fmt.Errorf("a stream's line: %w", err)
		}
		news = append(news, room[from:len(room):len(room)])
	}
	return string(place), news, nil
}

// sum is the MAC of the next line. It is valid until the next call.
func (l *Lines) sum(doc []byte) []byte {
	if l.mac == nil {
		l.mac = hmac.New(sha256.New, l.secret)
	}
	l.mac.Reset()
	l.room = strconv.AppendUint(l.room[:0], l.n, 10)
	writePart(l.mac, "line")
	writePart(l.mac, l.seal.mac)
	writePart(l.mac, l.room)
	writePart(l.mac, doc)
	l.room = l.mac.Sum(l.room[:0])
	return l.room
}

// Follow asks a gateway for its reports behind a place, "" for all of them, and calls receive for each line until the stream
// breaks or ctx ends; its error says why. The first line comes at once.
func (f *Fleet) Follow(ctx context.Context, p Peer, since string, receive func(at string, news [][]byte)) error {
	keys, err := f.Keys()
	if err != nil {
		return err
	}
	base, err := f.baseURL(p.Address)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(streamSilence, func() { cancel(errSilent) })
	defer silence.Stop()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, base+StreamPath+"?since="+url.QueryEscape(since), nil)
	if err != nil {
		return err
	}
	r.Header["User-Agent"] = nil
	response, seal, err := f.sendSealed(f.transport, keys, Seal{To: p.Gateway}, r, nil)
	if err != nil {
		return because(ctx, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(response.Body, 1024)) // as far as it came
		return fmt.Errorf("status %d: %s", response.StatusCode, body)
	}
	if err := keys.OpenAnswer(seal, response.StatusCode, response.Header, nil); err != nil {
		return err
	}
	lines := keys.Lines(seal)
	scanner := bufio.NewScanner(response.Body)
	scanner.Buffer(nil, maxLine)
	for scanner.Scan() {
		silence.Reset(streamSilence)
		at, news, err := lines.Open(scanner.Bytes())
		if err != nil {
			return err
		}
		receive(at, news)
	}
	if err := scanner.Err(); err != nil {
		return because(ctx, err)
	}
	return io.EOF
}

var errSilent = errors.New("no line came within " + streamSilence.String())

func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}
