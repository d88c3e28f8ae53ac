package clidoc

import (
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

// Page is what a manual page has besides the model.
type Page struct {
	Section int    // of the manual: 1 for what users run, 8 for what administrators run
	Version string // of the program
	Parts   []Part // at the end of the page
}

// Part is a part of a manual page. Lines of its text that begin with blanks stay as they are.
type Part struct{ Title, Text string }

// Man writes the program's manual page, with all of its commands. It has no date, so that two builds give the same page.
func Man(w io.Writer, app *kong.Application, page Page) error {
	var b strings.Builder
	summary, rest, _ := strings.Cut(app.Help, "\n")
	fmt.Fprintf(&b, ".TH %s %d \"\" %s Lockkeeper\n", strings.ToUpper(app.Name), page.Section, roffArg(app.Name+" "+page.Version))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(app.Name), roff(strings.TrimSuffix(summary, ".")))
	b.WriteString(".SH SYNOPSIS\n")
	for i, p := range leaves(app) {
		if i > 0 {
			b.WriteString(".br\n")
		}
		synopsis(&b, app, p)
	}
	b.WriteString(".SH DESCRIPTION\n")
	prose(&b, rest)
	b.WriteString(".SH OPTIONS\n")
	options(&b, points(app)[0].own())
	if len(commands(app.Node)) > 0 {
		b.WriteString(".SH COMMANDS\n")
	}
	for _, p := range leaves(app) {
		if p.path == "" {
			continue
		}
		fmt.Fprintf(&b, ".SS %s\n", roffArg(app.Name+" "+p.path))
		prose(&b, p.node.Help)
		if p.node.Detail != "" {
			b.WriteString(".PP\n")
			prose(&b, p.node.Detail)
		}
		for _, v := range p.node.Positional {
			if v.Help != "" {
				fmt.Fprintf(&b, ".TP\n\\fI%s\\fR\n%s\n", roff(placeholderOf(v)), roffLine(v.Help))
			}
		}
		options(&b, p.own())
	}
	for _, part := range page.Parts {
		fmt.Fprintf(&b, ".SH %s\n", roffArg(part.Title))
		prose(&b, part.Text)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// leaves are the places that run: commands without commands, and the program where it has none or a default.
func leaves(app *kong.Application) (list []point) {
	for _, p := range points(app) {
		if len(commands(p.node)) == 0 || p.path == "" && p.node.DefaultCmd != nil {
			list = append(list, p)
		}
	}
	return list
}

func synopsis(b *strings.Builder, app *kong.Application, p point) {
	fmt.Fprintf(b, "\\fB%s\\fR", roff(strings.TrimSpace(app.Name+" "+p.path)))
	if len(p.own()) > 0 {
		b.WriteString(" [\\fIOPTIONS\\fR]")
	}
	for _, v := range p.node.Positional {
		name := "\\fI" + roff(placeholderOf(v)) + "\\fR"
		if v.IsSlice() {
			name += " ..."
		}
		if !v.Required {
			name = "[" + name + "]"
		}
		b.WriteString(" " + name)
	}
	// What the program cuts off before kong reads the command line.
	if p.node.Tag != nil && p.node.Tag.Has("behind") {
		b.WriteString(" " + roff(p.node.Tag.Get("behind")))
	}
	b.WriteString("\n")
}

func options(b *strings.Builder, flags []*kong.Flag) {
	for _, f := range flags {
		b.WriteString(".TP\n")
		if f.Short != 0 {
			fmt.Fprintf(b, "\\fB\\-%c\\fR, ", f.Short)
		}
		b.WriteString("\\fB\\-\\-")
		if negatable(f) {
			b.WriteString("[no\\-]")
		}
		b.WriteString(roff(f.Name) + "\\fR")
		if takesValue(f) {
			fmt.Fprintf(b, "=\\fI%s\\fR", roff(strings.Trim(f.FormatPlaceHolder(), `"`)))
		}
		help := f.Help
		if len(f.Envs) > 0 {
			help += " Also the variable " + strings.Join(f.Envs, ", ") + "."
		}
		fmt.Fprintf(b, "\n%s\n", roffLine(help))
	}
}

// prose writes paragraphs. Lines that begin with blanks are shown as they are.
func prose(b *strings.Builder, text string) {
	literal := false
	for _, line := range strings.Split(strings.Trim(text, "\n"), "\n") {
		indented := strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t")
		switch {
		case line == "":
			if literal {
				b.WriteString(".fi\n.RE\n")
				literal = false
			}
			b.WriteString(".PP\n")
			continue
		case indented && !literal:
			b.WriteString(".RS 4\n.nf\n")
			literal = true
		case !indented && literal:
			b.WriteString(".fi\n.RE\n")
			literal = false
		}
		if literal {
			line = strings.TrimPrefix(line, "  ")
		}
		b.WriteString(roffLine(line) + "\n")
	}
	if literal {
		b.WriteString(".fi\n.RE\n")
	}
}

// roff writes a text so that troff shows it as it stands.
func roff(text string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", "\\(ga", "^", `\(ha`, "~", `\(ti`).Replace(text)
}

// roffLine is roff for a whole line, which must not begin like a request.
func roffLine(text string) string {
	text = roff(text)
	if strings.HasPrefix(text, ".") {
		return `\&` + text
	}
	return text
}

// roffArg is roff for an argument of a request.
func roffArg(text string) string { return `"` + strings.ReplaceAll(roff(text), `"`, `\(dq`) + `"` }
