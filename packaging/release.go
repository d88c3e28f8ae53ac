package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// release says what is released, and when.
type release struct {
	version string    // without the "v": 1.2.3, 1.3.0-rc.1, 0.0.0-20261123174708-15366d7085ab+dirty
	commit  string    // "" without git
	time    time.Time // the date of every file
}

// Of semver.org: no leading zeros, dots between parts.
var semantic = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?$`)

// releaseOf asks git, unless VERSION and SOURCE_DATE_EPOCH say it.
func releaseOf(ctx context.Context, top string, env func(string) string) (release, error) {
	var rel release
	git := func(args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, "git", append([]string{"-C", top, "--no-optional-locks"}, args...)...)
		cmd.Stderr = new(bytes.Buffer)
		out, err := cmd.Output()
		return strings.TrimSpace(string(out)), err
	}
	commit, err := git("rev-parse", "HEAD")
	inGit := err == nil
	if inGit {
		rel.commit = commit
	}
	if epoch := env("SOURCE_DATE_EPOCH"); epoch != "" {
		seconds, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil || seconds < 0 {
			return rel, &usageError{fmt.Sprintf("SOURCE_DATE_EPOCH must be seconds since 1970, and is %q", epoch), "leave it out: the commit's time is taken"}
		}
		rel.time = time.Unix(seconds, 0).UTC()
	} else if inGit {
		text, err := git("show", "-s", "--format=%ct", "HEAD")
		if err != nil {
			return rel, fmt.Errorf("asking git for the commit's time: %w", err)
		}
		seconds, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return rel, fmt.Errorf("the commit's time: %w", err)
		}
		rel.time = time.Unix(seconds, 0).UTC()
	} else {
		return rel, &usageError{"there is no git here that knows the date of the release", "give VERSION and SOURCE_DATE_EPOCH"}
	}
	version := env("VERSION")
	if version == "" {
		if !inGit {
			return rel, &usageError{"there is no git here that knows the version", "give VERSION, for example VERSION=v1.2.3"}
		}
		if version, err = describe(git, rel); err != nil {
			return rel, err
		}
	}
	if !semantic.MatchString(version) {
		return rel, &usageError{fmt.Sprintf("the version must be semantic, and is %q", version), "for example VERSION=v1.2.3 or VERSION=v1.3.0-rc.1"}
	}
	rel.version = version[1:]
	return rel, nil
}

// describe names the commit as Go does: its tag, or else a pseudo-version, and +dirty when files differ from it.
func describe(git func(...string) (string, error), rel release) (string, error) {
	version, err := git("describe", "--tags", "--exact-match", "--match", "v[0-9]*")
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		version = "v0.0.0-" + rel.time.Format("20060102150405") + "-" + rel.commit[:12]
	} else if err != nil {
		return "", fmt.Errorf("asking git for a tag: %w", err)
	}
	changed, err := git("status", "--porcelain")
	if err != nil {
		return "", fmt.Errorf("asking git for changed files: %w", err)
	}
	if changed != "" {
		version += "+dirty"
	}
	return version, nil
}
