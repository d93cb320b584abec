#!/usr/bin/env python3
"""A small wget for machines without one: `wget -q -t TRIES -O FILE URL`.

It is started as a script by init containers and is no module to import. It takes busybox's options
as far as a bundle's delivery needs them, tries once, and ends as busybox's does: 0, or 1 with a
sentence on standard error that does not quote the URL. It knows no proxies and no redirects.
"""

import argparse
import http.client
import sys
from typing import BinaryIO
from urllib.parse import urlsplit

READ_BYTES = 65536
HTTP_OK = 200
# Without any byte.
TIMEOUT_SECONDS = 30.0


class Failed(Exception):
    """The file could not be had; the sentence says why."""


def main() -> int:
    """Fetch one file; return the exit code."""
    options = argparse.ArgumentParser(prog="wget", description="Fetch a file by HTTP.")
    options.add_argument("-q", action="store_true", help="say nothing but errors; it always does")
    options.add_argument("-t", type=int, default=1, help="number of tries; always one")
    options.add_argument("-O", default="-", help="where to write; - is standard output")
    options.add_argument("url")
    given = options.parse_args()
    try:
        if given.O == "-":
            fetch(given.url, sys.stdout.buffer)
        else:
            with open(given.O, "wb") as file:
                fetch(given.url, file)
    except (OSError, http.client.HTTPException, Failed, ValueError) as exc:
        sys.stderr.write(f"wget: {_sentence(exc)}\n")
        return 1
    return 0


def fetch(url: str, file: BinaryIO) -> None:
    """Write what is at the URL into the file."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Failed("not an http or https URL")
    is_secure = parts.scheme == "https"
    kind = http.client.HTTPSConnection if is_secure else http.client.HTTPConnection
    connection = kind(parts.hostname, parts.port, timeout=TIMEOUT_SECONDS)
    target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    try:
        connection.request("GET", target, headers={"connection": "close", "user-agent": "Wget"})
        response = connection.getresponse()
        if response.status != HTTP_OK:
            said = f"HTTP/1.1 {response.status} {response.reason}"
            raise Failed(f"server returned error: {said}")
        while piece := response.read(READ_BYTES):
            file.write(piece)
        # Reading in pieces, http.client takes a connection that was closed early for an end.
        if response.length:
            raise Failed("connection closed prematurely")
    finally:
        connection.close()


def _sentence(failure: Exception) -> str:
    if isinstance(failure, TimeoutError):
        return "download timed out"
    if isinstance(failure, (OSError, Failed)):
        return str(failure)
    return type(failure).__name__


if __name__ == "__main__":
    sys.exit(main())
