"""A recorder between a runner and the API server: what is asked for, and what comes of it.

It passes everything on as it is, the runner's token included, and decides nothing. Requests are
noted in the words that RBAC has for them.
"""

import asyncio
import base64
import re
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import yaml
from aiohttp import WSMsgType, web

_PATH = re.compile(
    r"/(?:api/v1|apis/(?P<group>[^/]+)/[^/]+)"
    r"(?:/namespaces/(?P<namespace>[^/]+)(?=/))?"
    r"/(?P<resource>[^/]+)(?:/(?P<name>[^/]+))?(?:/(?P<part>[^/]+))?"
)
# What the cluster serves at all, which everybody may ask.
_DISCOVERY = re.compile(r"/apis(?:/[^/]+/[^/]+)?")
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_DATA = {WSMsgType.BINARY, WSMsgType.TEXT}
# Of a hop, not of the message.
_HOP = {"host", "connection", "transfer-encoding", "content-length", "content-encoding"}


@dataclass(frozen=True)
class Exchange:
    """A request in RBAC's words and its answer; `resource` is such as `pods/log`."""

    verb: str
    group: str
    resource: str
    status: int
    warnings: tuple[str, ...] = ()


@dataclass
class Recorder:
    """What has passed; `kubeconfig` is the way through it."""

    kubeconfig: Path
    exchanges: list[Exchange] = field(default_factory=list)

    @property
    def used(self) -> set[tuple[str, str, str]]:
        """Group, resource and verb of everything that was asked for."""
        return {(one.group, one.resource, one.verb) for one in self.exchanges}

    @property
    def forbidden(self) -> list[Exchange]:
        return [one for one in self.exchanges if one.status in {401, 403}]

    @property
    def warnings(self) -> list[str]:
        return [warning for one in self.exchanges for warning in one.warnings]


@asynccontextmanager
async def open_recorder(kubeconfig: Path, folder: Path) -> AsyncIterator[Recorder]:
    """Stand between the cluster of a kubeconfig and whoever uses the recorder's own."""
    config = yaml.safe_load(await asyncio.to_thread(kubeconfig.read_text))
    cluster = config["clusters"][0]["cluster"]
    context = _trust(cluster)
    recorder = Recorder(folder / "recorded.kubeconfig")
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=context, limit=0),
        timeout=aiohttp.ClientTimeout(total=None),
        auto_decompress=False,
        trust_env=False,
    ) as session:
        relay = _Relay(recorder, session, cluster["server"])
        application = web.Application(client_max_size=2**24)
        application.router.add_route("*", "/{path:.*}", relay.handle)
        runner = web.AppRunner(
            application, access_log=None, handler_cancellation=True, shutdown_timeout=1
        )
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            address = f"http://127.0.0.1:{runner.addresses[0][1]}"
            config["clusters"][0]["cluster"] = {"server": address}
            await asyncio.to_thread(recorder.kubeconfig.write_bytes, orjson.dumps(config))
            yield recorder
        finally:
            await runner.cleanup()


def _trust(cluster: Mapping[str, Any]) -> ssl.SSLContext:
    """Return a context that trusts the cluster's own authority."""
    if file := cluster.get("certificate-authority"):
        return ssl.create_default_context(cafile=file)
    data = base64.b64decode(cluster["certificate-authority-data"]).decode()
    return ssl.create_default_context(cadata=data)


@dataclass
class _Relay:
    recorder: Recorder
    session: aiohttp.ClientSession
    server: str

    async def handle(self, request: web.Request) -> web.StreamResponse:
        headers = {
            name: value for name, value in request.headers.items() if name.lower() not in _HOP
        }
        if request.headers.get("Upgrade", "").lower() == "websocket":
            return await self._relay_socket(request, headers)
        async with self.session.request(
            request.method,
            self.server + request.raw_path,
            headers=headers,
            data=await request.read() or None,
            allow_redirects=False,
        ) as answer:
            warnings = tuple(answer.headers.getall("Warning", ()))
            self._note(request, answer.status, warnings)
            kept = [(k, v) for k, v in answer.headers.items() if k.lower() not in _HOP]
            response = web.StreamResponse(status=answer.status, headers=dict(kept))
            await response.prepare(request)
            async for piece in answer.content.iter_any():
                await response.write(piece)
            await response.write_eof()
            return response

    async def _relay_socket(
        self, request: web.Request, headers: Mapping[str, str]
    ) -> web.StreamResponse:
        own = {k: v for k, v in headers.items() if not k.lower().startswith(("sec-", "upgrade"))}
        offered = request.headers.get("Sec-WebSocket-Protocol", "").split(", ")
        try:
            upstream = await self.session.ws_connect(
                self.server + request.raw_path, headers=own, protocols=offered, max_msg_size=0
            )
        except aiohttp.WSServerHandshakeError as exc:
            self._note(request, exc.status)
            return web.Response(status=exc.status)
        self._note(request, 101)
        async with upstream:
            downstream = web.WebSocketResponse(protocols=offered, max_msg_size=0)
            await downstream.prepare(request)
            await _pass_both_ways(upstream, downstream)
        return downstream

    def _note(self, request: web.Request, status: int, warnings: tuple[str, ...] = ()) -> None:
        if _DISCOVERY.fullmatch(request.path):
            return
        match = _PATH.fullmatch(request.path)
        assert match is not None, f"not a path of an object: {request.path}"
        verb = _VERBS.get(request.method, "get")
        if verb == "get" and not match["name"]:
            verb = "watch" if "watch" in request.query else "list"
        resource = match["resource"] + (f"/{match['part']}" if match["part"] else "")
        self.recorder.exchanges.append(
            Exchange(verb, match["group"] or "", resource, status, warnings)
        )


async def _pass_both_ways(
    upstream: aiohttp.ClientWebSocketResponse, downstream: web.WebSocketResponse
) -> None:
    """Pass messages on until one side ends, then end the other."""

    async def up() -> None:
        async for message in downstream:
            if message.type in _DATA:
                await upstream.send_bytes(message.data)
        await upstream.close()

    async def down() -> None:
        async for message in upstream:
            if message.type in _DATA:
                await downstream.send_bytes(message.data)
        await downstream.close()

    async with asyncio.TaskGroup() as group:
        group.create_task(up())
        group.create_task(down())
