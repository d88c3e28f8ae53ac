package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The kinds of work.
const (
	plain      = "plain"      // stops on SIGTERM
	stubborn   = "stubborn"   // ignores it
	forks      = "forks"      // a child in a session of its own does the work, ignores SIGTERM, and is waited for
	daemonizes = "daemonizes" // the same, and is not waited for
)

// work writes lines until its time is over: KIND LOG ID STEP FOR.
func work(args []string) {
	if kind := args[0]; kind == forks || kind == daemonizes {
		// The work of a work is the stubborn one.
		child := exec.Command("/proc/self/exe", append([]string{"work", stubborn}, args[1:]...)...)
		child.Stdout, child.Stderr = os.Stdout, os.Stderr
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		must(child.Start())
		if kind == forks {
			signal.Ignore(syscall.SIGTERM, os.Interrupt)
			must(child.Wait())
		}
		return
	}
	stop := make(chan os.Signal, 1)
	if args[0] == stubborn {
		signal.Ignore(syscall.SIGTERM, os.Interrupt)
	} else {
		signal.Notify(stop, syscall.SIGTERM, os.Interrupt)
	}
	number := func(i int) time.Duration {
		n, err := strconv.ParseInt(args[i], 10, 64)
		must(err)
		return time.Duration(n)
	}
	file, err := os.OpenFile(args[1], os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	must(err)
	write := func(what string) {
		var t unix.Timespec
		must(unix.ClockGettime(unix.CLOCK_MONOTONIC, &t))
		_, err := fmt.Fprintf(file, "%d %d %d %s %s\n", t.Nano(), os.Getpid(), number(2), os.Getenv("LOCKKEEPER_FENCING_TOKEN"), what)
		must(err)
	}
	write("start")
	fmt.Println("started", os.Getenv("LOCKKEEPER_FENCING_TOKEN"), os.Getenv("LOCKKEEPER_LEASE_ID"))
	step, over := time.NewTicker(number(3)*time.Millisecond), time.After(number(4)*time.Millisecond)
	for {
		select {
		case <-stop:
			write("end")
			fmt.Println("stopped")
			os.Exit(143)
		case <-over:
			write("end")
			fmt.Println("stopped")
			return
		case <-step.C:
			write("step")
		}
	}
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
