// Command packaging makes what users install, out of a checkout: make dist runs it.
//
// For each platform (Linux and macOS, amd64 and arm64) it builds static programs and puts them into archives: all of
// Lockkeeper, and lockctl alone. Each archive is a tree that unpacks into a prefix such as /usr/local. From the same
// trees come Debian and RPM packages, and from deploy/helm the chart. A software bill of materials (CycloneDX) stands
// beside each archive, and SHA256SUMS names every file.
//
// It promises that the same commit, version and Go toolchain give the same bytes: in any directory, under any user,
// time zone and umask. Nothing of the machine gets in: the build has no paths and no build id of the directory, each
// date is the commit's, owners are root, orders are sorted. VERSION and SOURCE_DATE_EPOCH replace what git says, for a
// source tree without git.
//
// It refuses a version that is not semantic, a linked module without a licence that it knows, and a platform that it
// does not know. The output directory appears whole or not at all. It fetches nothing but Go modules.
package main
