package main

import (
	"context"
	"fmt"
	"net/url"

	"lockkeeper/client"
	"lockkeeper/internal/clidoc"
)

type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Help is what --help adds.
func (*completionCommand) Help() string {
	return `Put one of these into the file that your shell reads when it starts:

  source <(lockctl completion bash)
  source <(lockctl completion zsh)
  lockctl completion fish | source

Names of locks are completed too: the gateway is asked for them, for a second at most.`
}

func (c *completionCommand) Run(a *app) error {
	return clidoc.Completion(a.stdout, a.command.Model, c.Shell)
}

// manCommand prints the manual page.
type manCommand struct{}

func (*manCommand) Run(a *app) error {
	return clidoc.Man(a.stdout, a.command.Model, clidoc.Page{Section: 1, Version: version(), Parts: manualParts})
}

var manualParts = []clidoc.Part{
	{Title: "ENVIRONMENT", Text: `  LOCKKEEPER_URL         the gateways of one fleet, with commas between them
  LOCKKEEPER_TOKEN       the API token
  LOCKKEEPER_TOKEN_FILE  a file with the API token
  LOCKKEEPER_CA_FILE     the authorities of the gateways' certificates, where the system does not have them
  LOCKKEEPER_CERT_FILE   the client certificate
  LOCKKEEPER_KEY_FILE    its key
  NO_COLOR               no colours, if it is not empty`},
	{Title: "EXIT STATUS", Text: `  0      in good order
  1      anything else
  64     usage: the command line, or a value in it
  69     unavailable: no gateway answered, or none could
  75     not acquired: others hold the lock; or the lock is not as a command expects it
  76     lost: the lease ended before it was released
  77     refused: the gateway does not know the caller, or does not allow it
  128+n  ended by the signal n

lockctl run ends with the exit code of its command where that has run.`},
	{Title: "SEE ALSO", Text: `The documentation is at /docs of each gateway.`},
}

// completeLocksCommand prints the names of locks for a shell. What fails completes nothing.
type completeLocksCommand struct{}

func (*completeLocksCommand) Run(ctx context.Context, a *app) error {
	var answer struct {
		Items []struct {
			Lock string `json:"lock"`
		} `json:"items"`
	}
	if err := a.call(ctx, client.Request{Path: "/v1/locks?" + url.Values{"limit": {"1000"}}.Encode()}, &answer); err != nil {
		return exitCode(exitFailure)
	}
	for _, item := range answer.Items {
		fmt.Fprintln(a.stdout, visible(item.Lock))
	}
	return nil
}
