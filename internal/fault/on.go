//go:build faults

package fault

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// Variable holds the names of the points that are on, separated by commas.
const Variable = "LOCKKEEPER_FAULTS"

var on = mustChoose(os.Getenv(Variable))

// On reports whether the fail point of that name is on.
func On(name string) bool { return on[name] }

func mustChoose(list string) map[string]bool {
	chosen, err := choose(list)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	return chosen
}

func choose(list string) (map[string]bool, error) {
	chosen := map[string]bool{}
	if list == "" {
		return chosen, nil
	}
	for name := range strings.SplitSeq(list, ",") {
		if !slices.Contains(Names, name) {
			return nil, fmt.Errorf("%s must name fail points, separated by commas; %q is not one. The names: %s", Variable, name, strings.Join(Names, " "))
		}
		chosen[name] = true
	}
	return chosen, nil
}
