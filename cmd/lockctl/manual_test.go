package main

import (
	"reflect"
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
)

func TestTheManualPageHasEachVariableOfAFlag(t *testing.T) {
	flags := reflect.TypeFor[globals]()
	for i := range flags.NumField() {
		if name := flags.Field(i).Tag.Get("env"); name != "" {
			assert.That(t, strings.Contains(manualParts[0].Text, "\n  "+name+" ") || strings.HasPrefix(manualParts[0].Text, "  "+name+" "), "the part %s lacks %s", manualParts[0].Title, name)
		}
	}
}
