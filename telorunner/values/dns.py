"""DNS names as Kubernetes and the contract take them; pure.

Source: RFC 1123, section 2.1; https://kubernetes.io/docs/concepts/overview/working-with-objects/names/
"""

import re

MAX_LABEL_LENGTH = 63
_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?", re.ASCII)


def is_dns_label(text: str, max_length: int = MAX_LABEL_LENGTH) -> bool:
    """Tell whether the text is one lower-case DNS label of at most `max_length` characters."""
    return len(text) <= max_length and _LABEL.fullmatch(text) is not None
