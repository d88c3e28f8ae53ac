// Package dockertest holds the rules about the Dockerfile and .dockerignore at the top of the module, and tests that they
// are kept. No container engine is needed: the Dockerfile is read with BuildKit's own parsers, so that it means here what it
// means to docker build, and its build stage is run as it stands, in a copy of the build context, with the Go toolchain
// that runs the tests.
//
// What this cannot show is what only an engine does: that golang:<version> exists in the registry, that the platforms are
// passed in, that the final stage is put together. scripts/image builds the unchanged Dockerfile with buildah and starts
// what comes out.
package dockertest
