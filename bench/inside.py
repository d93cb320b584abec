"""Inside the process under measure: the product's application and bare ones, on one loop.

There is no engine and no cluster: the runtime's cluster counts whoever asks it for anything. It
obeys commands (`bench.child`), one method of `Target` each, and owns every task in it.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, cast

from django.conf import settings
from django.utils import timezone
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bench.bare import Bare
from bench.commands import obey
from bench.plain import listen_plainly
from sessions import runtime, sse, store
from sessions.admission import random_id
from sessions.bus.memory import MemoryBus
from sessions.log import MAX_CHUNK_BYTES, Starts, Writer
from sessions.log.memory import MemoryLog
from sessions.models import Session
from sessions.runtime import Runtime
from sessions.spec import App, Limits, SessionSpec
from sessions.states import Mode, StatusKind
from telorunner.asgi import application
from telorunner.server import Address, open_server
from telorunner.server import Limits as ServerLimits
from telorunner.values.pullpolicy import PullPolicy

WAIT_SECONDS = 60.0
APP = "app"


class NoCluster:
    """A cluster that nobody may ask; it counts who does."""

    def __init__(self) -> None:
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        self.calls += 1
        raise AttributeError(name)


class Watched:
    """The product's application; it notes one stream's pieces and what the fastest socket got."""

    def __init__(self) -> None:
        self.pieces: list[bytes] | None = None
        self.sent_bytes = 0
        self.sent = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request or socket."""
        if scope["type"] == "websocket":
            await application(scope, receive, self._counting(send))
        elif self.pieces == [] and scope["path"].endswith("/events"):
            await application(scope, receive, self._noting(send, self.pieces))
        else:
            await application(scope, receive, send)

    def _counting(self, send: Send) -> Send:
        own_bytes = 0

        async def counted(message: Message) -> None:
            nonlocal own_bytes
            await send(message)
            own_bytes += len(message.get("bytes") or b"")
            self.sent_bytes = max(self.sent_bytes, own_bytes)
            self.sent.set()

        return counted

    def _noting(self, send: Send, pieces: list[bytes]) -> Send:
        pieces.append(b"")  # so that the next stream is not noted too

        async def noted(message: Message) -> None:
            if body := message.get("body"):
                pieces.append(body)
            await send(message)

        return noted


class Target:
    """What can be asked of the process."""

    def __init__(self, running: Runtime, cluster: NoCluster) -> None:
        self.running = running
        self.cluster = cluster
        self.watched = Watched()
        self.bare = Bare()
        self.ports: dict[str, int] = {}
        self._writers: dict[str, Writer] = {}

    async def where(self) -> dict[str, int]:
        """Return the ports: product, bare (on the product's server), plain (on Daphne's own)."""
        return self.ports

    async def calls(self) -> int:
        """Return how often the cluster was asked for anything."""
        return self.cluster.calls

    async def session(self) -> str:
        """Write a running session down and open its log; return its id."""
        session_id = random_id()
        await store.awrite(_insert, session_id)
        writer = await self.running.log.open(session_id, fence=1, starts=Starts(0, {APP: 0}))
        self._writers[session_id] = writer
        return session_id

    async def forget(self, session_id: str) -> None:
        """Drop a session's log."""
        await self.running.log.drop(session_id)
        self._writers.pop(session_id, None)

    async def clear(self) -> None:
        """Delete every session."""
        await store.awrite(Session.objects.all().delete)

    async def wait_readers(self, session_id: str, count: int) -> None:
        """Wait until so many clients follow a session."""
        async with asyncio.timeout(WAIT_SECONDS):
            while self.running.bus.attendance(session_id) < count:  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.01)

    async def flood_events(
        self, session_id: str, count: int, text_bytes: int, end: bool = True
    ) -> float:
        """Publish events, one a turn of the loop, and end the log; return when it began."""
        event = {"type": "debug", "frame": {"kind": "step", "text": "x" * text_bytes}}
        writer = self._writers[session_id]
        began_at = time.monotonic()
        for number in range(count):
            await writer.publish_event(sse.encode({**event, "number": number}))
            await asyncio.sleep(0)
        if end:
            await writer.close()
        return began_at

    async def flood_output(
        self, session_id: str, total_bytes: int, ahead_bytes: int, end: bool = True
    ) -> float:
        """Publish output, at most so far ahead of what was sent (0: never waiting)."""
        writer, piece = self._writers[session_id], os.urandom(MAX_CHUNK_BYTES)
        watched = self.watched
        watched.sent_bytes, published = 0, 0
        began_at = time.monotonic()
        async with asyncio.timeout(WAIT_SECONDS):
            while published < total_bytes:
                while ahead_bytes and published - watched.sent_bytes > ahead_bytes:
                    watched.sent.clear()
                    await watched.sent.wait()
                await writer.publish_output(APP, 0, piece)
                published += len(piece)
        if end:
            await writer.close()
        return began_at

    async def note_pieces(self) -> None:
        """Note the pieces of the next event stream."""
        self.watched.pieces = []

    async def load_noted(self, in_step: bool) -> list[int]:
        """Give the bare application the pieces that were noted; return their sizes."""
        pieces = [piece for piece in self.watched.pieces or () if piece]
        self.bare.load(pieces, is_in_step=in_step)
        return [len(piece) for piece in pieces]

    async def load_frames(self, total_bytes: int, frame_bytes: int) -> None:
        """Give the bare application frames of one size."""
        frame = os.urandom(frame_bytes)
        self.bare.load([frame] * (total_bytes // frame_bytes), is_in_step=False)

    async def go(self, count: int) -> float:
        """Wait for so many clients of the bare application and send to them."""
        async with asyncio.timeout(WAIT_SECONDS):
            while self.bare.waiting < count:
                self.bare.arrived.clear()
                await self.bare.arrived.wait()
        began_at = time.monotonic()
        self.bare.go()
        return began_at


def _insert(session_id: str) -> None:
    spec = SessionSpec(
        session_id=session_id,
        mode=Mode.RUN,
        image="bench",
        pull_policy=PullPolicy.MISSING,
        apps=(App(APP, "telo.yaml"),),
        limits=Limits(500, 2**29, 2**30, 3600),
    )
    Session.objects.create(
        id=session_id,
        mode=spec.mode,
        image=spec.image,
        spec=spec.to_json(),
        status=StatusKind.RUNNING,
        created_at=timezone.now(),
    )


@asynccontextmanager
async def opened() -> AsyncIterator[Target]:
    """Serve everything on free ports for the length of the context."""
    config, cluster = settings.RUNNER, NoCluster()
    running = Runtime(
        config=config,
        log=MemoryLog(config.replay_buffer_bytes),
        bus=MemoryBus(),
        cluster=cast(Any, cluster),
        pods=cast(Any, cluster),
        loop=asyncio.get_running_loop(),
    )
    target = Target(running, cluster)
    limits = ServerLimits(body_bytes=config.max_bundle_bytes)
    served: dict[str, ASGIApp] = {"product": target.watched, "bare": target.bare}
    async with AsyncExitStack() as stack:
        stack.enter_context(runtime.installed(running))
        for name, served_app in served.items():
            server = await stack.enter_async_context(
                open_server(served_app, Address("127.0.0.1", 0), limits)
            )
            target.ports[name] = server.port
        target.ports["plain"] = stack.enter_context(listen_plainly(target.bare))
        yield target


async def serve() -> None:
    """Serve until the input ends."""
    async with opened() as target:
        await obey(target)
