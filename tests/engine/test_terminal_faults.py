"""A terminal on the fake API, over real sockets: what connections and logs do at their worst."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from aiohttp import web

from sessions.bus.memory import MemoryBus
from sessions.pods.run import object_name
from sessions.pods.script import START_MARK
from sessions.terminal import TerminalTarget
from sessions.terminal.container import ClusterContainer
from sessions.terminal.link import TerminalLink
from telorunner.kube.client import Cluster
from tests.engine.terminal_fakes import FakePod, Recorder, running
from tests.engine.world import FakeWorld
from tests.fakes import FakeApi, Handler, refuse, say, stream
from tests.unit.pods import terminated

SUCCESS = b'\x03{"metadata":{},"status":"Success"}'


@dataclass
class Terminal:
    """A link to a pod of the fake API, and what came of it."""

    api: FakeApi
    pod: FakePod
    recorder: Recorder
    bus: MemoryBus
    task: "asyncio.Task[None]"

    async def until(self, text: bytes) -> None:
        while text not in self.recorder.text:
            self.recorder.news.clear()
            await self.recorder.news.wait()

    @property
    def own(self) -> bytes:
        """The container's output, without the runner's sentences."""
        lines = self.recorder.text.splitlines(keepends=True)
        return b"".join(line for line in lines if not line.startswith(b"[telorunner]"))


@asynccontextmanager
async def open_terminal(api: FakeApi, cluster: Cluster) -> AsyncIterator[Terminal]:
    api.put("pod")
    target = TerminalTarget("s", "app", "pod", "session", start_mark=START_MARK)
    pod, recorder = FakePod(is_running=True), Recorder()
    container = ClusterContainer(cluster, target, 1_000_000)
    bus = MemoryBus()
    async with bus.open_inbox("s", "app") as inbox:
        link = TerminalLink(target, container, pod, inbox=inbox, writer=recorder)
        async with running(link) as task:
            yield Terminal(api, pod, recorder, bus, task)


def attach(api: FakeApi, *outputs: bytes, end: int | str = "never") -> Handler:
    """Return an attach that brings these and ends by a close code, `cut`, silence or not at all."""

    async def handler(request: web.Request) -> web.StreamResponse:
        async with api.accept(request, autoping=end != "silence") as socket:
            for output in outputs:
                await socket.send_bytes(output)
            if end == "cut" and request.transport is not None:
                request.transport.close()
            elif isinstance(end, int):
                await socket.close(code=end)
            elif end == "silence":
                await asyncio.Event().wait()
            async for _ in socket:
                pass
        return socket

    return handler


@pytest.mark.looptime
@pytest.mark.parametrize("end", [1000, 1006, 1011, "cut", "silence"])
async def test_an_attach_that_ends_in_mid_run_is_made_again_and_its_hole_filled(
    fake: tuple[FakeApi, Cluster], end: int | str, looptime: float
) -> None:
    api, cluster = fake
    api.logs["pod"] = START_MARK + b"one\nmissed\nfour\n"
    first = attach(api, b"\x01" + START_MARK, b"\x01one\r\n", end=end)
    api.script("attach", first, attach(api, b"\x01four\r\n"))
    async with open_terminal(api, cluster) as terminal:
        await terminal.until(b"four\r\n")
        # A connection that only fell silent is noticed by its pings.
        assert looptime <= (95 if end == "silence" else 5)
        assert terminal.own == b"one\r\nmissed\r\nfour\r\n"
        assert terminal.recorder.gaps == 0
        assert terminal.recorder.text.count(b"[telorunner]") == (0 if end == 1000 else 1)
        assert not terminal.task.done()


@pytest.mark.looptime
async def test_a_hole_across_the_rotation_of_the_log_is_filled_or_a_gap(
    fake: tuple[FakeApi, Cluster],
) -> None:
    api, cluster = fake
    lines = [b"line %d of those that are long enough to be told apart\n" % n for n in range(9)]
    seen = b"".join(lines[:4]).replace(b"\n", b"\r\n")
    first = attach(api, b"\x01" + START_MARK + seen, end="cut")
    second = attach(api, b"\x01" + lines[6][:-1] + b"\r\n", end="cut")
    api.script("attach", first, second, attach(api, b"\x01last\r\n"))
    # The new file of the log begins within what was published; the one after it far behind that.
    rotated = b"".join(lines[2:7])
    api.script("log", say(rotated), say(lines[8] + b"last\n"))
    async with open_terminal(api, cluster) as terminal:
        await terminal.until(b"last\r\n")
        # Both were joined to the log, the second one behind a gap.
        stretches = b"".join([*lines[:7], lines[8], b"last\n"]).replace(b"\n", b"\r\n")
        assert terminal.own == stretches
        assert terminal.recorder.gaps == 1
        items = terminal.recorder.items
        behind = b"".join(item[1] for item in items[items.index(None) :] if item is not None)
        assert behind == (lines[8] + b"last\n").replace(b"\n", b"\r\n")


@pytest.mark.looptime
async def test_a_log_that_breaks_off_or_is_not_there_yet_is_read_again(
    fake: tuple[FakeApi, Cluster],
) -> None:
    api, cluster = fake
    api.logs["pod"] = b"one\ntwo\nthree\n"

    async def broken(request: web.Request) -> web.StreamResponse:
        response = await stream(request, b"one\nt")
        assert request.transport is not None
        request.transport.close()
        return response

    api.script("log", refuse(400, "BadRequest"), broken)
    api.script("attach", attach(api, b"\x01three\r\n"))
    async with open_terminal(api, cluster) as terminal:
        await terminal.until(b"three\r\n")
        assert terminal.own == b"one\r\ntwo\r\nthree\r\n"
        assert terminal.recorder.gaps == 0


@pytest.mark.looptime
async def test_the_start_mark_in_several_frames_needs_no_log(
    fake: tuple[FakeApi, Cluster],
) -> None:
    api, cluster = fake
    pieces = [b"\x01" + START_MARK[n : n + 1] for n in range(len(START_MARK))]
    api.script("log", *[say(b"never asked for in time")] * 9)
    api.script("attach", attach(api, *pieces, b"\x01" + START_MARK + b"own\r\n", end="never"))
    async with open_terminal(api, cluster) as terminal:
        await terminal.until(b"own\r\n")
        assert terminal.recorder.text == START_MARK + b"own\r\n"


@pytest.mark.looptime
@pytest.mark.parametrize(
    "status",
    [
        b'{"status":"Failure"}',
        b'{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":null}}',
        b'{"status":"Success"}',
        b'[{"status":3}]',
        b"garbage \xff",
    ],
)
async def test_whatever_channel_3_says_while_the_container_runs_is_only_an_end_of_the_stream(
    fake: tuple[FakeApi, Cluster], status: bytes
) -> None:
    api, cluster = fake
    api.logs["pod"] = START_MARK + b"one\ntwo\n"
    noise = (b"\x01", b"", b"\x02", b"\x09other")
    first = attach(api, b"\x01" + START_MARK, *noise, b"\x01one\r\n", b"\x03" + status)
    # Two refusals in the runtime's own words before it is there again.
    refusals = [say("container not found", 500)] * 2
    api.script("attach", first, *refusals, attach(api, b"\x01two\r\n"))
    async with open_terminal(api, cluster) as terminal:
        await terminal.until(b"two\r\n")
        assert terminal.own == b"one\r\ntwo\r\n"
        assert terminal.recorder.gaps == 0
        assert terminal.recorder.text.count(b"[telorunner]") <= 1
        assert not terminal.task.done()


async def test_keys_go_on_in_the_next_attach_behind_those_that_were_lost(
    fake: tuple[FakeApi, Cluster],
) -> None:
    api, cluster = fake

    async def first(request: web.Request) -> web.StreamResponse:
        async with api.accept(request, autoping=False) as socket:
            await socket.send_bytes(b"\x01" + START_MARK)
            while (message := await socket.receive()).data != b"\x00lost?\r":
                assert message.data[0] == 4
            if request.transport is not None:
                request.transport.close()
        return socket

    api.logs["pod"] = START_MARK
    api.script("attach", first, attach(api, b"\x01again\r\n"))
    async with open_terminal(api, cluster) as terminal:
        await terminal.bus.push_input("s", "app", b"lost?\r")
        await terminal.until(b"again\r\n")
        assert terminal.recorder.text == (
            b"[telorunner] the terminal's connection broke and was made again; "
            b"what was typed last may be lost\r\nagain\r\n"
        )


@pytest.mark.parametrize("is_failure", [False, True])
async def test_the_exit_is_the_status_of_the_pod_whatever_the_stream_said(
    world: FakeWorld, is_failure: bool
) -> None:
    world.api._scripts["attach"].clear()
    cause = b'{"reason":"ExitCode","message":"9"}'
    told = b'{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[%s]}}' % cause
    said = attach(world.api, b"\x01out\r\n", b"\x03" + (told if is_failure else SUCCESS[1:]))
    world.api.script("attach", said, world.attach)
    async with world.runner(), asyncio.timeout(20):
        session_id = await world.start()
        world.api.logs[object_name(session_id)] = b"out\n"
        await world.until_output(session_id, b"out\r\n")
        await world.api.wait_for("attach", 2)
        code = 0 if is_failure else 3
        phase = "Succeeded" if code == 0 else "Failed"
        world.set_status(session_id, phase, terminated(code, "Completed" if code == 0 else "Error"))
        kinds = [e["status"] for _, e in await world.events(session_id) if e["type"] == "status"]
        assert [status["kind"] for status in kinds[:2]] == ["starting", "running"]
        assert kinds[2:] == [
            {"kind": "exited", "code": 0}
            if code == 0
            else {"kind": "failed", "message": 'container "session" failed: Error (exit code 3)'}
        ]
        assert (await world.output(session_id)).count(b"out\r\n") == 1


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_attaches_that_never_end_hold_no_end_up_and_leave_no_socket(
    world: FakeWorld, is_deleted: bool, times: Callable[[int, int], int]
) -> None:
    world.api._scripts["attach"].clear()

    async def one() -> None:
        session_id = await world.start()
        reading = world.runtime.log.read_output(session_id, "app", 0)
        async with reading as viewer, asyncio.timeout(8):
            if is_deleted:
                world.api.remove(object_name(session_id))
            else:
                world.set_status(session_id, "Succeeded", terminated(0, "Completed"))
            kind = (await world.last_status(session_id))["kind"]
            assert kind == ("failed" if is_deleted else "exited")
            while not (await viewer.next()).is_end:
                pass

    async with world.runner(), asyncio.TaskGroup() as group:
        for _ in range(times(20, 5)):
            group.create_task(one())
    assert world.api.open_attaches == 0
