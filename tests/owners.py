"""A session's owner without a cluster: writes row and log as an engine does, row first."""

from dataclasses import dataclass
from typing import Any

from sessions import admission, events, runtime, sse, store
from sessions.log import Starts, Writer
from sessions.models import Session
from sessions.spec import STARTING, Status
from sessions.states import StatusKind
from tests.builders import make_new_session


@dataclass
class Owner:
    """Owns one session under a fence."""

    session_id: str
    engine_id: str
    fence: int
    log: Writer

    async def publish(self, event: dict[str, Any]) -> int:
        """Publish an event."""
        return await self.log.publish_event(sse.encode(event))

    async def say(self, data: bytes, *, app: str = "app", stream: int = 0) -> int:
        """Publish output."""
        return await self.log.publish_output(app, stream, data)

    async def become(self, status: Status) -> None:
        """Take the session to a status: row, event, and at the end the log's end."""
        assert await store.transition(self.engine_id, self.session_id, self.fence, status)
        await self.publish(events.status(status.to_json()))
        if status.kind.is_terminal:
            await self.log.close()
            runtime.current().bus.drop(self.session_id)

    async def run(self) -> None:
        """Take the session to `running`."""
        await self.become(Status(StatusKind.RUNNING))


async def own(session_id: str) -> Owner:
    """Take a registered session up and publish its first event."""
    engine_id = await store.register_engine()
    claimed = await store.claim(engine_id, limit=1000)
    assert session_id in claimed
    for other in set(claimed) - {session_id}:
        await store.release(other, await _fence(other))
    loaded = await store.load(engine_id, session_id)
    assert loaded is not None
    starts = Starts(output={app.name: 0 for app in loaded.spec.apps})
    log = await runtime.current().log.open(session_id, fence=loaded.fence, starts=starts)
    owner = Owner(session_id, engine_id, loaded.fence, log)
    await owner.publish(events.status(STARTING.to_json()))
    return owner


async def _fence(session_id: str) -> int:
    return (await store.aread(Session.objects.get, id=session_id)).fence


async def admit(max_sessions: int = 1000, **overrides: Any) -> str:
    """Register a session past the API; return its id."""
    new = make_new_session(**overrides)
    admitted = await store.awrite(admission.admit, new, max_sessions=max_sessions)
    return admitted.session_id
