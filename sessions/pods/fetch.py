"""The fixed shell text of the init container that fetches a bundle from the runner; pure.

It needs of its image what busybox has: sh, wget and tar. The URL, which holds the token, reaches it
as a variable, paths reach it as arguments; nothing of a session is ever part of the text.
"""

FETCH_CONTAINER = "body-fetch"
URL_VARIABLE = "BUNDLE_URL"

# Its arguments: where to keep the archive meanwhile, target folder, termination log.
#
# Only options that GNU's wget and busybox's both take: quiet, one try. NB: not -T, which busybox
# 1.35 dies of; where there is a `timeout`, as in busybox, it bounds a try (by 124 or 143, GNU's and
# busybox's). The archive is kept in a file, for a pipe would hide how wget ended. What wget says
# about a failure may quote the URL or an address of the operator's: it is told in our words.
#
# A transfer that breaks off spends nothing, so it is tried again for as long as a runner takes to
# restart, but only once more after a try that had no answer, or where GNU's wget tells (by 8) that
# the server refused. A 404 is final where wget tells of it. All of it is well within the start's
# deadline. Unpacking is as in `sessions.pods.script`.
FETCH_SCRIPT = """\
archive=$1 target=$2 notes=$3
give_up() {
  echo "$1" >&2
  if [ -w "$notes" ]; then echo "$1" >"$notes"; fi
  exit 1
}
for tool in wget tar; do
  if ! command -v "$tool" >/dev/null 2>&1; then
    give_up "the image (RUNNER_INIT_IMAGE) has no $tool, which fetching a bundle needs"
  fi
done
unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY
bound=
if timeout 1 true 2>/dev/null; then bound='timeout 45'; fi
pause=1
until said=$($bound wget -q -t 1 -O "$archive" "$BUNDLE_URL" 2>&1); do
  case "$? $said" in
    '8 '*) pause=$((pause * 8)) why='it refused' ;;
    '124 '* | '143 '*) pause=$((pause * 8)) why='no answer within 45 s' ;;
    *' 404 '*) pause=32 why='it has none for this token (404)' ;;
    *[Rr]efused*) why='connection refused' ;;
    *'bad address'* | *resolv* | *'not known'*) why='its name cannot be resolved' ;;
    *'timed out'*) why='no answer in time' ;;
    *nreachable*) why='no way to it' ;;
    *) why='the transfer failed' ;;
  esac
  if [ "$pause" -gt 16 ]; then
    give_up "the bundle could not be fetched from the runner (RUNNER_SELF_URL): $why"
  fi
  sleep "$pause"
  pause=$((pause * 2))
done
unset BUNDLE_URL
if ! tar -xzf "$archive" -C "$target" -o -m; then
  give_up 'tar could not unpack the bundle'
fi
rm -f "$archive"
"""
