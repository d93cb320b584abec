"""The first program of every container process: it makes itself ready, then becomes the command.

It is started as a script by `process.start`, isolated and without site-packages, and is no module
to import. A program of its own, because what has to happen between fork and exec must not happen
in a copy of a process that has threads.

It reads, until end of file on the socket that its first argument numbers, a marshalled tuple of
command line, environment, working directory and whether standard input is the terminal to be
controlled by. Nothing is answered when the command runs; else the error number.
"""

import ctypes
import fcntl
import marshal
import os
import signal
import sys
import termios

PR_SET_PDEATHSIG = 1  # Source: linux/prctl.h
READ_BYTES = 65536
EXIT_CODE = 127


def main() -> None:
    """Become the command that the socket names."""
    channel, parent = int(sys.argv[1]), int(sys.argv[2])
    pieces = []
    while piece := os.read(channel, READ_BYTES):
        pieces.append(piece)
    order = marshal.loads(b"".join(pieces))  # noqa: S302 - our parent wrote it
    (path, argv), env, working_dir, has_terminal = order
    # No container outlives its cluster, however that ends.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(EXIT_CODE)
    if has_terminal:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    # Python ignores SIGPIPE, and a shell's background job SIGINT: neither is the command's choice.
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        try:
            signal.signal(number, signal.SIG_DFL)
        except (OSError, ValueError):
            continue  # Reserved by the C library.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.set_inheritable(channel, False)
    try:
        os.chdir(working_dir)
        os.execve(path, argv, env)  # noqa: S606 - this is what the program is for
    except OSError as exc:
        os.write(channel, str(exc.errno).encode())
    os._exit(EXIT_CODE)


if __name__ == "__main__":
    main()
