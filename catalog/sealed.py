"""An app's env at rest: each value sealed by itself, so that one can be kept while another changes.

The names are no secrets. A sealed value is text, and means nothing without the secret key.
"""

from collections.abc import Mapping

from telorunner.sealing import seal, unseal


def seal_value(value: str) -> str:
    """Return a value as the row keeps it."""
    return seal(value.encode()).decode("ascii")


def open_values(sealed: Mapping[str, str]) -> dict[str, str]:
    """Return what was sealed.

    Raises:
        secretbox.CannotOpen: A value was sealed with a key that is gone, or was changed.
    """
    return {name: unseal(value.encode("ascii")).decode() for name, value in sealed.items()}
