package main

import (
	"errors"
	"fmt"
	"time"

	"lockkeeper/client"
)

// onceFlags are what run and acquire have in common: how often the lock is taken, for how long at least, and what for.
type onceFlags struct {
	OncePer  time.Duration `name:"once-per" placeholder:"TIME" help:"Take the lock once in each period of this length, such as 24h, by all clients together."`
	Period   string        `name:"period" placeholder:"NAME" help:"The name of the period, such as 2026-11-22; with --once-per. From the time unless given."`
	DoneOn   string        `name:"done-on" enum:",grant,release" default:"" placeholder:"WHEN" help:"What makes the period done, with --once-per: grant (unless given), or release: then what fails or dies may run again."`
	DoneCode int           `name:"done-exit-code" default:"0" placeholder:"0" help:"The exit code when the period is done already."`
	AtLeast  time.Duration `name:"at-least" placeholder:"TIME" help:"Keep the lock from others for so long from the grant, whatever happens: up to 168h."`
	Reason   string        `name:"reason" placeholder:"TEXT" help:"What the lock is taken for, for people who look at it."`
}

func (f *onceFlags) check() error {
	switch {
	case f.OncePer < 0 || f.AtLeast < 0:
		return usagef("", "--once-per and --at-least must not be negative")
	case f.OncePer == 0 && (f.Period != "" || f.DoneOn != "" || f.DoneCode != 0):
		return usagef("for example --once-per 24h", "--period, --done-on and --done-exit-code must stand beside --once-per")
	case f.DoneCode < 0 || f.DoneCode > 255:
		return usagef("", "--done-exit-code must be between 0 and 255")
	}
	return nil
}

func (f *onceFlags) options() (opts []client.Option) {
	if f.OncePer != 0 {
		opts = append(opts, client.OncePer(f.OncePer))
	}
	if f.Period != "" {
		opts = append(opts, client.Period(f.Period))
	}
	if f.doneOnRelease() {
		opts = append(opts, client.DoneOnRelease())
	}
	if f.AtLeast != 0 {
		opts = append(opts, client.AtLeast(f.AtLeast))
	}
	if f.Reason != "" {
		opts = append(opts, client.Reason(f.Reason))
	}
	return opts
}

func (f *onceFlags) doneOnRelease() bool { return f.DoneOn == "release" }

// ended says what a Done says, and makes it the exit code that it is to be. say may be nil.
func (f *onceFlags) ended(err error, say func(format string, args ...any)) error {
	var done *client.Done
	if !errors.As(err, &done) {
		return err
	}
	if say != nil {
		say("%s", doneText(done))
	}
	if f.DoneCode != 0 {
		return exitCode(f.DoneCode)
	}
	return nil
}

func doneText(done *client.Done) string {
	by := ""
	if done.By != "" {
		by = " by " + done.By
	}
	return fmt.Sprintf("%s is done in this period (%s)%s at %s; nothing to do", done.Lock, done.Period, by, done.At.Local().Format(time.DateTime))
}
