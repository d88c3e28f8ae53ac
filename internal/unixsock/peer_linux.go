package unixsock

import "golang.org/x/sys/unix"

// peerUID is the user at the other end of a connection, as it was when that process connected.
func peerUID(fd int) (uint32, error) {
	ucred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0, err
	}
	return ucred.Uid, nil
}
