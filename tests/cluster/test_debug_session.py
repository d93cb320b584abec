"""Debug frames and ports of whole runs on the local cluster, engine and cluster in this process."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.engine.world import is_status, open_local_world

pytestmark = [pytest.mark.cluster, pytest.mark.django_db(transaction=True)]

# A program with a debug server as a kernel has: a ring, and the end of the stream at its own.
KERNEL = """
import json, os, signal, socket, sys, threading
address = os.environ["TELO_STANDIN_BIND"]
ring, subscribers, subscribed = [], [], threading.Event()
lock = threading.Lock()

def emit(name, **fields):
    frame = json.dumps({"kind": "event", "event": name, **fields}).encode()
    with lock:
        ring.append(b"data: " + frame + b"\\n\\n")
        for one in list(subscribers):
            try:
                one.sendall(ring[-1])
            except OSError:
                subscribers.remove(one)

def serve(listener):
    while True:
        one, _ = listener.accept()
        one.recv(65536)
        with lock:
            head = b"HTTP/1.1 200 OK\\r\\nContent-Type: text/event-stream\\r\\n\\r\\n"
            one.sendall(head + b"".join(ring))
            subscribers.append(one)
        subscribed.set()

def listen(port):
    listener = socket.create_server((address, port))
    threading.Thread(target=serve, args=(listener,), daemon=True).start()

def end(*_):
    emit("Kernel.Stopped", exitCode=0)
    for one in subscribers:
        one.shutdown(socket.SHUT_RDWR)
        one.close()
    os._exit(0)

signal.signal(signal.SIGTERM, end)
listen(9230)
emit("Kernel.Started")
"""
STAYS = KERNEL + "listen(8080)\nthreading.Event().wait()\n"
TALKS_AND_ENDS = (
    KERNEL
    + """
subscribed.wait()
for number in range(200):
    emit("step", number=number)
end()
"""
)
FLOODS = (
    KERNEL
    + """
listen(8080)
subscribed.wait()
for number in range(1500):
    emit("step", number=number, padding="x" * 300)
emit("flooded")
threading.Event().wait()
"""
)

Event = dict[str, Any]


def is_frame(name: str) -> Callable[[Event], bool]:
    return lambda event: event["type"] == "debug" and event["frame"]["event"] == name


def is_state(state: str) -> Callable[[Event], bool]:
    return lambda event: event["type"] == "reachability" and event["state"] == state


def frames(events: list[tuple[int, Event]]) -> list[str]:
    return [event["frame"]["event"] for _, event in events if event["type"] == "debug"]


async def test_the_last_frames_come_before_the_end_and_nothing_after(
    tmp_path: Path, times: Callable[[int, int], int]
) -> None:
    async with open_local_world(tmp_path) as world, world.runner():
        for _ in range(times(20, 4)):
            session_id = await world.create(TALKS_AND_ENDS, inspect=True)
            events = await world.events(session_id)
            assert frames(events) == ["Kernel.Started", *["step"] * 200, "Kernel.Stopped"]
            assert is_status("exited")(events[-1][1])
            assert is_status("starting")(events[0][1])


async def test_another_runner_tells_frames_and_ports_again(tmp_path: Path) -> None:
    async with open_local_world(tmp_path) as world:
        async with world.runner():
            session_id = await world.create(STAYS, inspect=True, ports=[8080])
            await world.until_event(session_id, is_frame("Kernel.Started"))
            await world.until_event(session_id, is_state("reachable"))
        async with world.runner():
            await world.until_event(session_id, is_frame("Kernel.Started"))
            await world.until_event(session_id, is_state("reachable"))
            await world.stop(session_id)
            events = await world.events(session_id)
            told = [event for _, event in events if event["type"] != "progress"]
            assert is_status("running")(told[0])
            assert is_status("stopped")(told[-1])
            states = [event["state"] for event in told if event["type"] == "reachability"]
            assert states == ["checking", "reachable"]
            assert frames(events) == ["Kernel.Started", "Kernel.Stopped"]


async def test_a_flood_of_frames_pushes_no_status_out_of_the_log(tmp_path: Path) -> None:
    async with (
        open_local_world(tmp_path, RUNNER_REPLAY_BUFFER_BYTES="131072") as world,
        world.runner(),
    ):
        session_id = await world.create(FLOODS, inspect=True, ports=[8080])
        await world.until_event(session_id, is_frame("flooded"))
        # Told before, told again since, or told only now.
        await world.until_event(session_id, is_state("reachable"))
        # What somebody gets who comes now: the beginning is gone.
        async with world.runtime.log.read_events(session_id, 0) as reader:
            assert (await reader.next()).has_gap
        await world.stop(session_id)
        events = await world.events(session_id)
        assert any(is_status("running")(event) for _, event in events)
        assert any(is_state("reachable")(event) for _, event in events)
        assert not any(is_status("starting")(event) for _, event in events)
        assert is_status("stopped")(events[-1][1])


async def test_a_session_without_ports_or_inspection_has_no_helper(tmp_path: Path) -> None:
    async with open_local_world(tmp_path) as world, world.runner():
        session_id = await world.create(STAYS)
        await world.until_running(session_id)
        await world.stop(session_id)
        kinds = {event["type"] for _, event in await world.events(session_id)}
        assert kinds == {"status", "progress"}
