package clidoc

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
)

// tool is a command line with everything that the package has to know.
type tool struct {
	Output string `name:"output" short:"o" enum:"table,json" default:"table" help:"table or json. Not both."`
	Config string `name:"config" placeholder:"FILE" env:"TOOL_CONFIG" help:"A file's name."`
	Quiet  bool   `name:"quiet" negatable:"" help:"Say nothing: it's quiet."`

	Show struct {
		Name string   `arg:"" completion:"tool names" help:"What to show."`
		More []string `arg:"" optional:"" completion:"echo again a:gain" help:"What else to show."`
	} `cmd:"" help:"Show one."`
	Hook struct {
		Add struct {
			URL  string `arg:"" name:"url" help:"Where to."`
			Kind string `name:"kind" enum:"soft,hard" default:"soft" help:".kind of it \\ really."`
		} `cmd:"" help:"Add one."`
		List struct{} `cmd:"" help:"List them."`
	} `cmd:"" help:"About hooks."`
	Secret struct{} `cmd:"" hidden:"" help:"Not for users."`
}

func (t *tool) Help() string { return "" }

func model(t *testing.T) *kong.Application {
	t.Helper()
	parser, err := kong.New(&tool{}, kong.Name("tool"), kong.Description("A tool of tests.\n\nIt does nothing:\n\n  tool show 'it'\n"))
	assert.NoError(t, err)
	return parser.Model
}

func script(t *testing.T, shell string) string {
	t.Helper()
	var b strings.Builder
	assert.NoError(t, Completion(&b, model(t), shell))
	return b.String()
}

// candidates completes a command line, whose last word may be empty, in a real shell. In the directory is a file, and tool names
// prints two names.
func candidates(t *testing.T, shell string, words ...string) string {
	t.Helper()
	path, err := exec.LookPath(shell)
	if err != nil {
		t.Skip(shell + " is not installed: scripts/setup test does it")
	}
	dir := t.TempDir()
	assert.NoError(t, os.WriteFile(filepath.Join(dir, "a-file"), nil, 0o600))
	assert.NoError(t, os.WriteFile(filepath.Join(dir, "script"), []byte(script(t, shell)), 0o600))
	bin := t.TempDir()
	assert.NoError(t, os.WriteFile(filepath.Join(bin, "tool"), []byte("#!/bin/sh\nprintf 'one\\ntwo\\n'\n"), 0o700))
	run := map[string]string{
		"bash": `source ./script; COMP_LINE="$*" COMP_POINT=${#COMP_LINE}; _tool; printf '%s\n' "${COMPREPLY[@]}"`,
		// What the completion system is told, without a terminal.
		"zsh": `compdef() { :; }; compset() { :; }; _files() { print -l a-file; }; _message() { :; }; _command_names() { print -l a-command; }
			compadd() { shift; print -l -- $*; }; _describe() { print -l -- ${(P)2}; }
			source ./script; words=("$@"); CURRENT=$#; _tool`,
		"fish": `source ./script; complete -C (string join ' ' -- $argv)`,
	}[shell]
	args := append([]string{"-c", run}, words...)
	if shell != "fish" {
		args = append([]string{"-c", run, shell}, words...)
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_DATA_HOME="+dir)
	out, err := cmd.CombinedOutput()
	assert.That(t, err == nil, "%s %v: %v\n%s", shell, words, err, out)
	return string(out)
}

func TestEachShellCompletesWhatTheCommandLineHas(t *testing.T) {
	testkit.NotShort(t, "starts shells")
	for _, c := range []struct {
		line          string
		has, lacks    string
		notInThisCase string // a shell that leaves the choice to its own code, or says it otherwise
	}{
		{line: "tool ", has: "show hook", lacks: "secret add a-file"},
		{line: "tool sh", has: "show", lacks: "hook", notInThisCase: "zsh"},
		{line: "tool hook ", has: "add list", lacks: "show"},
		{line: "tool --quiet hook ", has: "add list", lacks: "show"},
		{line: "tool -o json hook ", has: "add list", lacks: "show"},
		{line: "tool --output ", has: "table json", lacks: "show"},
		{line: "tool hook add --kind ", has: "soft hard", lacks: "table"},
		{line: "tool hook add --", has: "--kind --output --no-quiet", lacks: "--secret", notInThisCase: "fish"},
		{line: "tool hook add --", has: "--kind --output --quiet", lacks: "--secret"},
		{line: "tool show --", has: "--output", lacks: "--kind"},
		{line: "tool --config ", has: "a-file", lacks: "show"},
		{line: "tool show ", has: "one two", lacks: "again a-file"},
		{line: "tool show one ", has: "again", lacks: "two"},
	} {
		for _, shell := range Shells {
			if shell == c.notInThisCase {
				continue
			}
			t.Run(shell+" "+c.line, func(t *testing.T) {
				t.Parallel()
				got := candidates(t, shell, strings.Split(c.line, " ")...)
				for want := range strings.FieldsSeq(c.has) {
					assert.That(t, strings.Contains(got, want), "%q does not offer %s:\n%s", c.line, want, got)
				}
				for bad := range strings.FieldsSeq(c.lacks) {
					assert.That(t, !strings.Contains(got, bad), "%q offers %s:\n%s", c.line, bad, got)
				}
			})
		}
	}
}

// Bash parts words at = and :, and puts in only what follows them.
func TestBashCompletesWhatFollowsASign(t *testing.T) {
	testkit.NotShort(t, "starts bash")
	for line, want := range map[string]string{"tool --output=j": "json\n", "tool --output=json hook ": "add\nlist\n", "tool show one a:": "gain\n"} {
		got := candidates(t, "bash", strings.Split(line, " ")...)
		assert.That(t, got == want, "%s: got %q", line, got)
	}
}

func TestAnUnknownShellIsRefused(t *testing.T) {
	err := Completion(&strings.Builder{}, model(t), "csh")
	assert.That(t, err != nil && strings.Contains(err.Error(), "bash, zsh, fish"), "got %v", err)
}

func TestTheManualPageHasEveryCommandAndFlag(t *testing.T) {
	var b strings.Builder
	page := Page{Section: 1, Version: "v1.2.3", Parts: []Part{{"EXIT STATUS", "  0  well\n\nElse not."}}}
	assert.NoError(t, Man(&b, model(t), page))
	text := b.String()
	for _, want := range []string{
		".TH TOOL 1 \"\" \"tool v1.2.3\" Lockkeeper\n", "tool \\- A tool of tests\n", ".SS \"tool hook add\"\n", "\\fB\\-\\-[no\\-]quiet\\fR", "\\fB\\-o\\fR, \\fB\\-\\-output\\fR",
		"Also the variable TOOL_CONFIG.", "Say nothing: it\\(aqs quiet.", "\\&.kind of it \\e really.", ".SH \"EXIT STATUS\"\n.RS 4\n.nf\n0  well\n.fi\n.RE\n.PP\nElse not.\n", "tool show \\(aqit\\(aq",
	} {
		assert.That(t, strings.Contains(text, want), "the page has no %q:\n%s", want, text)
	}
	assert.That(t, !strings.Contains(text, "ecret"), "a hidden command is on the page:\n%s", text)
	var again strings.Builder
	assert.NoError(t, Man(&again, model(t), page))
	assert.That(t, again.String() == text, "two pages differ")
}

func TestTheManualPageIsReadWithoutComplaint(t *testing.T) {
	testkit.NotShort(t, "starts man")
	if _, err := exec.LookPath("man"); err != nil {
		t.Skip("man is not installed")
	}
	var b strings.Builder
	assert.NoError(t, Man(&b, model(t), Page{Section: 1, Version: "v1"}))
	cmd := exec.CommandContext(t.Context(), "man", "--warnings=w", "-l", "-")
	cmd.Stdin = strings.NewReader(b.String())
	cmd.Env = append(os.Environ(), "MANWIDTH=80", "LC_ALL=C.UTF-8")
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	assert.NoError(t, err)
	assert.That(t, complaints.String() == "" && strings.Contains(string(out), ".kind of it \\ really."), "complaints: %s\npage:\n%s", &complaints, out)
}
