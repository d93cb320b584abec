"""Small real servers on port 0 that tests can make misbehave.

`open_fake_api()` serves enough of the Kubernetes API for the client side: REST, list and watch with
resource versions, logs, attach. `FakeApi.script()` replaces the next answers of one verb, one
request each; without a script it behaves. Every request must carry the token, else the test fails.
"""

import asyncio
import json
import re
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import WSMsgType, web

from telorunner.conf import ClusterKind
from telorunner.kube.client import Cluster, ClusterSettings, open_cluster

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Object = dict[str, Any]

NAMESPACE = "sessions"
MANAGED_BY = "fake-runner"
TOKEN = "a-fake-token"
_PATH = re.compile(
    r"/apis?/(?:[^/]+/)?v1(?:beta1)?(?:/namespaces/(?P<ns>[^/]+)(?=/))?"
    r"/(?P<resource>[a-z]+)(?:/(?P<name>[^/]+))?(?:/(?P<sub>[a-z]+))?"
)
_VERBS = {"POST": "create", "DELETE": "delete", "PATCH": "patch", "PUT": "update"}


@dataclass(frozen=True)
class Seen:
    """A request as it arrived."""

    verb: str
    resource: str
    name: str
    query: dict[str, str]
    body: Any
    content_type: str


_SEEN = web.RequestKey("seen", Seen)


@dataclass
class FakeApi:
    """State and script of the fake; all of it may be changed by a test at any time."""

    token: str = TOKEN
    url: str = ""
    objects: dict[str, dict[str, Object]] = field(default_factory=lambda: defaultdict(dict))
    logs: dict[str, bytes] = field(default_factory=dict)
    requests: list[Seen] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    may_refuse: bool = False
    page_objects: int = 500
    revision: int = 100
    oldest: int = 0
    open_attaches: int = 0
    typed: bytearray = field(default_factory=bytearray)
    sizes: list[tuple[int, int]] = field(default_factory=list)
    _history: list[tuple[int, str, str, Object]] = field(default_factory=list)
    _scripts: dict[str, deque[Handler]] = field(default_factory=lambda: defaultdict(deque))
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _uid: int = 0

    def script(self, verb: str, *handlers: Handler) -> None:
        """Let the next requests of a verb be answered by these, one each."""
        self._scripts[verb].extend(handlers)

    def count(self, verb: str) -> int:
        return sum(seen.verb == verb for seen in self.requests)

    async def wait_for(self, verb: str, count: int = 1) -> None:
        """Wait until that many requests of a verb have arrived."""
        while self.count(verb) < count:
            await self._wait_change()

    def put(
        self, name: str, resource: str = "pods", *, quietly: bool = False, **more: Any
    ) -> Object:
        """Create or change an object; `quietly` leaves the change out of every watch."""
        known = self.objects[resource].get(name)
        self.revision += 1
        if known is None:
            self._uid += 1
        uid = known["metadata"]["uid"] if known else f"uid-{self._uid}"
        labels = more.pop("labels", {"app.kubernetes.io/managed-by": MANAGED_BY})
        metadata = {"name": name, "uid": uid, "labels": labels}
        metadata |= {"resourceVersion": str(self.revision)} | more.pop("metadata", {})
        thing = {"metadata": metadata, **more}
        self.objects[resource][name] = thing
        if not quietly:
            self._record("MODIFIED" if known else "ADDED", resource, thing)
        return thing

    def remove(self, name: str, resource: str = "pods", *, quietly: bool = False) -> None:
        """Delete an object; `quietly` leaves the deletion out of every watch."""
        self.revision += 1
        thing = self.objects[resource].pop(name)
        final = {**thing, "metadata": {**thing["metadata"], "resourceVersion": str(self.revision)}}
        if not quietly:
            self._record("DELETED", resource, final)

    def forget_history(self) -> None:
        """Make every older resource version too old."""
        self._history.clear()
        self.revision += 1
        self.oldest = self.revision

    def kubeconfig(self, folder: Path) -> Path:
        """Write a kubeconfig for this server and return its path."""
        path = folder / "kubeconfig"
        config = {
            "current-context": "fake",
            "clusters": [{"name": "fake", "cluster": {"server": self.url}}],
            "users": [{"name": "fake", "user": {"token": self.token}}],
            "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake"}}],
        }
        path.write_text(json.dumps(config))
        return path

    async def handle(self, request: web.Request) -> web.StreamResponse:
        seen = await self._see(request)
        if request.headers.get("Authorization", "").lower() != f"bearer {self.token}":
            self.refused.append(f"{request.method} {request.path}")
            return status_answer(401, "Unauthorized")
        self.requests.append(seen)
        self._tell()
        request[_SEEN] = seen
        if script := self._scripts[seen.verb]:
            return await script.popleft()(request)
        return await self.behave(request)

    async def behave(self, request: web.Request) -> web.StreamResponse:
        """Answer as the real one would; also to be put into a script."""
        seen = request[_SEEN]
        default: Callable[[web.Request, Seen], Awaitable[web.StreamResponse]]
        default = getattr(self, f"_{seen.verb}")
        return await default(request, seen)

    async def _see(self, request: web.Request) -> Seen:
        match = _PATH.fullmatch(request.path)
        parts = match.groupdict() if match else {}
        name, sub = parts.get("name") or "", parts.get("sub")
        verb = _VERBS.get(request.method, "get")
        if sub in ("log", "attach"):
            verb = sub
        elif match and verb == "get" and not name:
            verb = "watch" if request.query.get("watch") else "list"
        body = json.loads(await request.read() or b"null")
        resource = parts.get("resource") or ""
        return Seen(verb, resource, name, dict(request.query), body, request.content_type)

    async def _get(self, request: web.Request, seen: Seen) -> web.StreamResponse:
        if not seen.resource:
            return web.json_response({"major": "1", "minor": "34"})
        thing = self.objects[seen.resource].get(seen.name)
        return status_answer(404, "NotFound") if thing is None else web.json_response(thing)

    async def _create(self, request: web.Request, seen: Seen) -> web.StreamResponse:
        manifest = seen.body
        metadata = dict(manifest["metadata"])
        name, labels = metadata.pop("name"), metadata.pop("labels", {})
        if name in self.objects[seen.resource]:
            return status_answer(409, "AlreadyExists")
        rest = {key: value for key, value in manifest.items() if key != "metadata"}
        thing = self.put(name, seen.resource, labels=labels, metadata=metadata, **rest)
        return web.json_response(thing, status=201)

    async def _patch(self, request: web.Request, seen: Seen) -> web.StreamResponse:
        thing = self.objects[seen.resource].get(seen.name)
        if thing is None:
            return status_answer(404, "NotFound")
        metadata = thing["metadata"] | seen.body.pop("metadata", {})
        metadata.pop("resourceVersion")
        labels = metadata.pop("labels")
        rest = {key: value for key, value in (thing | seen.body).items() if key != "metadata"}
        changed = self.put(seen.name, seen.resource, labels=labels, metadata=metadata, **rest)
        return web.json_response(changed)

    async def _update(self, request: web.Request, seen: Seen) -> web.StreamResponse:
        thing = self.objects[seen.resource].get(seen.name)
        if thing is None:
            return status_answer(404, "NotFound")
        metadata = dict(seen.body["metadata"])
        version = metadata.pop("resourceVersion", None)
        if version not in (None, thing["metadata"]["resourceVersion"]):
            return status_answer(409, "Conflict")
        name, labels = metadata.pop("name"), metadata.pop("labels", {})
        rest = {key: value for key, value in seen.body.items() if key not in ("metadata", "status")}
        if "status" in thing:
            # Only a request for the status itself changes that.
            rest["status"] = thing["status"]
        changed = self.put(name, seen.resource, labels=labels, metadata=metadata, **rest)
        return web.json_response(changed)

    async def _delete(self, request: web.Request, seen: Seen) -> web.StreamResponse:
        thing = self.objects[seen.resource].get(seen.name)
        if thing is None:
            return status_answer(404, "NotFound")
        uid = ((seen.body or {}).get("preconditions") or {}).get("uid")
        if uid and uid != thing["metadata"]["uid"]:
            return status_answer(409, "Conflict")
        self.remove(seen.name, seen.resource)
        return web.json_response(thing)

    async def _list(self, request: web.Request, seen: Seen) -> web.StreamResponse:
        start = int(seen.query.get("continue", 0))
        limit = min(self.page_objects, int(seen.query.get("limit", 500)))
        things = [t for t in self.objects[seen.resource].values() if _matches(t, seen)]
        metadata = {"resourceVersion": str(self.revision)}
        if start + limit < len(things):
            metadata["continue"] = str(start + limit)
        return web.json_response({"metadata": metadata, "items": things[start : start + limit]})

    async def _watch(self, request: web.Request, seen: Seen) -> web.StreamResponse:
        version = int(seen.query["resourceVersion"])
        if version < self.oldest:
            return await stream(request, error_line(410, "Expired"))
        response = await begin(request)
        try:
            async with asyncio.timeout(int(seen.query["timeoutSeconds"])):
                while True:
                    for revision, resource, kind, thing in list(self._history):
                        if revision > version and resource == seen.resource:
                            version = revision
                            if _matches(thing, seen):
                                await response.write(event_line(kind, thing))
                    await self._wait_change()
        except TimeoutError:
            await response.write(bookmark_line(self.revision))
        return response

    async def _log(self, request: web.Request, seen: Seen) -> web.StreamResponse:
        if seen.name not in self.objects["pods"]:
            return status_answer(404, "NotFound")
        if seen.name not in self.logs:
            return status_answer(400, "BadRequest", "container is waiting to start")
        return web.Response(body=self.logs[seen.name])

    async def _attach(self, request: web.Request, seen: Seen) -> web.StreamResponse:
        """Echo what is typed, as a terminal in raw mode with `cat` behind it."""
        if seen.name not in self.objects["pods"]:
            return status_answer(404, "NotFound")
        async with self.accept(request) as socket:
            async for message in socket:
                if message.type is WSMsgType.BINARY:
                    self.take_input(message.data)
                    if message.data[0] == 0:
                        await socket.send_bytes(b"\x01" + message.data[1:])
        return socket

    def take_input(self, frame: bytes) -> None:
        if frame[0] == 0:
            self.typed += frame[1:]
        elif frame[0] == 4:
            size = json.loads(frame[1:])
            self.sizes.append((size["Width"], size["Height"]))
        self._tell()

    @asynccontextmanager
    async def accept(
        self,
        request: web.Request,
        *,
        protocols: Sequence[str] = ("v4.channel.k8s.io",),
        autoping: bool = True,
    ) -> AsyncIterator[web.WebSocketResponse]:
        socket = web.WebSocketResponse(protocols=protocols, autoping=autoping, autoclose=True)
        await socket.prepare(request)
        self.open_attaches += 1
        try:
            yield socket
        finally:
            self.open_attaches -= 1
            self._tell()

    def _record(self, kind: str, resource: str, thing: Object) -> None:
        self._history.append((self.revision, resource, kind, thing))
        self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _wait_change(self) -> None:
        await self._changed.wait()

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait for something that arrives by request: a resize, input, an attach that ends."""
        while not condition():
            await self._wait_change()


def _matches(thing: Object, seen: Seen) -> bool:
    selector = seen.query.get("labelSelector", "")
    labels = thing["metadata"].get("labels", {})
    return all(
        labels.get(key) == value
        for key, value in (term.split("=", 1) for term in selector.split(",") if term)
    )


def event_line(kind: str, thing: Object) -> bytes:
    return json.dumps({"type": kind, "object": thing}, ensure_ascii=False).encode() + b"\n"


def bookmark_line(revision: int) -> bytes:
    return event_line("BOOKMARK", {"metadata": {"resourceVersion": str(revision)}})


def error_line(code: int, reason: str) -> bytes:
    return event_line("ERROR", {"kind": "Status", "code": code, "reason": reason, "message": "no"})


def status_answer(code: int, reason: str, message: str = "refused") -> web.Response:
    status = {"kind": "Status", "status": "Failure", "code": code}
    return web.json_response(status | {"reason": reason, "message": message}, status=code)


async def begin(request: web.Request) -> web.StreamResponse:
    """Answer 200 and leave the body open."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    return response


async def stream(request: web.Request, *chunks: bytes) -> web.StreamResponse:
    """Answer 200 with these pieces, each of its own packet as far as that can be had."""
    response = await begin(request)
    for chunk in chunks:
        await response.write(chunk)
        await asyncio.sleep(0)
    return response


def refuse(code: int, reason: str = "", message: str = "refused") -> Handler:
    """Return a handler that answers with a Status."""

    async def handler(request: web.Request) -> web.StreamResponse:
        return status_answer(code, reason, message)

    return handler


def say(body: bytes | str, code: int = 200, content_type: str = "text/html") -> Handler:
    """Return a handler that answers with any body, such as the page of a proxy."""

    async def handler(request: web.Request) -> web.StreamResponse:
        raw = body.encode() if isinstance(body, str) else body
        return web.Response(body=raw, status=code, content_type=content_type)

    return handler


def lines(*chunks: bytes, then: str = "end") -> Handler:
    """Return a handler for a watch: these bytes, then `end`, `cut` the connection or `hang`."""

    async def handler(request: web.Request) -> web.StreamResponse:
        response = await stream(request, *chunks)
        if then == "hang":
            await asyncio.Event().wait()
        if then == "cut" and request.transport is not None:
            request.transport.close()
        return response

    return handler


async def hang(request: web.Request) -> web.StreamResponse:
    """Never answer."""
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


async def cut(request: web.Request) -> web.StreamResponse:
    """Close the connection instead of an answer."""
    if request.transport is not None:
        request.transport.close()
    return web.Response()


@asynccontextmanager
async def open_fake_api() -> AsyncIterator[FakeApi]:
    """Serve the fake API on a free port of loopback."""
    api = FakeApi()
    app = web.Application(client_max_size=64 * 2**20)
    app.router.add_route("*", "/{path:.*}", api.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        api.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield api
    finally:
        await runner.cleanup()
    assert api.may_refuse or not api.refused, f"requests without the token: {api.refused}"


@asynccontextmanager
async def open_fake_cluster(folder: Path) -> AsyncIterator[tuple[FakeApi, Cluster]]:
    """Serve the fake API and open the product's client of it."""
    async with open_fake_api() as api:
        settings = ClusterSettings(
            kind=ClusterKind.KUBECONFIG,
            kubeconfig=str(api.kubeconfig(folder)),
            namespace=NAMESPACE,
            managed_by=MANAGED_BY,
        )
        async with open_cluster(settings) as cluster:
            yield api, cluster
