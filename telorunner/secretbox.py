"""Encryption at rest for whatever is kept and may be secret, such as variables and tokens.

Keys are derived from Django's secret keys, which are passed in: the first one seals, any of them
opens. It knows no Django and keeps nothing.
"""

import base64
from collections.abc import Sequence

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from telorunner.errors import RunnerError

# Binds the derived keys to this one use of the secret key.
_PURPOSE = b"telorunner.secretbox.v1"
_KEY_BYTES = 32


class CannotOpen(RunnerError):
    """What was sealed cannot be opened: it was changed, or the secret key was."""


def seal(plaintext: bytes, secret_keys: Sequence[str]) -> bytes:
    """Encrypt and authenticate with the first of the keys.

    Source: https://github.com/fernet/spec/blob/master/Spec.md
    """
    return _box(secret_keys).encrypt(plaintext)


def open(sealed: bytes, secret_keys: Sequence[str]) -> bytes:
    """Return what was sealed with any of the keys.

    Raises:
        CannotOpen: None of the keys fits, or the bytes were changed.
    """
    try:
        # Database drivers hand out memoryviews, which Fernet does not take.
        return _box(secret_keys).decrypt(bytes(sealed))
    except InvalidToken as exc:
        raise CannotOpen from exc


def _box(secret_keys: Sequence[str]) -> MultiFernet:
    keys = (base64.urlsafe_b64encode(derive(key, _PURPOSE)) for key in secret_keys)
    return MultiFernet([Fernet(key) for key in keys])


def derive(secret_key: str, purpose: bytes) -> bytes:
    """Derive a key of 32 bytes that serves one purpose.

    A secret key is long and random, so no password stretching is needed.

    Source: https://www.rfc-editor.org/rfc/rfc5869
    """
    hkdf = HKDF(algorithm=SHA256(), length=_KEY_BYTES, salt=None, info=purpose)
    return hkdf.derive(secret_key.encode())
