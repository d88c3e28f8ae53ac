#!/bin/sh
# Installs Lockkeeper's programs from a release (docs/operate/install.md). Everything is in functions, so that a script
# that was cut while it was downloaded does nothing.

usage() {
	cat <<'END'
Installs Lockkeeper's programs: finds the archive for this machine in a release, checks its SHA-256, and puts the
programs into a directory. Nothing is touched before the checksum fits, and each program is replaced in one step.

  sh install.sh --from URL [--into DIR] [--only lockctl] [--sha256 HEX]

  --from URL      the directory of a release, with SHA256SUMS in it: https://, http:// or file:// (LOCKKEEPER_RELEASE)
  --into DIR      where the programs go; /usr/local/bin for root, else ~/.local/bin, unless given (LOCKKEEPER_INTO)
  --only lockctl  lockctl alone, without the gateway (LOCKKEEPER_ONLY)
  --sha256 HEX    what the archive's checksum must be, when you have it from elsewhere (LOCKKEEPER_SHA256). SHA256SUMS
                  lies beside the archive: it shows a broken download, and not a forged release.

Exit codes: 0 installed, 64 usage, 65 a checksum or an archive is wrong, 69 something is missing, 73 the directory
cannot be written.
END
}

fail() { # exit code, error, hint
	printf 'error: %s\nhint: %s\n' "$2" "$3" >&2
	exit "$1"
}

has() { command -v "$1" >/dev/null 2>&1; }

arguments() {
	from=${LOCKKEEPER_RELEASE:-} into=${LOCKKEEPER_INTO:-} only=${LOCKKEEPER_ONLY:-} pinned=${LOCKKEEPER_SHA256:-}
	while [ $# -gt 0 ]; do
		case "$1" in
		-h | --help)
			usage
			exit 0
			;;
		--from | --into | --only | --sha256)
			[ $# -ge 2 ] || fail 64 "$1 needs a value" "sh install.sh --help"
			case "$1" in
			--from) from=$2 ;;
			--into) into=$2 ;;
			--only) only=$2 ;;
			--sha256) pinned=$2 ;;
			esac
			shift 2
			;;
		*) fail 64 "unknown argument: $1" "sh install.sh --help" ;;
		esac
	done
	from=${from%/}
	case "$from" in
	https://?* | http://?* | file:///?*) ;;
	'') fail 64 "it is not said where the release is" "add --from URL, the directory that has SHA256SUMS" ;;
	*) fail 64 "--from must begin with https://, http:// or file:///, and is $from" "for example --from https://example.com/lockkeeper/v1.2.3" ;;
	esac
	case "$only" in
	'') product=lockkeeper programs='lockkeeper lockctl' ;;
	lockctl) product=lockctl programs=lockctl ;;
	*) fail 64 "--only must be lockctl, and is $only" "leave it out for the gateway and lockctl" ;;
	esac
	if [ -z "$into" ]; then
		if [ "$(id -u)" = 0 ]; then into=/usr/local/bin; else into=${HOME:?}/.local/bin; fi
	fi
	case "$into" in /*) ;; *) into=$PWD/$into ;; esac
}

platform() {
	build='build it from source: go build ./cmd/gateway ./cmd/lockctl'
	system=$(uname -s) processor=$(uname -m)
	case "$system" in
	Linux) os=linux ;;
	Darwin)
		os=darwin
		# A shell that Rosetta translates says x86_64.
		[ "$(sysctl -n hw.optional.arm64 2>/dev/null)" != 1 ] || processor=arm64
		;;
	*) fail 69 "there is no release for $system" "$build" ;;
	esac
	case "$processor" in
	x86_64 | amd64) arch=amd64 ;;
	aarch64 | arm64) arch=arm64 ;;
	*) fail 69 "there is no release for the processor $processor" "$build" ;;
	esac
}

# tools defines get URL FILE and sum FILE by what is there.
tools() {
	for tool in tar gzip mktemp; do
		has "$tool" || fail 69 "$tool is missing" "install it"
	done
	if has sha256sum; then
		sum() { sha256sum <"$1"; }
	elif has shasum; then
		sum() { shasum -a 256 <"$1"; }
	else
		fail 69 "neither sha256sum nor shasum is there" "install coreutils"
	fi
	if has curl; then
		# A redirect from https to anything else is refused.
		protocols='=https,http,file'
		case "$from" in https://*) protocols='=https' ;; esac
		get() { curl -fsSL --proto "$protocols" --proto-redir "$protocols" --retry 3 --connect-timeout 20 -o "$2" "$1"; }
	elif has wget && [ "${from#file:}" = "$from" ]; then
		get() { wget -q -T 60 -O "$2" "$1"; }
	else
		fail 69 "curl is missing" "install curl"
	fi
}

cleanup() {
	rm -rf "$work"
	for program in $programs; do
		rm -f "$into/.$program.$$"
	done
}

# download leaves the checked programs in $tree/bin.
download() {
	get "$from/SHA256SUMS" "$work/SHA256SUMS" || fail 69 "cannot download $from/SHA256SUMS" "is this the directory of a release?"
	# The name has the version in it, which the list says: one line fits.
	line=$(sed -n "s/^\([0-9a-f]\{64\}\)  \($product-[0-9][0-9A-Za-z.+-]*-$os-$arch\.tar\.gz\)\$/\1 \2/p" "$work/SHA256SUMS")
	case "$line" in
	'') fail 69 "the release at $from has no $product for $os-$arch" "SHA256SUMS there lists what it has" ;;
	*' '*' '*) fail 65 "SHA256SUMS names several archives of $product for $os-$arch" "give the directory of one release" ;;
	esac
	listed=${line%% *} archive=${line#* }
	if [ -n "$pinned" ] && [ "$pinned" != "$listed" ]; then
		fail 65 "the checksum of $archive is $listed, and --sha256 is $pinned" "nothing was changed; is it the same release, and a checksum for $os-$arch? If so, do not use this release"
	fi
	get "$from/$archive" "$work/$archive" || fail 69 "cannot download $from/$archive" "nothing was changed; try again"
	found=$(sum "$work/$archive")
	found=${found%% *}
	[ "$found" = "$listed" ] || fail 65 "the checksum of $archive is $found, and must be $listed" "nothing was changed; the download is broken, or the release is"
	(cd "$work" && tar -xzf "$archive") || fail 65 "$archive cannot be unpacked" "nothing was changed"
	tree=$work/${archive%.tar.gz}
	for program in $programs; do
		[ -x "$tree/bin/$program" ] || fail 65 "$archive has no $program" "nothing was changed"
	done
	version=$("$tree/bin/lockctl" --version) ||
		fail 69 "lockctl does not run here" "nothing was changed; if ${TMPDIR:-/tmp} is mounted with noexec, set TMPDIR to another directory"
}

# replace puts the programs beside their places first. A program that runs goes on with its old file.
replace() {
	hint='nothing was changed; choose another directory with --into, or run this as root'
	mkdir -p "$into" || fail 73 "cannot make $into" "$hint"
	for program in $programs; do
		if [ -d "$into/$program" ] || ! cp "$tree/bin/$program" "$into/.$program.$$" || ! chmod 755 "$into/.$program.$$"; then
			fail 73 "cannot write $into/$program" "$hint"
		fi
	done
	for program in $programs; do
		mv -f "$into/.$program.$$" "$into/$program" || fail 73 "cannot write $into/$program" "see the message above"
	done
}

next() {
	echo "installed $version in $into: $programs"
	case ":$PATH:" in
	*":$into:"*) ;;
	*) printf 'put the directory into PATH:\n\n  export PATH="%s:$%s"\n\n' "$into" PATH ;;
	esac
	if [ "$product" = lockkeeper ]; then
		printf 'start a gateway, and run a command under a lock:\n\n  lockkeeper --data-dir "$%s/lockkeeper-data" &\n' HOME
	else
		printf 'say where the gateway is, and run a command under a lock:\n\n  export LOCKKEEPER_URL=https://locks.example.com\n'
	fi
	printf '  lockctl run hello -- echo "under the lock"\n'
}

main() {
	set -eu
	umask 022
	arguments "$@"
	platform
	tools
	work=$(mktemp -d "${TMPDIR:-/tmp}/lockkeeper-install.XXXXXX")
	trap cleanup EXIT
	trap 'exit 129' HUP
	trap 'exit 130' INT
	trap 'exit 143' TERM
	download
	replace
	next
}

main "$@"
