package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"lockkeeper/client"
)

// globals are the flags that every command has.
type globals struct {
	URL       []string      `name:"url" env:"LOCKKEEPER_URL" default:"http://127.0.0.1:8080" sep:"," placeholder:"URL" help:"Gateways of one fleet: http://..., https://... or unix:/path. The next one is asked when one does not answer."`
	TokenFile string        `name:"token-file" placeholder:"FILE" help:"File with the API token, instead of LOCKKEEPER_TOKEN or LOCKKEEPER_TOKEN_FILE."`
	CAFile    string        `name:"ca-file" env:"LOCKKEEPER_CA_FILE" placeholder:"FILE" help:"Certificates (PEM) that a gateway's has to be signed by; those that the system trusts unless given."`
	CertFile  string        `name:"cert-file" env:"LOCKKEEPER_CERT_FILE" placeholder:"FILE" help:"The certificate (PEM) that gateways are shown."`
	KeyFile   string        `name:"key-file" env:"LOCKKEEPER_KEY_FILE" placeholder:"FILE" help:"The private key of --cert-file (PEM)."`
	Timeout   time.Duration `name:"timeout" default:"10s" placeholder:"10s" help:"How long to try until a gateway answers."`
	Output    string        `name:"output" short:"o" enum:"auto,table,json,env" default:"auto" placeholder:"FORMAT" help:"table or json. A table on a terminal and JSON elsewhere, unless given."`
}

// check finds what is wrong before anything is sent.
// leastOf are the flags that must not be 0, and the least that they may be.
var leastOf = map[string]string{"ttl": "1s", "margin": leastMargin.String(), "limit": "1", "permits": "1"}

func (g *globals) check(command *kong.Context) error {
	if g.Timeout <= 0 {
		return usagef("for example --timeout 30s", "--timeout must be more than 0")
	}
	for _, flag := range command.Flags() {
		// Left out, these are 0, which stands for a default. Given as 0 they are a mistake.
		if least, ok := leastOf[flag.Name]; ok && flag.Set && flag.Target.IsZero() {
			return usagef("leave it out for the default", "--%s must be at least %s", flag.Name, least)
		}
	}
	if g.Output == "env" {
		if _, ok := command.Selected().Target.Addr().Interface().(interface{ printsEnv() }); !ok {
			return usagef("use -o table or -o json", "--output env: only lockctl acquire prints lines for eval")
		}
	}
	return nil
}

// app is what a command works with.
type app struct {
	*globals
	command        *kong.Context
	stdin          io.Reader
	stdout, stderr io.Writer
	argv           []string // of the command that run and elect run

	stop func() // ends the handling of signals, if it has begun
}

func (a *app) end() {
	if a.stop != nil {
		a.stop()
	}
}

// interruptible gives a context that the first signal ends. A second one ends the process at once.
func (a *app) interruptible() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		select {
		case s := <-signals:
			signal.Stop(signals)
			cancel(signalled{s.(syscall.Signal)})
		case <-ctx.Done():
		}
	}()
	a.stop = func() {
		signal.Stop(signals)
		cancel(nil)
	}
	return ctx
}

// client gives the gateways that the flags and the environment name. It sends nothing.
func (a *app) client() (*client.Client, error) { return a.clientOf(a.URL) }

func (a *app) clientOf(urls []string) (*client.Client, error) {
	config := client.Config{URLs: urls, TryFor: a.Timeout, Token: os.Getenv(client.EnvToken), TokenFile: os.Getenv(client.EnvTokenFile)}
	if a.TokenFile != "" {
		config.Token, config.TokenFile = "", a.TokenFile
	}
	if config.Token != "" && config.TokenFile != "" {
		return nil, usagef("unset one of them", "%s and %s are both set", client.EnvToken, client.EnvTokenFile)
	}
	if config.TokenFile != "" {
		if _, err := os.Stat(config.TokenFile); err != nil {
			return nil, usagef("it is the file of --token-file or "+client.EnvTokenFile, "the token's file cannot be read: %w", err)
		}
	}
	var err error
	if config.TLS, err = a.tls(); err != nil {
		return nil, err
	}
	c, err := client.New(config)
	if err != nil {
		return nil, usagef("--url or "+client.EnvURL+" names gateways, such as http://127.0.0.1:8080", "--url: %s", plain(err))
	}
	return c, nil
}

// tls is nil when no flag says anything about it.
func (a *app) tls() (*tls.Config, error) {
	if a.CAFile == "" && a.CertFile == "" && a.KeyFile == "" {
		return nil, nil
	}
	config := &tls.Config{}
	if a.CAFile != "" {
		pem, err := os.ReadFile(a.CAFile)
		if err != nil {
			return nil, usagef("", "--ca-file: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, usagef("it must have blocks that begin with -----BEGIN CERTIFICATE-----", "--ca-file %s has no certificate", a.CAFile)
		}
	}
	if (a.CertFile == "") != (a.KeyFile == "") {
		return nil, usagef("", "--cert-file and --key-file must be given together")
	}
	if a.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(a.CertFile, a.KeyFile)
		if err != nil {
			return nil, usagef("", "--cert-file, --key-file: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// call sends a request to the gateways of the flags, and tries for the time of --timeout.
func (a *app) call(ctx context.Context, r client.Request, answer any) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	return a.callWith(ctx, c, r, answer)
}

// callWith is call with a client that is there already.
func (a *app) callWith(ctx context.Context, c *client.Client, r client.Request, answer any) error {
	if isTerminal(a.stderr) && r.Hold == 0 {
		note := time.AfterFunc(time.Second, func() {
			fmt.Fprintf(a.stderr, "no answer yet; trying for %v in all (--timeout)\n", a.Timeout)
		})
		defer note.Stop()
	}
	err := c.Call(ctx, r, answer)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
