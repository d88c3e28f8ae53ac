package unixsock

import "golang.org/x/sys/unix"

// peerUID is the user at the other end of a connection, as it was when that process connected.
func peerUID(fd int) (uint32, error) {
	cred, err := unix.GetsockoptXucred(fd, unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	if err != nil {
		return 0, err
	}
	return cred.Uid, nil
}
