package httpapi

import (
	"slices"
	"testing"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
)

func TestTheSpecificationHasEveryHazardCode(t *testing.T) {
	spec, err := apitest.Load()
	assert.NoError(t, err)
	var specified []locks.HazardCode
	for _, v := range spec.Doc.Components.Schemas["HazardCode"].Value.Enum {
		specified = append(specified, locks.HazardCode(v.(string)))
	}
	codes := locks.HazardCodes()
	assert.That(t, slices.Equal(specified, codes), "the specification has %q,\nthe codes are %q", specified, codes)
}
