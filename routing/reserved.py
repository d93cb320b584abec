"""Answers the reserved paths: the other end of a probe; pure.

Anybody may ask. Only who knows a host's key, which stands in that host's route, gets an answer, and
it says nothing but that a runner with this secret gave it.
"""

import hmac
import re

from routing.routes import PROOF_HEADER, WELL_KNOWN, ProbePath

_NONCE = re.compile(r"(?P<key>[a-z2-7]{26})/[A-Za-z0-9_-]{1,64}", re.ASCII)

Answer = tuple[bytes, list[tuple[str, str]]]


def answer_reserved(path: ProbePath, host: str, target: str) -> Answer | None:
    """Return body and headers of the answer, which is a 200; None: it is no host's path.

    Args:
        path: How keys and proofs are made.
        host: The request's Host header, as it came: with any port, in any case.
        target: The request's path, without its query.
    """
    prefix, separator, nonce = target.partition(f"{WELL_KNOWN}/")
    match = _NONCE.fullmatch(nonce)
    if prefix or not separator or match is None or not host.isascii():
        return None
    name = host.lower().partition(":")[0]
    if not hmac.compare_digest(path.key(name), match["key"]):
        return None
    headers = [
        ("Content-Type", "text/plain; charset=utf-8"),
        ("Cache-Control", "no-store"),
        (PROOF_HEADER, path.proof(name, nonce)),
    ]
    return nonce.encode(), headers
