package clidoc

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"
)

func fish(b *strings.Builder, app *kong.Application) {
	where := "_" + function(app) + "_at"
	fmt.Fprintf(b, "# fish completion for %s. Load it with: %s completion fish | source\n", app.Name, app.Name)
	fmt.Fprintf(b, "# Whether the cursor is at the command of the first argument, and has as many arguments before it as the\n# second says; with a third one, or more.\nfunction %s\n", where)
	b.WriteString("\tset -l at\n\tset -l given 0\n\tset -l skip 0\n\tset -l words (commandline -opc)\n\tfor word in $words[2..-1]\n\t\tif test $skip = 1\n\t\t\tset skip 0\n\t\t\tcontinue\n\t\tend\n\t\tswitch \"$at/$word\"\n")
	for _, p := range points(app)[1:] {
		fmt.Fprintf(b, "\t\t\tcase %s\n\t\t\t\tset at %s\n\t\t\t\tcontinue\n", quoteFish(at(p)), quoteFish(at(p)))
	}
	b.WriteString("\t\tend\n\t\tswitch $word\n\t\t\tcase --\n\t\t\t\treturn 1\n\t\t\tcase " + strings.ReplaceAll(valueFlags(app), "|", " ") + "\n\t\t\t\tset skip 1\n\t\t\tcase '-*'\n\t\t\tcase '*'\n\t\t\t\tset given (math $given + 1)\n\t\tend\n\tend\n")
	b.WriteString("\ttest \"$at\" = \"$argv[1]\"; or return 1\n\tset -q argv[2]; or return 0\n\tset -q argv[3]; and test $given -gt $argv[2]; and return 0\n\ttest $given = $argv[2]\nend\n")
	fmt.Fprintf(b, "complete -c %s -f\n", app.Name)
	for _, p := range points(app) {
		condition := fmt.Sprintf("-n %s", quoteFish(where+" '"+at(p)+"'"))
		for _, c := range commands(p.node) {
			fmt.Fprintf(b, "complete -c %s %s -a %s -d %s\n", app.Name, condition, c.Name, quoteFish(firstLine(c.Help)))
		}
		for _, f := range p.all() {
			line := fmt.Sprintf("complete -c %s %s -l %s", app.Name, condition, f.Name)
			if f.Short != 0 {
				line += " -s " + string(f.Short)
			}
			if takesValue(f) {
				k := kindOf(f.Value, f.PlaceHolder)
				line += " -r" + fishValues(k)
				if !k.files {
					line += " -f"
				}
			}
			fmt.Fprintf(b, "%s -d %s\n", line, quoteFish(firstLine(f.Help)))
		}
		for i, v := range p.node.Positional {
			if values := fishValues(kindOf(v, placeholderOf(v))); values != "" {
				test := fmt.Sprintf("%s '%s' %d", where, at(p), i)
				if v.IsSlice() {
					test += " more"
				}
				condition := "-n " + quoteFish(test)
				fmt.Fprintf(b, "complete -c %s %s%s\n", app.Name, condition, values)
			}
		}
	}
}

func fishValues(k kind) string {
	switch {
	case len(k.values) > 0:
		return " -a " + quoteFish(strings.Join(k.values, " "))
	case k.files:
		return " -F"
	case k.command != "":
		return " -a " + quoteFish("("+k.command+" 2>/dev/null)")
	}
	return ""
}

func quoteFish(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(text) + "'"
}
