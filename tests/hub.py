"""A small real server on port 0 that plays Docker Hub's list of tags, well or badly.

    with fake_hub(tags=["1.2.0", "1.1.0"]) as hub:      # in a thread of its own; newest first
        configure(RUNNER_BASE_IMAGE_API_URL=hub.url)
        hub.script(refuse(429, retry_after="60"))       # the next answer, once
        hub.always(html)                                # every answer, until `always(None)`
        hub.tags = ["1.3.0", "1.2.0"]                   # may change at any time

`open_fake_hub()` is the same on the running loop, for tests in virtual time. An item of `tags` is a
name, or a dict that is served as it is; names get dates, an hour older each.
"""

import asyncio
import json
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

from aiohttp import web

NEWEST = datetime(2026, 1, 1, tzinfo=UTC)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Item = str | dict[str, Any]


@dataclass(frozen=True)
class Asked:
    """A request as it arrived; `at` is the serving loop's time."""

    path: str
    query: dict[str, str]
    headers: dict[str, str]
    at: float


@dataclass
class FakeHub:
    """State and script of the fake; a test may change them at any time."""

    tags: Sequence[Any] = ()
    has_etags: bool = True
    # No page is longer, whatever is asked for.
    page_items: int = 100
    url: str = ""
    requests: list[Asked] = field(default_factory=list)
    # How many requests wait for their answer just now.
    waiting: int = 0
    _scripts: deque[Handler] = field(default_factory=deque)
    _always: Handler | None = None
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def script(self, *handlers: Handler) -> None:
        """Let the next requests be answered by these, one each."""
        self._scripts.extend(handlers)

    def always(self, handler: Handler | None) -> None:
        """Let every request be answered by this one; None: behave again."""
        self._always = handler

    @property
    def count(self) -> int:
        """How many requests have arrived."""
        return len(self.requests)

    async def until_requests(self, count: int) -> None:
        """Wait on the hub's own loop until that many requests have arrived."""
        while self.count < count:
            await self._changed.wait()

    async def serve(self, request: web.Request) -> web.StreamResponse:
        now = asyncio.get_running_loop().time()
        asked = Asked(request.path, dict(request.query), dict(request.headers), now)
        self.requests.append(asked)
        self._changed.set()
        self._changed = asyncio.Event()
        self.waiting += 1
        try:
            if self._scripts:
                return await self._scripts.popleft()(request)
            return await (self._always or self.behave)(request)
        finally:
            self.waiting -= 1

    async def behave(self, request: web.Request) -> web.StreamResponse:
        """Answer as Docker Hub does: a page, or that it has not changed."""
        items = [listed(tag, place) for place, tag in enumerate(self.tags)]
        number = int(request.query.get("page", "1"))
        length = min(int(request.query.get("page_size", "10")), self.page_items)
        rest = items[number * length :]
        following = f"{self.url}{request.path}?page={number + 1}&page_size={length}"
        answer = {
            "count": len(items),
            "next": following if rest else None,
            "previous": None,
            "results": items[(number - 1) * length : number * length],
        }
        body = json.dumps(answer).encode()
        etag = f'"{sha256(body).hexdigest()[:16]}"'
        if not self.has_etags:
            return web.Response(body=body, content_type="application/json")
        if request.headers.get("If-None-Match") == etag:
            return web.Response(status=304, headers={"ETag": etag})
        return web.Response(body=body, content_type="application/json", headers={"ETag": etag})


def listed(tag: Any, place: int = 0) -> Any:
    """Return a tag as Docker Hub lists it; what is no name stays what it is."""
    if not isinstance(tag, str):
        return tag
    updated = (NEWEST - timedelta(hours=place)).isoformat().replace("+00:00", "Z")
    images = [
        {"architecture": "amd64", "os": "linux", "size": 1000, "digest": "sha256:" + "0" * 64}
    ]
    return {"name": tag, "last_updated": updated, "full_size": 1000, "images": images}


def page(items: Sequence[Item], following: Any = None, etag: str = "") -> Handler:
    """Return an answer of these items and any `next`; `{host}` in it stands for the hub's own."""

    async def handler(request: web.Request) -> web.StreamResponse:
        link = (
            following.replace("{host}", request.host) if isinstance(following, str) else following
        )
        results = [listed(item, place) for place, item in enumerate(items)]
        answer = {"count": len(results), "next": link, "previous": None, "results": results}
        return web.json_response(answer, headers={"ETag": etag} if etag else None)

    return handler


def say(body: bytes | str, *, status: int = 200, **headers: str) -> Handler:
    """Return an answer of any body; `retry_after="60"` is the header Retry-After."""

    async def handler(request: web.Request) -> web.StreamResponse:
        data = body.encode() if isinstance(body, str) else body
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(body=data, status=status, headers=named)

    return handler


def refuse(status: int, **headers: str) -> Handler:
    """Return a refusal, such as `refuse(429, retry_after="60")`."""
    return say('{"detail": "an answer that nobody shall repeat"}', status=status, **headers)


def redirect(location: str) -> Handler:
    """Return an answer that sends elsewhere."""
    return say(b"", status=302, location=location)


html = say("<!doctype html><title>Sign in</title>", content_type="text/html")


def huge(size: int = 10_000_000, *, has_length: bool = True) -> Handler:
    """Return valid JSON of that many bytes, with or without saying beforehand how many."""

    async def handler(request: web.Request) -> web.StreamResponse:
        head, tail = b'{"next": null, "results": [', b'{"name": "1.2.3"}]}'
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        if has_length:
            response.content_length = size
        await response.prepare(request)
        await response.write(head)
        left = size - len(head) - len(tail)
        while left > 0:
            piece = min(left, 65_536)
            await response.write(b" " * piece)
            left -= piece
        await response.write(tail)
        return response

    return handler


async def hang(request: web.Request) -> web.StreamResponse:
    """Never answer."""
    await asyncio.Event().wait()
    raise AssertionError


async def trickle(request: web.Request) -> web.StreamResponse:
    """Send a byte a second, so that no single read takes long."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    while True:
        await response.write(b" ")
        await asyncio.sleep(1)


async def cut(request: web.Request) -> web.StreamResponse:
    """Break off in the middle of the body."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    response.content_length = 1000
    await response.prepare(request)
    await response.write(b'{"results": [')
    assert request.transport is not None
    request.transport.close()
    return response


async def drop(request: web.Request) -> web.StreamResponse:
    """Close the connection without an answer."""
    assert request.transport is not None
    request.transport.close()
    raise web.HTTPServiceUnavailable


def slow(seconds: float, then: Handler) -> Handler:
    """Return an answer that comes late."""

    async def handler(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(seconds)
        return await then(request)

    return handler


@asynccontextmanager
async def open_fake_hub(tags: Sequence[Any] = (), **state: Any) -> AsyncIterator[FakeHub]:
    """Serve on the running loop for the length of the block."""
    hub = FakeHub(tags=tags, **state)
    application = web.Application()
    application.router.add_get("/v2/repositories/{namespace}/{repository}/tags", hub.serve)
    # NB: handlers end with their client, so that none hangs on at the end.
    runner = web.AppRunner(
        application, handler_cancellation=True, access_log=None, shutdown_timeout=0.1
    )
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    hub.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield hub
    finally:
        await runner.cleanup()


@contextmanager
def fake_hub(tags: Sequence[Any] = (), **state: Any) -> Iterator[FakeHub]:
    """Serve in a thread for the length of the block."""
    started = threading.Event()
    opened: list[tuple[FakeHub, asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def serve() -> None:
        async with open_fake_hub(tags, **state) as hub:
            end = asyncio.Event()
            opened.append((hub, asyncio.get_running_loop(), end))
            started.set()
            await end.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),), name="fake hub", daemon=True)
    thread.start()
    assert started.wait(10), "the fake hub did not start"
    hub, loop, end = opened[0]
    try:
        yield hub
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join(10)
