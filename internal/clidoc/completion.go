package clidoc

import (
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

// Shells are those that Completion knows.
var Shells = []string{"bash", "zsh", "fish"}

// Completion writes the script that completes the program's command lines in the shell.
func Completion(w io.Writer, app *kong.Application, shell string) error {
	var b strings.Builder
	switch shell {
	case "bash":
		bash(&b, app)
	case "zsh":
		zsh(&b, app)
	case "fish":
		fish(&b, app)
	default:
		return fmt.Errorf("no completion for the shell %q: there are %s", shell, strings.Join(Shells, ", "))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// quote makes a text one word of bash and zsh.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// function is a name for functions of a script.
func function(app *kong.Application) string { return "_" + strings.ReplaceAll(app.Name, "-", "_") }

// valueFlags are the spellings of all flags that take a value, as a pattern of a case.
func valueFlags(app *kong.Application) string {
	var list []string
	seen := map[string]bool{}
	for _, p := range points(app) {
		for _, f := range p.own() {
			for _, s := range spellings(f) {
				if takesValue(f) && !seen[s] {
					seen[s] = true
					list = append(list, s)
				}
			}
		}
	}
	return strings.Join(list, "|")
}

// walkWords writes the loop that finds out at which command the cursor is: $at is "", "/webhook" or "/webhook/add", and $given is how
// many arguments the command has before the cursor. After -- follows another program's command line: the loop runs end then.
func walkWords(b *strings.Builder, app *kong.Application, words, end string) {
	fmt.Fprintf(b, "\tlocal at= given=0 skip= word\n\tfor word in %s; do\n", words)
	b.WriteString("\t\tif [[ -n $skip ]]; then skip=; continue; fi\n\t\tcase $at/$word in\n")
	for _, p := range points(app)[1:] {
		path := "/" + strings.ReplaceAll(p.path, " ", "/")
		fmt.Fprintf(b, "\t\t%s) at=%s; continue ;;\n", path, path)
	}
	b.WriteString("\t\tesac\n\t\tcase $word in\n")
	fmt.Fprintf(b, "\t\t--) %s ;;\n\t\t%s) skip=1 ;;\n\t\t-*) ;;\n\t\t*) given=$((given + 1)) ;;\n\t\tesac\n\tdone\n", end, valueFlags(app))
}

func bash(b *strings.Builder, app *kong.Application) {
	name := function(app)
	fmt.Fprintf(b, "# bash completion for %s. Load it with: source <(%s completion bash)\n", app.Name, app.Name)
	// Bash parts words at = and : too, so the line itself is parted at blanks, and what stands before a colon is cut off in the end.
	fmt.Fprintf(b, "%s() {\n\tlocal line=${COMP_LINE:0:COMP_POINT} words cur prev\n\tread -ra words <<<\"$line\"\n", name)
	b.WriteString("\t[[ $line == *[[:blank:]] ]] && words+=('')\n\tcur=${words[${#words[@]}-1]} prev=${words[${#words[@]}-2]}\n\tCOMPREPLY=()\n")
	fmt.Fprintf(b, "\tif [[ $cur == --*=* ]]; then prev=${cur%%%%=*} cur=${cur#*=}; fi\n\t%s_words\n", name)
	b.WriteString("\tif [[ $cur == *:* && $COMP_WORDBREAKS == *:* ]]; then COMPREPLY=(\"${COMPREPLY[@]#\"${cur%\"${cur##*:}\"}\"}\"); fi\n}\n")
	fmt.Fprintf(b, "%s_words() {\n", name)
	walkWords(b, app, `"${words[@]:1:${#words[@]}-2}"`, "COMPREPLY=($(compgen -c -A file -- \"$cur\")); return")
	for _, p := range points(app) {
		for _, f := range p.own() {
			if takesValue(f) {
				fmt.Fprintf(b, "\tcase $at:$prev in\n\t%s) %s; return ;;\n\tesac\n", flagPattern(p, f), bashValues(kindOf(f.Value, f.PlaceHolder)))
			}
		}
	}
	b.WriteString("\tcase $at in\n")
	for _, p := range points(app) {
		fmt.Fprintf(b, "\t%s)\n", quote(at(p)))
		var flags, names []string
		for _, f := range p.all() {
			flags = append(flags, spellings(f)...)
		}
		for _, c := range commands(p.node) {
			names = append(names, c.Name)
		}
		fmt.Fprintf(b, "\t\tif [[ $cur == -* ]]; then COMPREPLY=($(compgen -W %s -- \"$cur\")); return; fi\n", quote(strings.Join(flags, " ")))
		if len(names) > 0 {
			fmt.Fprintf(b, "\t\tCOMPREPLY=($(compgen -W %s -- \"$cur\")) ;;\n", quote(strings.Join(names, " ")))
			continue
		}
		b.WriteString("\t\tcase $given in\n")
		for i, v := range p.node.Positional {
			pattern := fmt.Sprint(i)
			if v.IsSlice() {
				pattern = "*"
			}
			fmt.Fprintf(b, "\t\t%s) %s ;;\n", pattern, bashValues(kindOf(v, placeholderOf(v))))
		}
		b.WriteString("\t\tesac ;;\n")
	}
	fmt.Fprintf(b, "\tesac\n}\ncomplete -F %s %s\n", name, app.Name)
}

// bashValues sets COMPREPLY.
func bashValues(k kind) string {
	switch {
	case len(k.values) > 0:
		return fmt.Sprintf(`COMPREPLY=($(compgen -W %s -- "$cur"))`, quote(strings.Join(k.values, " ")))
	case k.files:
		return `compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur"))`
	case k.command != "":
		return fmt.Sprintf(`COMPREPLY=($(compgen -W "$(%s 2>/dev/null)" -- "$cur"))`, k.command)
	}
	return ":"
}

// placeholderOf is what the help calls an argument.
func placeholderOf(v *kong.Positional) string {
	if v.Tag != nil && v.Tag.PlaceHolder != "" {
		return v.Tag.PlaceHolder
	}
	return strings.ToUpper(v.Name)
}

func at(p point) string {
	if p.path == "" {
		return ""
	}
	return "/" + strings.ReplaceAll(p.path, " ", "/")
}

// flagPattern matches $at:$prev where a value of the flag is typed: at the flag's own command, and at those below it.
func flagPattern(p point, f *kong.Flag) string {
	var list []string
	for _, s := range spellings(f) {
		list = append(list, at(p)+":"+s, at(p)+"/*:"+s)
	}
	return strings.Join(list, "|")
}

func zsh(b *strings.Builder, app *kong.Application) {
	name := function(app)
	fmt.Fprintf(b, "#compdef %s\n# zsh completion for %s. Put it into a directory of $fpath as %s, or: source <(%s completion zsh)\n%s() {\n", app.Name, app.Name, name, app.Name, name)
	b.WriteString("\tlocal cur=$words[CURRENT] prev=$words[CURRENT-1]\n\tlocal -a flags names\n")
	walkWords(b, app, `"${(@)words[2,CURRENT-1]}"`, "_command_names; _files; return")
	b.WriteString("\tif [[ $cur == --*=* ]]; then prev=${cur%%=*}; compset -P '*='; fi\n")
	for _, p := range points(app) {
		for _, f := range p.own() {
			if takesValue(f) {
				fmt.Fprintf(b, "\tcase $at:$prev in\n\t%s) %s; return ;;\n\tesac\n", flagPattern(p, f), zshValues(kindOf(f.Value, f.PlaceHolder), f.Name))
			}
		}
	}
	b.WriteString("\tcase $at in\n")
	for _, p := range points(app) {
		fmt.Fprintf(b, "\t%s)\n\t\tflags=(", quote(at(p)))
		for _, f := range p.all() {
			for _, s := range spellings(f) {
				b.WriteString(" " + quote(describe(s, f.Help)))
			}
		}
		b.WriteString(" )\n\t\tnames=(")
		for _, c := range commands(p.node) {
			b.WriteString(" " + quote(describe(c.Name, c.Help)))
		}
		b.WriteString(" )\n\t\tif [[ $cur == -* ]]; then _describe flag flags; return; fi\n\t\tif (( $#names )); then _describe command names; return; fi\n\t\tcase $given in\n")
		for i, v := range p.node.Positional {
			pattern := fmt.Sprint(i)
			if v.IsSlice() {
				pattern = "*"
			}
			fmt.Fprintf(b, "\t\t%s) %s ;;\n", pattern, zshValues(kindOf(v, placeholderOf(v)), v.Name))
		}
		b.WriteString("\t\tesac ;;\n")
	}
	// Loaded by compinit the file is the function's body; sourced, it registers the function.
	fmt.Fprintf(b, "\tesac\n}\nif [[ $funcstack[1] == %s ]]; then %s \"$@\"; else compdef %s %s; fi\n", name, name, name, app.Name)
}

// describe is a candidate with its description. A colon would end the candidate.
func describe(candidate, help string) string {
	return strings.ReplaceAll(candidate, ":", `\:`) + ":" + firstLine(help)
}

func zshValues(k kind, what string) string {
	switch {
	case len(k.values) > 0:
		return "compadd -- " + strings.Join(k.values, " ")
	case k.files:
		return "_files"
	case k.command != "":
		return fmt.Sprintf(`compadd -- ${(f)"$(%s 2>/dev/null)"}`, k.command)
	}
	return "_message " + quote(what)
}
