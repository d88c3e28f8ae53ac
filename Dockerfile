# check=error=true
#
# The gateway in an image of its own:
#
#   docker build -t lockkeeper --build-arg VERSION=v1.2.3 .
#   docker run -v lockkeeper:/lockkeeper-data -p 127.0.0.1:8080:8080 lockkeeper --insecure
#   docker run -p 127.0.0.1:8080:8080 lockkeeper --zk zk1:2181,zk2:2181,zk3:2181 --insecure
#
# The command line in an image of its own, to be run as it is or copied from (COPY --from=lockctl /lockctl /usr/bin/lockctl). It
# is in the gateway's image, too, for commands in a container that runs: docker exec ... /lockctl ls
#
#   docker build -t lockctl --target lockctl --build-arg VERSION=v1.2.3 .
#   docker run -e LOCKKEEPER_URL=https://locks.example.com lockctl ls
#
# --insecure is never set in here. Every client that reaches the gateway may take and end locks, so the operator says that
# this is meant, and -p says who can reach it. Without the flag the gateway refuses to start, and says why.

# The toolchain runs on the machine that builds and compiles for the platform that is asked for; nothing is emulated.
FROM --platform=$BUILDPLATFORM golang:1.26.8-alpine AS build
WORKDIR /src
# No "go mod download" first: it would fetch what the tests and the tools need too. The caches keep what was fetched.
COPY . .
ARG TARGETOS
ARG TARGETARCH
ARG VERSION
RUN --mount=type=cache,target=/go/pkg/mod \
    --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -ldflags "-s -w -X 'main.release=$VERSION'" -o ./ ./cmd/gateway ./cmd/lockctl
# What a new volume of the data directory begins as: an empty directory of the gateway's own.
RUN mkdir -m 700 /lockkeeper-data

FROM scratch AS lockctl
ARG VERSION
LABEL org.opencontainers.image.title="lockctl" \
      org.opencontainers.image.description="Locks of a Lockkeeper gateway, on the command line" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION"
COPY LICENSE /LICENSE
COPY --from=build /src/lockctl /lockctl
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
USER 65532:65532
ENTRYPOINT ["/lockctl"]

# scratch rather than distroless/static: the gateway knows no time zone but UTC, looks up no user and writes no file but
# its own data, so of what distroless adds only one file is needed.
FROM scratch
ARG VERSION
LABEL org.opencontainers.image.title="Lockkeeper" \
      org.opencontainers.image.description="Locks over HTTP, held on ZooKeeper: its own or yours" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION"
COPY LICENSE /LICENSE
COPY --from=build /src/gateway /gateway
COPY --from=build /src/lockctl /lockctl
# The authorities that it trusts when it delivers to webhooks, and asks other gateways, at https:// addresses.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
# Where a gateway without --zk keeps everything: ./lockkeeper-data, as everywhere. A variable for it would contradict --zk.
COPY --from=build --chown=65532:65532 /lockkeeper-data /lockkeeper-data
VOLUME ["/lockkeeper-data"]
# Numeric, so that Kubernetes can see that it is not root; the number is distroless' "nonroot".
USER 65532:65532
# A container's loopback cannot be reached from outside. A variable and not a flag, because the health check reads it too: set
# the variable for another port.
ENV LOCKKEEPER_LISTEN=:8080
EXPOSE 8080
# /healthz: red means that a restart would help. It does not help against an outage of ZooKeeper; that is /readyz.
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s --retries=3 CMD ["/gateway", "healthcheck"]
ENTRYPOINT ["/gateway"]
