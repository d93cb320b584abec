"""The fixed shell text that a container with inline delivery starts with; pure.

It unpacks the bundle, waits for its terminal and becomes the command line given as its arguments.
Nothing of a session is ever part of it.
"""

# Where a container may leave the sentence that the kubelet reports as its termination message.
# Source: https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/
TERMINATION_LOG = "/dev/termination-log"

# What the text prints right before the application where its gate was opened by an attach: nothing
# was printed before it. An application program command, which no terminal shows; the runner takes
# it away. Source: ECMA-48, 8.3.2 (APC) and 5.6 (command strings).
START_MARK = b"\x1b_telo-gate\x1b\\"

# The fixed text. Its arguments: archive, target folder, termination log, then the command line.
#
# The archive is unpacked without owners and times, as user 1000 may set neither on the target.
# The wait is the start gate: a terminal has no size until somebody has attached and sent one, so
# nothing is printed before the attach is there. 75 rounds of 20 ms and two short processes each
# come to about 2 s; unattended, without stty or without a terminal the application just starts,
# and as the mark is missing then, whoever attaches knows that there may have been output before.
# busybox's `stty size` fails while there is no size, that of coreutils prints `0 0`.
START_SCRIPT = """\
archive=$1 target=$2 notes=$3
shift 3
give_up() {
  echo "$1" >&2
  if [ -w "$notes" ]; then echo "$1" >"$notes"; fi
  exit 127
}
if ! command -v tar >/dev/null 2>&1; then
  give_up 'the image has no tar, which inline delivery (RUNNER_BUNDLE_DELIVERY) needs'
fi
if ! tar -xzf "$archive" -C "$target" -o -m; then
  give_up 'tar could not unpack the bundle (delivered as RUNNER_BUNDLE_DELIVERY says)'
fi
if ! command -v "$1" >/dev/null 2>&1; then
  give_up "the image has no $1 command"
fi
if [ -t 0 ] && command -v stty >/dev/null 2>&1; then
  rounds=75
  while [ "$rounds" -gt 0 ]; do
    case "$(stty size 2>/dev/null)" in
      '' | '0 0') sleep 0.02; rounds=$((rounds - 1)) ;;
      *)
        printf '\\033_telo-gate\\033\\\\'
        rounds=0
        ;;
    esac
  done
fi
exec "$@"
"""
