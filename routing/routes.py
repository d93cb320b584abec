"""What a session publishes, and the names that come of it: hosts, objects, reserved paths; pure."""

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from telorunner.values.publichost import hostname

__all__ = [
    "PROOF_HEADER",
    "WELL_KNOWN",
    "Layer",
    "ProbeBackend",
    "ProbePath",
    "RoutedPort",
    "SessionRoutes",
    "hostname",
    "object_name",
    "route_name",
    "url",
]

# Below it each host has a path of its own, which its route sends to the runner.
WELL_KNOWN = "/.well-known/telo-route"
PROOF_HEADER = "Telo-Route-Proof"

# 130 bits in base32: nobody guesses it, and it is no longer than it has to be.
_KEY_CHARACTERS = 26


class Layer(StrEnum):
    """What carries requests from outside to a session."""

    NONE = "none"
    INGRESS = "ingress"
    GATEWAY = "gateway"


@dataclass(frozen=True)
class RoutedPort:
    """A port that an application listens on; only tcp ports have a public host."""

    port: int
    is_tcp: bool = True


@dataclass(frozen=True)
class SessionRoutes:
    """What one session publishes.

    `labels` are those of all its objects, and `owner` is the ownerReference of its Pod, with which
    they vanish.
    """

    session_id: str
    labels: Mapping[str, str]
    owner: Mapping[str, str]
    ports: tuple[RoutedPort, ...]

    @property
    def tcp_ports(self) -> tuple[int, ...]:
        """The numbers of the tcp ports, in their order and each once."""
        return tuple(dict.fromkeys(port.port for port in self.ports if port.is_tcp))


@dataclass(frozen=True)
class ProbePath:
    """The reserved path of each host, and the proof that an answer from it is the runner's.

    The key is in that host's own route and nowhere else: neither another session's route nor an
    application answers for it. Whoever knows `secret` can forge both.
    """

    secret: bytes = field(repr=False)

    def key(self, host: str) -> str:
        """Return the first element of a host's reserved path: 26 characters of base32."""
        return base64.b32encode(self._sign(host)).decode()[:_KEY_CHARACTERS].lower()

    def prefix(self, host: str) -> str:
        """Return the path that a host's route sends to the runner, with all that is below it."""
        return f"{WELL_KNOWN}/{self.key(host)}"

    def proof(self, host: str, nonce: str) -> str:
        """Return what the header of an answer holds: that the runner answered for this host."""
        # NB: no host has a line feed in it, so that no key is ever a proof.
        return self._sign(f"{host}\n{nonce}").hex()

    def _sign(self, text: str) -> bytes:
        return hmac.new(self.secret, text.encode(), hashlib.sha256).digest()


@dataclass(frozen=True)
class ProbeBackend:
    """The Service behind which the runner answers the reserved paths, in the routes' namespace."""

    service_name: str
    port: int
    path: ProbePath


def url(host: str) -> str:
    """Return the public URL of a host."""
    return f"https://{host}"


def object_name(session_id: str) -> str:
    """Return the name of a session's Service and of its Ingress."""
    return f"telo-run-{session_id}"


def route_name(session_id: str, port: int) -> str:
    """Return the name of the HTTPRoute of one port."""
    return f"{object_name(session_id)}-{port}"


def metadata(routes: SessionRoutes, name: str) -> dict[str, Any]:
    """Return the metadata of one of a session's objects."""
    return {"name": name, "labels": dict(routes.labels), "ownerReferences": [dict(routes.owner)]}
