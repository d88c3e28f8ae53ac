//go:build !linux

package supervise

import "os"

// self is this program's file.
func self() (string, error) { return os.Executable() }
