// Package lockkeeper holds what is at the module's root and is needed inside
// programs: the API's specification.
package lockkeeper

import _ "embed"

// OpenAPI is openapi.yaml, the specification of the HTTP API.
//
//go:embed openapi.yaml
var OpenAPI []byte
