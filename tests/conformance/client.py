"""A client of a Kubernetes API that shows answers exactly as they came.

It knows nothing of what is asked or answered; the tests do. It starts no task.
"""

import asyncio
import base64
import io
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import yaml
from multidict import CIMultiDict

# How long a test waits for one answer or one event, on a busy machine.
WAIT_SECONDS = 90.0
READ_BYTES = 64 * 1024

Object = dict[str, Any]
Query = Mapping[str, str]


@dataclass(frozen=True)
class Access:
    """Where a cluster's API is and how an administrator gets in.

    `kind` is "local" or "real".
    """

    kind: str
    url: str
    tls: ssl.SSLContext
    headers: Mapping[str, str]
    anonymous_tls: ssl.SSLContext
    kubeconfig: Path


def read_access(kind: str, kubeconfig: Path, folder: Path) -> Access:
    """Read a kubeconfig that carries its certificates, keys and token inline or as files.

    `folder` gets what Python's TLS takes from files only.
    """
    found = yaml.safe_load(kubeconfig.read_text())
    by_name = {one["name"]: one for one in found["contexts"]}
    context = by_name[found["current-context"]]["context"]
    cluster = _named(found["clusters"], context["cluster"])["cluster"]
    user = _named(found["users"], context["user"])["user"]
    authority = _file(cluster, "certificate-authority", folder)
    tls = ssl.create_default_context(cafile=authority)
    certificate = _file(user, "client-certificate", folder)
    if certificate:
        tls.load_cert_chain(certificate, _file(user, "client-key", folder))
    token = user.get("token")
    if "tokenFile" in user:
        token = Path(user["tokenFile"]).read_text()
    return Access(
        kind=kind,
        url=cluster["server"],
        tls=tls,
        headers={"Authorization": f"Bearer {token}"} if token else {},
        anonymous_tls=ssl.create_default_context(cafile=authority),
        kubeconfig=kubeconfig,
    )


def _named(entries: list[Object], name: str) -> Object:
    return next(one for one in entries if one["name"] == name)


def _file(entry: Object, field: str, folder: Path) -> str | None:
    """Return the path of a PEM file of a kubeconfig, made from its inline form where it has one."""
    inline = entry.get(f"{field}-data")
    if inline is None:
        found: str | None = entry.get(field)
        return found
    path = folder / f"{field}.pem"
    path.write_bytes(base64.b64decode(inline))
    path.chmod(0o600)
    return str(path)


@dataclass(frozen=True)
class Answer:
    """What the API answered: `body` is the JSON, `text` the very bytes."""

    status: int
    headers: CIMultiDict[str]
    text: bytes

    @property
    def body(self) -> Any:
        """Return the JSON of the answer."""
        return orjson.loads(self.text)

    @property
    def warnings(self) -> list[str]:
        """Return the warnings in the headers, in order."""
        return self.headers.getall("Warning", [])


@dataclass(frozen=True)
class Event:
    """One line of a watch: `type` with `object`."""

    type: str
    object: Object

    @property
    def name(self) -> str:
        """Return the name of the object."""
        found: str = self.object["metadata"]["name"]
        return found


class Watch:
    """The events of a watch, in order."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response
        self._rest = b""

    async def next(self) -> Event | None:
        """Return the next event, None where the watch has ended cleanly."""
        async with asyncio.timeout(WAIT_SECONDS):
            # A line may be longer than what readline() takes.
            while b"\n" not in self._rest:
                piece = await self.response.content.read(READ_BYTES)
                if not piece:
                    assert not self._rest, f"cut mid-line: {self._rest[:200]!r}"
                    return None
                self._rest += piece
        line, _, self._rest = self._rest.partition(b"\n")
        found = orjson.loads(line)
        return Event(found["type"], found["object"])

    async def take(self, count: int) -> list[Event]:
        """Return the next `count` events."""
        return [event async for event in self._some(count)]

    async def until(self, type_: str, name: str) -> Event:
        """Return the first event of a type about an object, skipping those before it."""
        while (event := await self.next()) is not None:
            if (event.type, event.object["metadata"].get("name")) == (type_, name):
                return event
        raise AssertionError(f"the watch has ended without {type_} of {name}")

    async def rest(self) -> list[Event]:
        """Return what comes until the watch ends."""
        found = []
        while (event := await self.next()) is not None:
            found.append(event)
        return found

    async def _some(self, count: int) -> AsyncIterator[Event]:
        for _ in range(count):
            event = await self.next()
            assert event is not None, "the watch has ended"
            yield event


@dataclass(frozen=True)
class Api:
    """An administrator's client of one cluster's API; `session` is for what is no plain request.

    Paths begin at the server's root: `/api/v1/namespaces`.
    """

    access: Access
    session: aiohttp.ClientSession

    @property
    def is_real(self) -> bool:
        """Return whether this is a real cluster."""
        return self.access.kind == "real"

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Query | None = None,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Make a request; `body` is JSON to be, or bytes to be sent as they are."""
        sent = dict(headers or {})
        encoded = body if isinstance(body, bytes | None) else orjson.dumps(body)
        data = None if encoded is None else io.BytesIO(encoded)
        if data is not None:
            sent.setdefault("Content-Type", content_type)
        async with (
            asyncio.timeout(WAIT_SECONDS),
            self.session.request(
                method, path, data=data, headers=sent, params=query or {}
            ) as response,
        ):
            text = await response.read()
            return Answer(response.status, response.headers.copy(), text)

    async def ask(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        """Make a request that must succeed and return the JSON of its answer."""
        answer = await self.request(method, path, body, **options)
        assert answer.status < 300, f"{method} {path}: {answer.status} {answer.text[:800]!r}"
        return answer.body

    @asynccontextmanager
    async def watch(self, path: str, **query: str) -> AsyncIterator[Watch]:
        """Open a watch; it must be answered with 200."""
        params = {"watch": "1", **query}
        async with self.session.get(path, params=params) as response:
            assert response.status == 200, await response.text()
            try:
                yield Watch(response)
            finally:
                # A farewell of TLS may take longer than the test's loop lives.
                if response.connection is not None and response.connection.transport is not None:
                    response.connection.transport.abort()

    async def until_gone(self, path: str, name: str) -> None:
        """Wait until no object of that name is in the collection at `path`."""
        found = await self.ask("GET", path, query={"fieldSelector": f"metadata.name={name}"})
        if not found["items"]:
            return
        version = found["metadata"]["resourceVersion"]
        selector = f"metadata.name={name}"
        async with self.watch(path, fieldSelector=selector, resourceVersion=version) as watch:
            await watch.until("DELETED", name)


@asynccontextmanager
async def open_api(access: Access, *, is_anonymous: bool = False) -> AsyncIterator[Api]:
    """Open a client of a cluster's API; an anonymous one shows no credentials."""
    tls = access.anonymous_tls if is_anonymous else access.tls
    async with aiohttp.ClientSession(
        access.url,
        connector=aiohttp.TCPConnector(ssl=tls),
        headers={} if is_anonymous else access.headers,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=WAIT_SECONDS),
    ) as session:
        yield Api(access, session)
