"""Session env and bundle tokens at rest: sealed by the process's keys before they reach a row."""

from collections.abc import Mapping

import orjson
from django.conf import settings

from telorunner import secretbox


def _keys() -> list[str]:
    return [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]


def seal_env(env: Mapping[str, str]) -> bytes:
    """Return env as the row keeps it; empty stays empty."""
    if not env:
        return b""
    return secretbox.seal(orjson.dumps(dict(env)), _keys())


def open_env(sealed: bytes) -> dict[str, str]:
    """Return what `seal_env()` sealed.

    Raises:
        secretbox.CannotOpen: None of the keys opens it.
    """
    if not sealed:
        return {}
    opened: dict[str, str] = orjson.loads(secretbox.open(sealed, _keys()))
    return opened


def seal_token(token: str) -> bytes:
    """Return a bundle's token as the row keeps it."""
    return secretbox.seal(token.encode(), _keys())


def open_token(sealed: bytes) -> str:
    """Return what `seal_token()` sealed.

    Raises:
        secretbox.CannotOpen: None of the keys opens it.
    """
    return secretbox.open(sealed, _keys()).decode()
