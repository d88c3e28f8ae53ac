package templates

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/a-h/templ"
)

// A fragment may have rows: elements with ids of their own that are pushed alone when nothing else of it has changed. A
// template marks them with asRow. What a row shows must not depend on its place among the others, or all of them change when
// one goes.

// Row is a row as it renders.
type Row struct {
	ID   string
	HTML []byte
}

// Parted is a fragment as it renders, in parts: the bytes around its rows, of which there is one piece more than rows.
type Parted struct {
	Around [][]byte
	Rows   []Row
}

// RenderParted renders a fragment in parts.
func RenderParted(ctx context.Context, c templ.Component) (Parted, error) {
	var found recorder
	var b bytes.Buffer
	if err := c.Render(context.WithValue(ctx, recorderKey{}, &found), &b); err != nil {
		return Parted{}, err
	}
	p := Parted{Around: bytes.Split(b.Bytes(), []byte(rowMark)), Rows: found.rows}
	if len(p.Around) != len(p.Rows)+1 {
		return Parted{}, fmt.Errorf("a fragment with %d rows has %d places for them", len(p.Rows), len(p.Around)-1)
	}
	return p, nil
}

// rowMark stands where a row does. What clients write is shown without NUL.
const rowMark = "\x00row\x00"

type recorderKey struct{}

type recorder struct{ rows []Row }

// asRow marks a component as a row: one element, whose id is given.
func asRow(id string, row templ.Component) templ.Component {
	return templ.ComponentFunc(func(ctx context.Context, w io.Writer) error {
		found, parted := ctx.Value(recorderKey{}).(*recorder)
		if !parted {
			return row.Render(ctx, w)
		}
		var b bytes.Buffer
		if err := row.Render(ctx, &b); err != nil {
			return err
		}
		found.rows = append(found.rows, Row{ID: id, HTML: b.Bytes()})
		_, err := io.WriteString(w, rowMark)
		return err
	})
}

// AppendWhole appends the fragment as one text.
func (p Parted) AppendWhole(b []byte) []byte {
	for i, row := range p.Rows {
		b = append(append(b, p.Around[i]...), row.HTML...)
	}
	return append(b, p.Around[len(p.Rows)]...)
}

// AppendAlone appends the row for a page that has it already: it is replaced where it stands.
func (r Row) AppendAlone(b []byte) []byte {
	b = append(b, `<hx-partial id="`...)
	b = append(b, templ.EscapeString(r.ID)...)
	b = append(b, `" hx-swap="outerMorph">`...)
	b = append(b, r.HTML...)
	return append(b, `</hx-partial>`...)
}

// AppendSame appends what stands for a row that a page has already, as it is.
func (r Row) AppendSame(b []byte) []byte {
	tag := r.tag()
	b = append(append(append(b, '<'), tag...), ` id="`...)
	b = append(b, templ.EscapeString(r.ID)...)
	b = append(b, `" data-same></`...)
	return append(append(b, tag...), '>')
}

// tag is the name of the row's element.
func (r Row) tag() []byte {
	html := bytes.TrimLeft(r.HTML, "< \n\t")
	if end := bytes.IndexAny(html, " >\n\t"); end >= 0 {
		return html[:end]
	}
	return html
}

func (r *GatewayRow) id() string   { return domID("gw", r.ID) }
func (r *ServerRow) id() string    { return domID("zk", r.Address) }
func (r *NamespaceRow) id() string { return domID("ns", r.Name) }
func (r *WebhookRow) id() string   { return domID("wh", r.ID) }

// id differs between the list and the pinned ones: a lock may stand in both.
func (r LockRow) id() string {
	if r.Pinned {
		return domID("pin", r.NS, r.Name)
	}
	return domID("lock", r.NS, r.Name)
}

// id differs between a holder and a waiter: the two look different.
func (c Contender) id() string {
	if c.Position == 0 {
		return domID("holder", c.Znode)
	}
	return domID("waiter", c.Znode)
}

// startAt is where the numbers of the waiters begin, when the page shows a later part of the queue.
func startAt(v Lock) templ.Attributes {
	if len(v.Waiters) == 0 || v.Waiters[0].Position == 1 {
		return nil
	}
	return templ.Attributes{"start": decimal(int64(v.Waiters[0].Position))}
}
