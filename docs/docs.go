// Package docs holds the project's documentation, which the gateway serves.
package docs

import "embed"

// Files are the documents and their images.
//
//go:embed *.md */*
var Files embed.FS
