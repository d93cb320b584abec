"""Where clients reach the ports of a session: the endpoints of `running`; no I/O."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from routing.router import Router
from routing.routes import url
from sessions.spec import Port, SessionSpec
from sessions.states import Protocol, StatusKind
from sessions.store import OwnedSession
from sessions.supervisor.ledger import Ledger

Endpoints = tuple[Mapping[str, Any], ...]


def tcp_ports(spec: SessionSpec) -> tuple[int, ...]:
    """Return the numbers of a session's tcp ports, each once: those that have public hosts."""
    ports = (port for app in spec.apps for port in app.ports)
    return tuple(dict.fromkeys(port.port for port in ports if port.protocol is Protocol.TCP))


def build_endpoints(spec: SessionSpec, router: Router) -> Endpoints:
    """Return `[{"host", "port", "protocol", "url"?}]`; without a public host `host` is empty."""
    hosts = router.hosts(spec.session_id, tcp_ports(spec))
    return tuple(_endpoint(port, hosts) for app in spec.apps for port in app.ports)


def _endpoint(port: Port, hosts: Mapping[int, str]) -> dict[str, Any]:
    host = hosts.get(port.port, "") if port.protocol is Protocol.TCP else ""
    endpoint = {"host": host, **port.to_json()}
    return {**endpoint, "url": url(host)} if host else endpoint


def note_endpoints(row: OwnedSession, router: Router, ledger: Ledger) -> OwnedSession:
    """Return the row with endpoints as they are now, and note them where that changes it.

    The runner that told them first may have published sessions elsewhere, or not at all.
    """
    if row.status is not StatusKind.RUNNING:
        return row
    endpoints = build_endpoints(row.spec, router)
    if endpoints == row.endpoints:
        return row
    ledger.note_endpoints(endpoints)
    return replace(row, endpoints=endpoints)
