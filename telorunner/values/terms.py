"""Usage terms: what their version is made of, and how it may be written; pure."""

import hashlib
import re

# It travels in a header, where several values would be joined by commas.
MAX_VERSION_LENGTH = 64
_VERSION = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?", re.ASCII)
_DERIVED_LENGTH = 12
# They are part of each answer of /v1/capabilities.
MAX_BODY_LENGTH = 100_000
TOO_LONG = f"must be at most {MAX_BODY_LENGTH} characters long"


def normalise(body: str) -> str:
    """Return a body with LF line ends, however a browser or a file wrote them."""
    return body.replace("\r\n", "\n").replace("\r", "\n")


def derive_version(body: str) -> str:
    """Return the version of a text that was given none: the first 12 hex of its sha256."""
    return hashlib.sha256(normalise(body).encode()).hexdigest()[:_DERIVED_LENGTH]


def body_problem(body: str) -> str:
    """Return what is wrong with a text that is there; empty: nothing."""
    # NB: browsers send two characters for each end of a line, where one was typed.
    if len(normalise(body)) > MAX_BODY_LENGTH:
        return TOO_LONG
    return ""


def version_problem(version: str) -> str:
    """Return what is wrong with a version that was given; empty: nothing."""
    if len(version) > MAX_VERSION_LENGTH or (version and _VERSION.fullmatch(version) is None):
        return (
            f"must be letters, digits, '.', '_' and '-', at most {MAX_VERSION_LENGTH}, first and "
            "last no sign"
        )
    return ""
