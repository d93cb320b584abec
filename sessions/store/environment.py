"""Session env and bundle tokens at rest: sealed by the process's keys before they reach a row."""

from collections.abc import Mapping

import orjson

from telorunner.sealing import seal, unseal


def seal_env(env: Mapping[str, str]) -> bytes:
    """Return env as the row keeps it; empty stays empty."""
    if not env:
        return b""
    return seal(orjson.dumps(dict(env)))


def open_env(sealed: bytes) -> dict[str, str]:
    """Return what `seal_env()` sealed.

    Raises:
        secretbox.CannotOpen: None of the keys opens it.
    """
    if not sealed:
        return {}
    opened: dict[str, str] = orjson.loads(unseal(sealed))
    return opened


def seal_token(token: str) -> bytes:
    """Return a bundle's token as the row keeps it."""
    return seal(token.encode())


def open_token(sealed: bytes) -> str:
    """Return what `seal_token()` sealed.

    Raises:
        secretbox.CannotOpen: None of the keys opens it.
    """
    return unseal(sealed).decode()
