package main

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"lockkeeper/internal/test/childproc"
)

const (
	readyWithin = 2 * time.Minute
	stopWithin  = 30 * time.Second
)

// program is a child process. Its log goes to memory: on a disk it would be in the way of a server's fsync, and thrown away it
// could not say why a run failed.
type program struct {
	*childproc.Process
	log *os.File
}

// startProgram starts cmd with both outputs in the log, unless cmd has a standard output already.
func startProgram(name string, cmd *exec.Cmd) (*program, error) {
	fd, err := unix.MemfdCreate(name+".log", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memory for the log of %s: %w", name, err)
	}
	p := &program{log: os.NewFile(uintptr(fd), name+".log")}
	appended, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", fd), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return nil, fmt.Errorf("log of %s: %w", name, err)
	}
	defer appended.Close() // the child has its own descriptor
	if cmd.Stdout == nil {
		cmd.Stdout = appended
	}
	cmd.Stderr = appended
	if p.Process, err = childproc.Start(cmd); err != nil {
		_ = p.log.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return p, nil
}

// forgetLog keeps the log from growing with the run.
func (p *program) forgetLog() error {
	if err := p.log.Truncate(0); err != nil {
		return fmt.Errorf("log of a program: %w", err)
	}
	return nil
}

// logTail is the last of what the program has logged, after the last of its warnings and errors.
func (p *program) logTail() string {
	const lines, warnings = 10, 10
	if _, err := p.log.Seek(0, io.SeekStart); err != nil {
		return "no log: " + err.Error()
	}
	var tail, worst []string
	scanner := bufio.NewScanner(p.log)
	for scanner.Scan() {
		tail = append(tail[max(0, len(tail)-lines+1):], scanner.Text())
		if strings.Contains(scanner.Text(), "level=WARN") || strings.Contains(scanner.Text(), "level=ERROR") {
			worst = append(worst[max(0, len(worst)-warnings+1):], scanner.Text())
		}
	}
	return strings.Join(append(worst, tail...), "\n")
}

func (p *program) stop() {
	p.Stop(stopWithin)
	_ = p.log.Close()
}

// freeAddr is an address on which no process listens, below the range from which outgoing connections get their ports.
func freeAddr() (string, error) {
	var err error
	for range 100 {
		var l net.Listener
		if l, err = net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", 10000+rand.IntN(9000))); err == nil {
			defer l.Close()
			return l.Addr().String(), nil
		}
	}
	return "", fmt.Errorf("no free port: %w", err)
}
