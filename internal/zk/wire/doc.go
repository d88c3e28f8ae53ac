// Package wire is the ZooKeeper client protocol as bytes: the jute encoding, the frames it travels in, and a record for
// every operation that real clients send, in both directions. A client encodes requests and decodes replies, a server
// does the opposite, and both use the same records.
//
// It promises:
//
//   - Decoding never panics and never allocates more than the input can
//     justify: a length or a count is checked against the bytes that are left
//     before anything is made for it.
//   - Every record round-trips: Decode of AppendTo gives the record back, with
//     two deliberate exceptions. A null string or vector (-1 on the wire) is
//     decoded as an empty one, because that is what every server means by it;
//     and strings and vectors are always encoded as not null, because some
//     clients cannot decode a null one. Buffers keep the difference between
//     null and empty.
//   - Byte slices in decoded records are views into the frame. They are valid
//     as long as the frame is; a caller that keeps one copies it. Strings are copies.
//
// It refuses frames above a limit that its user sets (FrameReader), negative lengths of frames, strings and buffers,
// and bytes after a record's end (Decoder.Finish).
//
// It does no I/O beyond reading frames from an io.Reader, starts no goroutine and keeps no state between records.
//
// Source of the formats: zookeeper.jute and ZooDefs of ZooKeeper 3.8, checked
// against ZooKeeper by internal/test/difftest.
package wire
