"""The certificates of public hosts: chosen by the name that a client asks for, read from Secrets.

A host without one is shown the ingress's own, which no client takes for that host's. A Secret that
changes counts from the next connection on; its key is never written to a disk.
"""

import base64
import logging
import os
import ssl
from collections.abc import Callable
from typing import Any

from telorunner.localcluster.ingress.table import SecretName, Table, normal_host
from telorunner.localcluster.store import Store

logger = logging.getLogger(__name__)

_MAX_KEPT = 256
_PROTOCOLS = ("http/1.1",)


class UnusableSecret(Exception):
    """A Secret that holds no certificate with its key; the text says what is wrong."""


class Certificates:
    """The TLS contexts of a cluster's hosts."""

    def __init__(self, store: Store, table: Callable[[], Table], own: ssl.SSLContext) -> None:
        """Choose for connections on `own`, which has the ingress's own certificate."""
        self._store = store
        self._table = table
        self._kept: dict[SecretName, tuple[dict[str, Any], ssl.SSLContext | None]] = {}
        own.set_alpn_protocols(_PROTOCOLS)
        own.sni_callback = self._choose

    def _choose(
        self, connection: ssl.SSLObject | ssl.SSLSocket, name: str | None, _: ssl.SSLContext
    ) -> None:
        """Give a new connection the certificate of the host that it is for."""
        secret = self._table().secret_for(normal_host(name or ""))
        context = None if secret is None else self._context(secret)
        if context is not None:
            connection.context = context

    def _context(self, name: SecretName) -> ssl.SSLContext | None:
        secret = self._store.find("secrets", name.namespace, name.name)
        if secret is None:
            return None
        kept = self._kept.get(name)
        # A snapshot of the store never changes: another version is another object.
        if kept is not None and kept[0] is secret:
            return kept[1]
        context = None
        try:
            context = load_secret(secret)
        except UnusableSecret as exc:
            logger.warning("The Secret %s/%s: %s", name.namespace, name.name, exc)
        if len(self._kept) >= _MAX_KEPT:
            self._kept.clear()
        self._kept[name] = (secret, context)
        return context


def load_secret(secret: dict[str, Any]) -> ssl.SSLContext:
    """Return a context with the certificate of a Secret.

    Raises:
        UnusableSecret: It holds none, or not its key.
    """
    data = secret.get("data") or {}
    try:
        parts = [base64.b64decode(data[field], validate=True) for field in ("tls.key", "tls.crt")]
    except (KeyError, TypeError, ValueError) as exc:
        raise UnusableSecret("it must have tls.crt and tls.key.") from exc
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(_PROTOCOLS)
    # OpenSSL takes them from files only: this one is memory, and goes with its descriptor.
    descriptor = os.memfd_create("certificate")
    with os.fdopen(descriptor, "wb") as file:
        file.write(b"\n".join(parts))
        file.flush()
        try:
            # A key with a password would be asked for at the terminal.
            context.load_cert_chain(f"/proc/self/fd/{descriptor}", password="")
        except (OSError, ValueError) as exc:
            raise UnusableSecret("tls.crt and tls.key are no certificate and its key.") from exc
    return context
