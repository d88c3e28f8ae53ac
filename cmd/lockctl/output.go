package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"unicode"

	"golang.org/x/term"
)

// tables says whether a command prints a table: on a terminal, or where -o asks for it.
func (a *app) tables() bool {
	return a.Output == "table" || a.Output == "auto" && isTerminal(a.stdout)
}

// printJSON prints v as one document.
func (a *app) printJSON(v any) error {
	e := json.NewEncoder(a.stdout)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// table prints rows below their headings. What clients have written is made visible.
func (a *app) table(headings []string, rows [][]string) error {
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{headings}, rows...) {
		cells := make([]string, len(row))
		for i, cell := range row {
			if cells[i] = visible(cell); cell == "" {
				cells[i] = "-"
			}
		}
		fmt.Fprintln(w, strings.TrimRight(strings.Join(cells, "\t"), "\t"))
	}
	return w.Flush()
}

// visible writes what clients chose (names, owners, metadata) so that it can do nothing to a terminal: characters that are not
// printed, such as escapes, stand there as \u escapes.
func visible(text string) string {
	plain := true
	for _, r := range text {
		if !unicode.IsPrint(r) {
			plain = false
		}
	}
	if plain {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// isTerminal says whether a stream of the program is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// colour says whether w may be given colours: a terminal that can, and NO_COLOR is not set.
func colour(w any) bool {
	return isTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}
