// Package secretfile reads files that no other user may read: keys and passwords.
//
// A file that others can read is refused: what is in it may be known to them already, and the operator should hear of it
// at the start. The package starts no goroutine and keeps nothing.
package secretfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// OpenError is the error for a file that others can read or write.
type OpenError struct{ Mode fs.FileMode }

func (e *OpenError) Error() string { return fmt.Sprintf("others can read it (mode %04o)", e.Mode) }

// TooLargeError is the error for a file that has more bytes than it may have.
type TooLargeError struct{ Limit int64 }

func (e *TooLargeError) Error() string { return fmt.Sprintf("it must have at most %d bytes", e.Limit) }

// Read reads a file of at most limit bytes, and refuses one that others can read with an *OpenError. Its errors do not have
// the file's path.
func Read(path string, limit int64) ([]byte, error) {
	return read(path, limit, true)
}

// ReadPublic reads a file of at most limit bytes that is no secret. Its errors do not have the file's path.
func ReadPublic(path string, limit int64) ([]byte, error) {
	return read(path, limit, false)
}

func read(path string, limit int64, secret bool) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, cause(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, cause(err)
	}
	if secret && othersRead(info) {
		return nil, &OpenError{info.Mode().Perm()}
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, cause(err)
	}
	if int64(len(data)) > limit {
		return nil, &TooLargeError{limit}
	}
	return data, nil
}

// cause is an error without the operation and the path.
func cause(err error) error {
	if of, ok := errors.AsType[*fs.PathError](err); ok {
		return of.Err
	}
	return err
}

// othersRead reports whether other users than this process's can read or write the file. For another user's file the group's
// right to read does not count: so Kubernetes mounts a Secret for a process that does not run as root.
func othersRead(info fs.FileInfo) bool {
	mode := info.Mode().Perm()
	if at, ok := info.Sys().(*syscall.Stat_t); ok && int(at.Uid) != os.Geteuid() {
		mode &^= 0o040
	}
	return mode&0o077 != 0
}
