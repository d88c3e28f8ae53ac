// Package paging bounds answers and goes on with them: how much text of clients and other programs an answer shows, and the
// cursors of its lists. It is pure.
//
// An answer is bounded by its text, not only by its entries: an entry has up to 4 KiB of metadata and the names of 63 other
// locks, and JSON writes one byte of text in up to six.
package paging
