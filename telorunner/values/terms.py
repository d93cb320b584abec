"""Usage terms: what their version is made of, and how it may be written; pure."""

import hashlib
import re

# It travels in a header, where several values would be joined by commas.
_VERSION = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?", re.ASCII)
_DERIVED_LENGTH = 12


def normalise(body: str) -> str:
    """Return a body with LF line ends, however a browser or a file wrote them."""
    return body.replace("\r\n", "\n").replace("\r", "\n")


def derive_version(body: str) -> str:
    """Return the version of a text that was given none: the first 12 hex of its sha256."""
    return hashlib.sha256(normalise(body).encode()).hexdigest()[:_DERIVED_LENGTH]


def version_problem(version: str) -> str:
    """Return what is wrong with a version that was given; empty: nothing."""
    if version and _VERSION.fullmatch(version) is None:
        return "must be letters, digits, '.', '_' and '-', at most 64, first and last no sign"
    return ""
