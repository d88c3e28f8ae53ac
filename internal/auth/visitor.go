package auth

import "context"

// Visitor is who asks for a page. Pages decide by themselves what a visitor that is not let in gets.
type Visitor struct {
	Caller
	Refused *Error // the visitor's session is not accepted, or the login; nil when there is none, or it is
}

type visitorKey struct{}

// WithVisitor gives a page's handler its visitor. A handler that logs a user in or out changes it.
func WithVisitor(ctx context.Context, v *Visitor) context.Context {
	return context.WithValue(ctx, visitorKey{}, v)
}

// VisitorOf is the visitor of a page's request; one that may do nothing when there is none.
func VisitorOf(ctx context.Context) *Visitor {
	if v, ok := ctx.Value(visitorKey{}).(*Visitor); ok {
		return v
	}
	return &Visitor{Caller: Caller{Kind: Anonymous}}
}
