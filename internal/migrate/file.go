package migrate

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"lockkeeper/internal/offline"
)

// A file is JSON lines: the header, the nodes, the contenders, and a trailer with
// the number of records before it and the SHA-256 of their lines. Data that is
// UTF-8, as all of ours is, stands there as text.

// format is the version of the format.
const format = 1

// maxLine bounds a line: a node of a megabyte, all of it escaped.
const maxLine = 8 << 20

// record is a line between header and trailer.
type record struct {
	Node      string  `json:"node,omitempty"`
	Contender string  `json:"contender,omitempty"`
	NS        string  `json:"ns,omitempty"`
	Lock      string  `json:"lock,omitempty"`
	Czxid     int64   `json:"czxid,omitempty"`
	Ctime     int64   `json:"ctime_ms,omitempty"`
	Text      *string `json:"data,omitempty"`
	Bytes     []byte  `json:"data_base64,omitempty"`
}

func (r *record) setData(data []byte) {
	if utf8.Valid(data) {
		text := string(data)
		r.Text = &text
	} else {
		r.Bytes = data
	}
}

func (r *record) data() []byte {
	if r.Text != nil {
		return []byte(*r.Text)
	}
	return r.Bytes
}

type trailer struct {
	End     bool   `json:"end"`
	Records int    `json:"records"`
	SHA256  string `json:"sha256"`
}

// Write writes the archive in the present format.
func Write(w io.Writer, a *Archive) error {
	sum := sha256.New()
	buffered := bufio.NewWriter(w)
	lines := json.NewEncoder(io.MultiWriter(buffered, sum))
	lines.SetEscapeHTML(false)
	header := a.Header
	header.Format = format
	err := lines.Encode(header)
	for i := 0; err == nil && i < len(a.Nodes); i++ {
		r := record{Node: a.Nodes[i].Path}
		r.setData(a.Nodes[i].Data)
		err = lines.Encode(&r)
	}
	for i := 0; err == nil && i < len(a.Contenders); i++ {
		c := &a.Contenders[i]
		r := record{Contender: c.Name, NS: c.NS, Lock: c.Lock, Czxid: c.Czxid, Ctime: c.Ctime}
		r.setData(c.Data)
		err = lines.Encode(&r)
	}
	if err == nil {
		err = json.NewEncoder(buffered).Encode(trailer{End: true, Records: 1 + len(a.Nodes) + len(a.Contenders), SHA256: hex.EncodeToString(sum.Sum(nil))})
	}
	if err == nil {
		err = buffered.Flush()
	}
	if err != nil {
		return fmt.Errorf("writing the export: %w", err)
	}
	return nil
}

// Read reads a file to its end and checks that it is whole, and what is in it.
// What is wrong with the file is an Error of KindDamaged or KindTooNew.
func Read(r io.Reader) (*Archive, error) {
	in := reader{lines: bufio.NewReaderSize(r, 64<<10)}
	sum := sha256.New()
	a := new(Archive)
	for {
		line, err := in.next()
		switch {
		case errors.Is(err, io.EOF) && in.line == 0:
			return nil, damaged("nothing in it")
		case errors.Is(err, io.EOF):
			return nil, damaged("no end: it was cut off after line %d", in.line)
		case err != nil:
			return nil, err
		}
		if in.line == 1 {
			if err := readHeader(line, &a.Header); err != nil {
				return nil, err
			}
		} else if end := new(trailer); bytes.HasPrefix(line, []byte(`{"end":`)) && strict(line, end) == nil {
			if err := in.end(end, hex.EncodeToString(sum.Sum(nil))); err != nil {
				return nil, err
			}
			_, err := a.understand(a.Root)
			return a, err
		} else if err := a.readRecord(line); err != nil {
			return nil, damaged("line %d, which is not understood: %w", in.line, err)
		}
		sum.Write(line)
	}
}

func readHeader(line []byte, h *Header) error {
	var version struct {
		Format int `json:"lockkeeper_export"`
	}
	if err := json.Unmarshal(line, &version); err != nil || version.Format < 1 {
		return offline.Refuse(KindDamaged, "give the file that gateway export has written", "this is no export of Lockkeeper")
	}
	if version.Format > format {
		return offline.Refuse(KindTooNew, "import it with the release that exported it, or a later one",
			"the export has format %d; this release reads %d", version.Format, format)
	}
	if err := strict(line, h); err != nil {
		return damaged("a header that is not understood: %w", err)
	}
	return nil
}

func (a *Archive) readRecord(line []byte) error {
	var r record
	if err := strict(line, &r); err != nil {
		return err
	}
	switch {
	case (r.Node == "") == (r.Contender == ""):
		return errors.New("neither a node nor a contender")
	case r.Node != "" && len(a.Contenders) > 0:
		return errors.New("a node behind the contenders")
	case r.Node != "":
		a.Nodes = append(a.Nodes, Node{Path: r.Node, Data: r.data()})
	default:
		a.Contenders = append(a.Contenders, Contender{NS: r.NS, Lock: r.Lock, Name: r.Contender, Data: r.data(), Czxid: r.Czxid, Ctime: r.Ctime})
	}
	return nil
}

func strict(line []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	return d.Decode(v)
}

// reader reads lines.
type reader struct {
	lines *bufio.Reader
	line  int // how many were read
}

// next is the next line with its end; io.EOF when there is none, or not all of it.
func (r *reader) next() ([]byte, error) {
	var line []byte
	for {
		part, err := r.lines.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			r.line++
			return line, nil
		case len(line) > maxLine:
			return nil, damaged("line %d, which is longer than any that an export writes", r.line+1)
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			return nil, io.EOF
		default:
			return nil, fmt.Errorf("reading the export: %w", err)
		}
	}
}

// end checks what the trailer says about the lines before it.
func (r *reader) end(t *trailer, sum string) error {
	switch {
	case t.Records != r.line-1:
		return damaged("%d records and not %d, as it says: lines are missing or were added", r.line-1, t.Records)
	case t.SHA256 != sum:
		return damaged("been changed: its checksum is %.12s… and not %.12s…", sum, t.SHA256)
	}
	if _, err := r.lines.ReadByte(); !errors.Is(err, io.EOF) {
		return damaged("something behind its end")
	}
	return nil
}
