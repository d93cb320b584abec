"""The process's own keys: Django's secret key, and the fallbacks of a rotation."""

from django.conf import settings

from telorunner import secretbox


def seal(plaintext: bytes) -> bytes:
    """Encrypt and authenticate with the secret key."""
    return secretbox.seal(plaintext, _keys())


def unseal(sealed: bytes) -> bytes:
    """Return what was sealed with the secret key or one of its fallbacks.

    Raises:
        secretbox.CannotOpen: None of the keys fits, or the bytes were changed.
    """
    return secretbox.open(sealed, _keys())


def derive(purpose: str) -> bytes:
    """Return a key for one purpose, the same in every process that has the secret key."""
    return secretbox.derive(settings.SECRET_KEY, purpose.encode())


def _keys() -> list[str]:
    return [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]
