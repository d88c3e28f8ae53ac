package wire

// ClientInfo is one identity of a connection, without its secret.
type ClientInfo struct{ Scheme, User string }

// WhoAmIReply answers OpWhoAmI.
type WhoAmIReply struct{ Clients []ClientInfo }

// AppendTo implements Record.
func (r *WhoAmIReply) AppendTo(b []byte) []byte {
	b = AppendInt(b, int32(len(r.Clients)))
	for _, c := range r.Clients {
		b = AppendString(AppendString(b, c.Scheme), c.User)
	}
	return b
}

// Decode implements Record.
func (r *WhoAmIReply) Decode(d *Decoder) {
	r.Clients = nil
	for range d.Count(8) {
		r.Clients = append(r.Clients, ClientInfo{d.String(), d.String()})
	}
}

// SASLRecord is the body of OpSASL and of its reply: a token, which may be null.
type SASLRecord struct{ Token []byte }

// AppendTo implements Record.
func (r *SASLRecord) AppendTo(b []byte) []byte { return AppendBuffer(b, r.Token) }

// Decode implements Record.
func (r *SASLRecord) Decode(d *Decoder) { r.Token = d.View() }
