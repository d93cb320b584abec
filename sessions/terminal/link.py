"""One container's terminal, as long as it has output: attach, attach again, complete.

It owns its tasks: one that watches the pod, and while an attach is open one for input and one that
reads the log. What the output becomes is `sessions.terminal.output`'s matter, and what the end of a
container means for its session the supervisor's: a failing terminal never fails a session.
"""

import asyncio
import logging
from contextlib import AsyncExitStack, suppress
from typing import Any

from sessions.terminal import (
    AttachStream,
    Container,
    InputSource,
    OutputSink,
    PodView,
    TerminalTarget,
)
from sessions.terminal.input import relay_input
from sessions.terminal.output import TerminalOutput
from telorunner import aio
from telorunner.errors import ClusterError, NotReady, ObjectNotFound
from telorunner.kube.logs import ContainerLog

logger = logging.getLogger(__name__)

# Before the status says that the container runs: up to a second is won, an API server not flooded.
EARLY_RETRY_SECONDS = 0.05
EARLY_SECONDS = 3.0
# A handshake that hangs while the container ends must not hold the session up for long.
ATTACH_SECONDS = 5.0
# A refusal while the container runs is a kubelet that is behind; later it is a fault to be told.
QUIET_REFUSAL_SECONDS = 5.0
# An attach that ended in an orderly way mostly tells the container's end, which the status follows.
ORDERLY_END_SECONDS = 0.25
# An attach that lasted as long as this makes the next failure a new one.
STEADY_SECONDS = 10.0
# After the container's end: all of what is on its way, and the longest silence before the end.
DRAIN_SECONDS = 10.0
DRAIN_SILENCE_SECONDS = 2.0
# How long output is held until the log can be read: at a start, and when there is a hole to fill.
FIRST_LOG_SECONDS = 1.4
HOLE_LOG_SECONDS = 5.0
# Bytes of the attach that left before the log was read are there by then; with it, output of a
# start is held for 1.5 s at most.
SETTLE_SECONDS = 0.1
# The last word of a container is worth waiting for.
LAST_LOG_SECONDS = 10.0
# Where an attach seems to have brought it, the end of the log is looked at only.
CHECK_LOG_SECONDS = 3.0
CHECKED_LINES = 10_000


class TerminalLink:
    """Relays one container's terminal; `proved` is set at the first proof that it runs."""

    def __init__(
        self,
        target: TerminalTarget,
        container: Container,
        pod: PodView,
        *,
        inbox: InputSource[Any],
        writer: OutputSink,
    ) -> None:
        self.proved = asyncio.Event()
        self._target = target
        self._container = container
        self._pod = pod
        self._inbox = inbox
        self._output = TerminalOutput(target, writer)
        self._backoff = aio.Backoff(first_seconds=0.1, cap_seconds=5.0)
        # What the pod's watcher has seen: the container runs (or is proved to), it has ended.
        self._is_up = asyncio.Event()
        self._has_ended = asyncio.Event()
        self._moved = asyncio.Event()
        self._drain_until = 0.0
        self._reading: asyncio.Timeout | None = None
        # The attach loop's own: when the early tries end, when the last try began, the rest before
        # the next, whether an attach ever held, and whether the last one brought everything.
        self._early_until: float | None = None
        self._tried_at = 0.0
        self._rest_seconds = 0.0
        self._has_held = False
        self._is_complete = False
        # An outage is told once: since when refusals last, whether it was told, whether it broke.
        self._refused_since: float | None = None
        self._is_told = False
        self._is_broken = False
        # Input that went into an attach and may not have come out.
        self._may_lack_input = False

    async def run(self) -> None:
        """Relay until the container has ended and all its output is in the log.

        Cancelling lets go of the attach; what the application writes then is in its log only.

        Raises:
            ExceptionGroup: The writer refused (StaleFence in it): another engine has the session.
        """
        async with asyncio.TaskGroup() as group:
            watcher = group.create_task(
                self._watch(), name=f"terminal-pod-{self._target.session_id}"
            )
            while await self._wait_for_turn():
                await self._attach()
            await self._complete()
            await self._output.end()
            watcher.cancel()

    async def tell_loss(self) -> None:
        """Say that output may be lost here: nobody waits any longer for the rest."""
        await self._output.mark_gap()

    async def _watch(self) -> None:
        while True:
            if self._pod.is_running:
                self._is_up.set()
            if self._pod.is_terminated and not self._has_ended.is_set():
                self._has_ended.set()
                self._drain_until = _now() + DRAIN_SECONDS
                if self._reading is not None:
                    self._reading.reschedule(_now() + DRAIN_SILENCE_SECONDS)
            self._moved.set()
            await self._pod.changed()

    async def _wait_for_turn(self) -> bool:
        """Wait until an attach should be tried; False once the container has ended."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._rest_seconds):
                await self._has_ended.wait()
        while not self._has_ended.is_set():
            if self._is_up.is_set() or self._is_early():
                return True
            self._moved.clear()
            await self._moved.wait()
        return False

    def _is_early(self) -> bool:
        """Tell whether to try before the status says that the container runs."""
        if not self._pod.is_attach_worth_trying:
            return False
        if self._early_until is None:
            self._early_until = _now() + EARLY_SECONDS
        return _now() < self._early_until

    async def _attach(self) -> None:
        """Try once; relay for as long as the attach lasts."""
        self._tried_at = _now()
        async with AsyncExitStack() as stack:
            stream: AttachStream | None = None
            try:
                async with asyncio.timeout(ATTACH_SECONDS):
                    stream = await stack.enter_async_context(self._container.open_attach())
            except (NotReady, ObjectNotFound) as exc:
                await self._note_refusal(exc)
            except ClusterError as exc:
                await self._note_failure(exc.message, exc.retry_after_seconds)
            except TimeoutError:
                await self._note_failure("the Kubernetes API did not answer in time")
            if stream is not None:
                await self._relay(stream)

    async def _note_refusal(self, exc: ClusterError) -> None:
        if not self._is_up.is_set():
            # What the refusal took counts: each moment that the container runs already is lost.
            self._rest_seconds = max(0.0, self._tried_at + EARLY_RETRY_SECONDS - _now())
            return
        self._rest_seconds = self._backoff.next_delay()
        self._refused_since = self._refused_since or _now()
        if _now() - self._refused_since >= QUIET_REFUSAL_SECONDS:
            await self._tell(exc.message)

    async def _note_failure(self, reason: str, wanted_pause_seconds: float = 0.0) -> None:
        # Whether the last attach ended with the container is no longer sure.
        self._is_complete = False
        self._rest_seconds = self._backoff.next_delay(wanted_pause_seconds)
        # An outage is told once: it may last for hours, for hundreds of sessions.
        level = logging.DEBUG if self._is_told else logging.WARNING
        logger.log(level, "Attach failed: %s", reason, extra={"session": self._target.session_id})
        await self._tell(reason)

    async def _tell(self, reason: str) -> None:
        """Say once in an outage that there is no terminal, unless the container has ended."""
        if not self._is_told and not self._has_ended.is_set():
            self._is_told = True
            await self._output.say(
                f"the terminal is not connected: {reason.rstrip('.')}; trying again"
            )

    async def _tell_of_break(self) -> None:
        """Say before an attach what the end of the last one may have cost."""
        told = []
        if self._is_broken and not self._is_told:
            told.append("the terminal's connection broke and was made again")
        if self._may_lack_input:
            told.append("what was typed last may be lost")
        if told:
            await self._output.say("; ".join(told))

    async def _relay(self, stream: AttachStream) -> None:
        """Relay both ways until the attach ends, filling what was missed before it from the log."""
        began_at, session_id = _now(), self._target.session_id
        self._is_complete = False
        is_hole = self._has_held or self._target.is_adopted
        self._output.hold()
        relay = relay_input(
            self._inbox, stream, is_tty=self._target.is_tty, until_typing=self._until_typing
        )
        async with asyncio.TaskGroup() as group:
            sending = group.create_task(relay, name=f"terminal-input-{session_id}")
            filling = group.create_task(
                self._fill_front(HOLE_LOG_SECONDS if is_hole else FIRST_LOG_SECONDS),
                name=f"terminal-log-{session_id}",
            )
            is_proved = await self._receive(stream, filling)
            sending.cancel()
            if not (is_proved or self._is_up.is_set()):
                # It led nowhere: there is nothing to join.
                filling.cancel()
        self._may_lack_input = self._may_lack_input or not stream.is_input_confirmed
        if not (is_proved or self._is_up.is_set()):
            self._rest_seconds = EARLY_RETRY_SECONDS
            return
        if _now() - began_at >= STEADY_SECONDS:
            self._backoff.reset()
        self._rest_seconds = self._backoff.next_delay()
        if stream.is_complete:
            self._rest_seconds = max(self._rest_seconds, ORDERLY_END_SECONDS)

    async def _note_proof(self) -> None:
        await self._tell_of_break()
        self._is_told = self._is_broken = self._may_lack_input = False
        self._refused_since = None
        self._has_held = True
        self.proved.set()
        self._is_up.set()

    async def _until_typing(self) -> None:
        await self._is_up.wait()
        await self._output.wait_begun()

    async def _receive(self, stream: AttachStream, filling: "asyncio.Task[None]") -> bool:
        """Deliver what comes until the end of the stream, or of the patience with it.

        Returns whether it was an attach to a container that runs.
        """
        is_proved = stream.is_proof
        if is_proved:
            await self._note_proof()
        while (frame := await self._read(stream)) is not None:
            if not is_proved:
                is_proved = True
                await self._note_proof()
            await self._output.deliver(*frame)
            if not self._output.is_holding:
                # The start mark came: no log is needed.
                filling.cancel()
        if is_proved:
            self._is_complete = stream.is_complete
            self._is_broken = not stream.is_complete
        return is_proved

    async def _read(self, stream: AttachStream) -> tuple[int, bytes] | None:
        deadline = None
        if self._has_ended.is_set():
            deadline = min(_now() + DRAIN_SILENCE_SECONDS, self._drain_until)
        try:
            async with asyncio.timeout_at(deadline) as self._reading:
                return await stream.read()
        except TimeoutError:
            return None
        finally:
            self._reading = None

    async def _fill_front(self, within_seconds: float) -> None:
        # NB: an attach that was granted begins to bring output a moment later, and what is written
        # meanwhile is in the log only.
        await asyncio.sleep(SETTLE_SECONDS)
        await self._fill(within_seconds - SETTLE_SECONDS)

    async def _fill(self, within_seconds: float) -> None:
        """Put in front of what is held what the log has and no attach brought."""
        until = _now() + within_seconds
        log, is_whole = None, False
        # NB: ever longer, for each look may bring megabytes out of the API.
        pause_seconds = SETTLE_SECONDS
        while True:
            is_over, has_ended = self._reading is None, self._has_ended.is_set()
            newer = await self._read_log(until)
            if newer is not None:
                log, is_whole = newer, has_ended
            # Once the attach has ended, or no time is left, another look tells nothing more.
            is_last = newer is None or is_over or _now() >= until - pause_seconds
            if newer is not None and self._reading is not None:
                await asyncio.sleep(SETTLE_SECONDS if is_last else pause_seconds)
            pause_seconds *= 2
            is_loss = self._is_up.is_set()
            if await self._output.release(log, is_last=is_last, is_loss=is_loss, is_whole=is_whole):
                return

    async def _complete(self) -> None:
        """Publish what the log has and no attach brought, after the container's end.

        An attach that a kubelet has closed in good order, with Success, may still lack the last
        100 KiB and more of a program that ends after much output.
        """
        self._output.hold()
        if not self._is_complete:
            await self._fill(LAST_LOG_SECONDS)
            return
        log = await self._read_log(_now() + CHECK_LOG_SECONDS, CHECKED_LINES)
        await self._output.release(log, is_last=True, is_loss=False, is_whole=True, is_trusted=True)

    async def _read_log(self, until: float, last_lines: int | None = None) -> ContainerLog | None:
        """Return the end of the log as soon as it can be read; None: not until then."""
        backoff = aio.Backoff(first_seconds=0.05, cap_seconds=1.0)
        with suppress(TimeoutError, ObjectNotFound):
            async with asyncio.timeout_at(until):
                while True:
                    while not (self._pod.is_running or self._has_ended.is_set()):
                        self._moved.clear()
                        await self._moved.wait()
                    self._output.settle()
                    try:
                        return await self._container.read_log(last_lines)
                    except ObjectNotFound:
                        raise
                    except ClusterError as exc:
                        if isinstance(exc, NotReady) and self._has_ended.is_set():
                            return None
                        logger.info("The log cannot be read yet: %s", exc)
                    await backoff.wait()
        return None


def _now() -> float:
    return asyncio.get_running_loop().time()
