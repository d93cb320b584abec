"""What both streams are: a consumer that owns one task for as long as its client is there."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from channels.consumer import AsyncConsumer, get_handler_name

from telorunner import aio


class OwnsOneTask(AsyncConsumer):
    """Starts one task, and stops it when the client or the server goes away."""

    def __init__(self) -> None:
        super().__init__()
        self.task: asyncio.Task[None] | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one connection; cancelling it stops the task first."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self.stop_task()

    async def dispatch(self, message: Any) -> None:
        """Hand a message to its handler.

        Channels would first close old database connections in the one thread that all consumers
        share; no database is used from here, and a keystroke should not queue up for that.
        """
        handler = getattr(self, get_handler_name(message), None)
        if handler is None:
            raise ValueError(f"No handler for {message['type']}.")
        await handler(message)

    def start_task(self, coroutine: Coroutine[Any, Any, None], *, name: str) -> None:
        """Start the one task of this consumer."""
        self.task = aio.start(coroutine, name=name)

    async def stop_task(self) -> None:
        """Cancel the task, if there is one, and wait for it."""
        if self.task is not None:
            await aio.stop(self.task)

    def session_id(self) -> str:
        """Return the session id of the address; it is checked by the actions."""
        return str(self.scope["url_route"]["kwargs"]["session_id"])
