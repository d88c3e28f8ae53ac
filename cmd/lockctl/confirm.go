package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
)

// canConfirm says whether a person can be asked.
func (a *app) canConfirm() bool { return isTerminal(a.stdin) && isTerminal(a.stderr) }

// confirm asks on the terminal. Anything but yes is an error.
func (a *app) confirm(ctx context.Context, question string) error {
	fmt.Fprintf(a.stderr, "%s [y/N] ", question)
	answers := make(chan string, 1)
	go func() { // a read of a terminal cannot be interrupted: this ends with the program
		line, _ := bufio.NewReader(a.stdin).ReadString('\n')
		answers <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(a.stderr)
		return context.Cause(ctx)
	case answer := <-answers:
		if answer == "y" || answer == "yes" {
			return nil
		}
		return &failure{code: exitFailure, err: errors.New("nothing was done")}
	}
}
