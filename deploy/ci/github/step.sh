#!/usr/bin/env bash
# What action.yml runs: installs lockctl, asks GitHub for the job's identity, and runs the commands under the lock. It ends
# with their exit code, or with one of lockctl run.
set -euo pipefail

fail() { # error, hint
	printf '::error title=Lockkeeper::%s\n' "$1"
	printf 'hint: %s\n' "$2" >&2
	exit 64
}

lock=$ACTION_LOCK commands=$ACTION_RUN
[ -z "$lock" ] || [ -n "$commands" ] || fail "lock is given, and run is not" "say what to run while the lock is held"
[ -n "$lock" ] || [ -z "$commands" ] || fail "run is given, and lock is not" "name the lock"

if [ -n "$ACTION_RELEASE" ]; then
	installer=$GITHUB_ACTION_PATH/install.sh
	[ -e "$installer" ] || installer=$GITHUB_ACTION_PATH/../../../install.sh
	into=$RUNNER_TEMP/lockkeeper/bin
	LOCKKEEPER_SHA256=$ACTION_SHA256 sh "$installer" --from "$ACTION_RELEASE" --only lockctl --into "$into" | sed -n 1p
	echo "$into" >>"$GITHUB_PATH"
	PATH=$into:$PATH
fi
command -v lockctl >/dev/null || fail "lockctl is not on this runner" "give release, the directory of a release"

[ -z "$ACTION_URL" ] || export LOCKKEEPER_URL=$ACTION_URL
if [ -n "$ACTION_TOKEN" ] && [ -n "$ACTION_AUDIENCE" ]; then
	fail "token and audience are both given" "choose one of them"
elif [ -n "$ACTION_TOKEN" ]; then
	export LOCKKEEPER_TOKEN=$ACTION_TOKEN
elif [ -n "$ACTION_AUDIENCE" ] && [ -n "$lock" ]; then
	[ -n "${ACTIONS_ID_TOKEN_REQUEST_URL:-}" ] || fail "the job has no identity" "add to the job: permissions: {id-token: write, contents: read}"
	# The credential for it is no argument, which others on the runner could see.
	answer=$(curl -fsS --retry 3 --get --data-urlencode "audience=$ACTION_AUDIENCE" -H @- "$ACTIONS_ID_TOKEN_REQUEST_URL" \
		<<<"Authorization: bearer $ACTIONS_ID_TOKEN_REQUEST_TOKEN") || fail "GitHub gave no identity for the audience $ACTION_AUDIENCE" "see the message above"
	LOCKKEEPER_TOKEN=$(sed -n 's/.*"value" *: *"\([^"]*\)".*/\1/p' <<<"$answer")
	[ -n "$LOCKKEEPER_TOKEN" ] || fail "GitHub's answer has no identity" "is this GitHub Actions?"
	echo "::add-mask::$LOCKKEEPER_TOKEN"
	export LOCKKEEPER_TOKEN
fi
[ -n "$lock" ] || exit 0

flags=()
[ -z "$ACTION_CA_FILE" ] || flags+=("--ca-file=$ACTION_CA_FILE")
case $ACTION_WAIT in
'') ;;
0) flags+=(--nonblock) ;;
*) flags+=("--wait=$ACTION_WAIT") ;;
esac
[ -z "$ACTION_TTL" ] || flags+=("--ttl=$ACTION_TTL")
[ -z "$ACTION_KILL_AFTER" ] || flags+=("--kill-after=$ACTION_KILL_AFTER")
case $ACTION_SHARED in
true) flags+=(--shared) ;;
false | '') ;;
*) fail "shared must be true or false, and is $ACTION_SHARED" "leave it out for the lock alone" ;;
esac
[ -z "$ACTION_LIMIT" ] || flags+=("--limit=$ACTION_LIMIT")
[ -z "$ACTION_PERMITS" ] || flags+=("--permits=$ACTION_PERMITS")
[ -z "$ACTION_NAMESPACE" ] || flags+=("--ns=$ACTION_NAMESPACE")
[ -z "$ACTION_OWNER" ] || flags+=("--owner=$ACTION_OWNER")
read -r -d '' -a names <<<"$lock" || true # blanks and lines alike

script=$(mktemp "$RUNNER_TEMP/lockkeeper-step.XXXXXX")
trap 'rm -f "$script"' EXIT
printf '%s\n' "$commands" >"$script"
# What is run has the environment of a step, and no identity.
unset "${!ACTION_@}" ACTIONS_ID_TOKEN_REQUEST_URL ACTIONS_ID_TOKEN_REQUEST_TOKEN
code=0
lockctl run "${flags[@]}" "${names[@]}" -- bash --noprofile --norc -eo pipefail "$script" || code=$?
case $code in
75) echo "::error title=Lockkeeper::$lock was not to be had: others hold it" ;;
76) echo "::error title=Lockkeeper::the lease of $lock was lost, and the commands were stopped" ;;
77) echo "::error title=Lockkeeper::the gateway refuses $lock to this job" ;;
esac
exit "$code"
