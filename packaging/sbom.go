package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// bom writes what an archive contains, as CycloneDX has it: the programs with their hashes, each part with its version
// and licences, and which program contains which part. Names and dates follow from the release.
func (d *distribution) bom(to string, prod product, p platform, programs []*built, parts []part) error {
	bom := cdx.NewBOM()
	bom.SpecVersion, bom.JSONSchema = cdx.SpecVersion1_6, "http://cyclonedx.org/schema/bom-1.6.schema.json"
	root := cdx.Component{BOMRef: d.stem(prod, p), Type: cdx.ComponentTypeApplication, Name: prod.name, Version: d.version, Description: prod.summary,
		PackageURL: fmt.Sprintf("pkg:generic/%s@%s?arch=%[4]s&os=%[3]s", prod.name, escaped(d.version), p.os, p.arch), Licenses: spdx([]string{"Apache-2.0"})}
	if d.commit != "" {
		root.Properties = &[]cdx.Property{{Name: "git:commit", Value: d.commit}}
	}
	bom.Metadata = &cdx.Metadata{Timestamp: d.time.Format(time.RFC3339), Component: &root}

	refs := map[string]string{}
	components := []cdx.Component{}
	depends := []cdx.Dependency{}
	contains := []string{}
	for _, b := range programs {
		sum, err := hash(b.path)
		if err != nil {
			return err
		}
		ref := "program:" + b.name
		contains = append(contains, ref)
		components = append(components, cdx.Component{BOMRef: ref, Type: cdx.ComponentTypeApplication, Name: b.name, Version: d.version,
			Hashes: &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: sum}}, Licenses: spdx([]string{"Apache-2.0"}),
			Properties: &[]cdx.Property{{Name: "go:version", Value: b.info.GoVersion}}})
	}
	for _, part := range parts {
		refs[part.name] = part.purl
		c := cdx.Component{BOMRef: part.purl, Type: cdx.ComponentTypeLibrary, Name: part.name, Version: part.version, PackageURL: part.purl, Scope: cdx.ScopeRequired, Licenses: spdx(part.licences)}
		if part.sum != "" {
			c.Properties = &[]cdx.Property{{Name: "go:sum", Value: part.sum}}
		}
		components = append(components, c)
	}
	bom.Components = &components
	for _, b := range programs {
		on := []string{refs["std"]}
		for _, module := range b.info.Deps {
			on = append(on, refs[module.Path])
		}
		if b.program == gateway {
			on = append(on, refs["htmx.org"])
		}
		depends = append(depends, cdx.Dependency{Ref: "program:" + b.name, Dependencies: &on})
	}
	depends = append(depends, cdx.Dependency{Ref: root.BOMRef, Dependencies: &contains})
	bom.Dependencies = &depends

	var body bytes.Buffer
	encode := func() error {
		body.Reset()
		return cdx.NewBOMEncoder(&body, cdx.BOMFileFormatJSON).SetPretty(true).SetEscapeHTML(false).EncodeVersion(bom, bom.SpecVersion)
	}
	if err := encode(); err != nil {
		return err
	}
	// A UUID as of RFC 9562, version 8, out of the content: the same bill has the same number.
	id := sha256.Sum256(body.Bytes())
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80
	bom.SerialNumber = fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", id[0:4], id[4:6], id[6:8], id[8:10], id[10:16])
	if err := encode(); err != nil {
		return err
	}
	return os.WriteFile(to, body.Bytes(), 0o644)
}

// escaped is a version in a purl.
func escaped(version string) string { return strings.ReplaceAll(version, "+", "%2B") }

func spdx(ids []string) *cdx.Licenses {
	var list cdx.Licenses
	for _, id := range ids {
		list = append(list, cdx.LicenseChoice{License: &cdx.License{ID: id}})
	}
	return &list
}

func hash(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}

// sums writes SHA256SUMS, as sha256sum -c reads it, about each file of the directory.
func sums(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	for _, entry := range entries {
		sum, err := hash(filepath.Join(dir, entry.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s  %s\n", sum, entry.Name())
	}
	return os.WriteFile(filepath.Join(dir, "SHA256SUMS"), b.Bytes(), 0o644)
}
