"""The terminal of a supervised session: its link, with everything that the link works with.

`open_terminal()` owns the link's tasks. The link is a helper that may fail: then the terminal says
nothing more, and the session goes on.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from sessions.pods.run import SESSION_CONTAINER, object_name
from sessions.pods.script import START_MARK
from sessions.states import Delivery
from sessions.supervisor.podview import PodView
from sessions.supervisor.session import Session
from sessions.terminal import TerminalTarget
from sessions.terminal.container import ClusterContainer
from sessions.terminal.link import TerminalLink
from telorunner import aio
from telorunner.errors import StaleFence

logger = logging.getLogger(__name__)

# Above the link's own bounds for what is on its way and for the log; it ends much sooner unless
# the cluster does not answer.
DRAIN_SECONDS = 25.0


@dataclass(frozen=True)
class Terminal:
    """A running link and what it knows of the pod."""

    link: TerminalLink
    view: PodView
    task: "asyncio.Task[None]"

    async def drain(self) -> None:
        """Wait until all output of a container that has ended is in the log, or cannot be had.

        A container that has not ended has no last output: then nothing is waited for. What takes
        longer than the bound is given up, and told as a gap.
        """
        if not self.view.is_terminated:
            return
        _, unfinished = await asyncio.wait({self.task}, timeout=DRAIN_SECONDS)
        if unfinished:
            await aio.stop(self.task)
            await self.link.tell_loss()


@asynccontextmanager
async def open_terminal(session: Session) -> AsyncIterator[Terminal]:
    """Relay the terminal of the session's pod for the length of the context.

    Raises:
        ExceptionGroup: With a StaleFence in it: another engine owns the session by now.
    """
    name = object_name(session.session_id)
    target = TerminalTarget(
        session_id=session.session_id,
        app=session.app.name,
        pod_name=name,
        container=SESSION_CONTAINER,
        io=session.app.io,
        start_mark=START_MARK if session.row.spec.delivery is Delivery.INLINE else b"",
        is_adopted=session.is_adopted,
    )
    runtime = session.runtime
    with runtime.pods.subscribe(name) as subscription:
        view = PodView(subscription, session.pod_uid)
        async with (
            runtime.bus.open_inbox(session.session_id, session.app.name) as inbox,
            asyncio.TaskGroup() as group,
        ):
            link = TerminalLink(
                target,
                ClusterContainer(runtime.cluster, target, runtime.config.replay_buffer_bytes),
                view,
                inbox=inbox,
                writer=session.writer,
            )
            task = group.create_task(_relay(link, session), name=f"terminal-{target.session_id}")
            proof = group.create_task(
                _pass_on(link.proved, session.wake), name=f"terminal-proof-{target.session_id}"
            )
            yield Terminal(link, view, task)
            proof.cancel()
            task.cancel()


async def _relay(link: TerminalLink, session: Session) -> None:
    try:
        await link.run()
    except* StaleFence:
        raise
    except* Exception:
        logger.exception("The terminal failed.", extra=session.log_extra)


async def _pass_on(proved: asyncio.Event, wake: asyncio.Event) -> None:
    """Wake the lead at the first proof that the container runs."""
    await proved.wait()
    wake.set()
