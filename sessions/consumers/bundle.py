"""The transfer of a bundle to its pod: GET /internal/bundles/{sessionId}?token=, once.

A transfer is *complete* when the client has got the whole response: every byte is acknowledged by
its kernel, and it has not reset the connection (see `telorunner.receipt`). Only a complete one
consumes the bundle. Before the last piece is sent the transfer claims the bundle in the database,
so that of several at once, in any processes, one can complete; the others break off there. A claim
whose transfer breaks off after all is given back. The task is the server's own, one a request.
"""

import asyncio
import logging
import secrets
from dataclasses import dataclass, field

from starlette.types import Receive, Scope, Send

from sessions import store
from sessions.consumers.events import query_value
from telorunner import aio, receipt
from telorunner.errors import NotFound, RunnerError, Unavailable
from telorunner.jsonerrors import answer
from telorunner.receipt import Receipt

logger = logging.getLogger(__name__)

PIECE_BYTES = 65_536
CLAIM_BYTES = 16
# For the last piece to arrive. NB: with the next bound, within a claim's life.
LAST_SECONDS = 14.0
# What is written down about a transfer must not be lost with its client or the process.
WRITE_SECONDS = 5.0


async def send_bundle(scope: Scope, receive: Receive, send: Send) -> None:
    """Serve one transfer; cancelling it breaks it off.

    A response that is left unfinished here has its connection broken off by the server.
    """
    session_id = str(scope["url_route"]["kwargs"]["session_id"])
    try:
        archive = await _redeemed(session_id, scope["query_string"])
    except RunnerError as exc:
        await answer(exc)(scope, receive, send)
        return
    transfer = _Transfer(session_id, archive, receipt.of(scope), send)
    try:
        if await transfer.run():
            return
    except Unavailable:
        logger.debug("The database went away during a transfer.")
    logger.info("A bundle's transfer broke off.", extra={"session": session_id})


async def _redeemed(session_id: str, query_string: bytes) -> bytes:
    if not store.is_session_id(session_id):
        raise NotFound
    return await store.redeem(session_id, query_value(query_string, "token") or "")


@dataclass(frozen=True)
class _Transfer:
    """One archive on its way."""

    session_id: str
    archive: bytes = field(repr=False)
    receipt: Receipt
    send: Send

    async def run(self) -> bool:
        """Send everything; say whether the client has got it."""
        claim = secrets.token_hex(CLAIM_BYTES)
        last = (len(self.archive) - 1) // PIECE_BYTES * PIECE_BYTES
        with self.receipt.watched():
            await self._start()
            for start in range(0, last, PIECE_BYTES):
                await self._send(self.archive[start : start + PIECE_BYTES])
                if self.receipt.is_broken:
                    return False
            is_complete = False
            try:
                if await store.claim_fetch(self.session_id, claim):
                    is_complete = await self._send_last(self.archive[last:])
            finally:
                await self._conclude(claim, is_complete=is_complete)
            if is_complete:
                await self._send(b"", more=False)
        return is_complete

    async def _send_last(self, piece: bytes) -> bool:
        """Send the last piece; say whether the client has got everything."""
        # NB: looked at right before the piece is sent: one that went nowhere is not seen among what
        # was not acknowledged.
        if self.receipt.is_broken:
            return False
        try:
            async with asyncio.timeout(LAST_SECONDS):
                await self._send(piece)
                return await self.receipt.settled()
        except TimeoutError:
            return False

    async def _conclude(self, claim: str, *, is_complete: bool) -> None:
        """Consume the bundle, or give the claim back, whoever cancels meanwhile."""
        name = f"bundle of {self.session_id}"
        try:
            await aio.finish(
                self._write(claim, is_complete), name=name, timeout_seconds=WRITE_SECONDS
            )
        except TimeoutError:
            # The claim runs out by itself.
            logger.warning("A transfer's end was not noted.", extra={"session": self.session_id})

    async def _write(self, claim: str, is_complete: bool) -> None:
        write = store.complete_fetch if is_complete else store.release_fetch
        backoff = aio.Backoff()
        while True:
            try:
                await write(self.session_id, claim)
            except Unavailable:
                await backoff.wait()
            else:
                return

    async def _start(self) -> None:
        headers = [
            (b"content-type", b"application/gzip"),
            (b"content-length", b"%d" % len(self.archive)),
            (b"cache-control", b"no-store"),
            (b"connection", b"close"),
        ]
        await self.send({"type": "http.response.start", "status": 200, "headers": headers})

    async def _send(self, body: bytes, *, more: bool = True) -> None:
        await self.send({"type": "http.response.body", "body": body, "more_body": more})
