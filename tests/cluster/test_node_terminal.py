"""Terminals and attachments of containers that run as real processes."""

import asyncio
import contextlib
import sys
from pathlib import Path

import pytest

from telorunner.localcluster.node.container import (
    ATTACHMENT_BYTES,
    Attachment,
    ContainerUnavailable,
)
from telorunner.localcluster.node.images import Images
from tests.cluster.node_harness import (
    NAMESPACE,
    digest,
    make_pod,
    open_node,
    read_all,
    read_until,
    until_true,
)

PYTHON = Images(extra={"python": (sys.executable,)})
START_GATE = (
    "if [ -t 0 ] && command -v stty >/dev/null 2>&1; then n=0; while [ $n -lt 100 ]; do"
    ' case "$(stty size 2>/dev/null)" in ""|"0 0") sleep 0.02; n=$((n+1));; *) break;; esac;'
    ' done; fi; exec "$@"'
)

# Reads 64 KiB a second in raw mode, and answers with what it read in the end.
SLOW_READER = """
import hashlib, os, sys, time, tty
tty.setraw(0)
os.write(1, b"ready\\n")
seen = b""
while len(seen) < int(sys.argv[1]):
    seen += os.read(0, 4096)
    time.sleep(1 / 16)
os.write(1, hashlib.sha256(seen).hexdigest()[:16].encode())
"""


async def test_a_terminal_has_no_size_before_somebody_sends_one(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        node.create(
            make_pod("one", "sh", "-c", "stty size; read x; stty size", tty=True, stdin=True)
        )
        container = await node.until_running()
        async with container.attach() as attachment:
            container.resize(100, 30)
            await attachment.write_stdin(b"\n")
            assert (await read_all(attachment)).endswith(b"30 100\r\n")
        await node.until_ended()
        assert (await node.log()).startswith(b"0 0\n") or b"30 100" in await node.log()


async def test_the_start_gate_holds_the_application_until_the_first_resize(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        node.create(
            make_pod(
                "one",
                *("sh", "-c", START_GATE, "sh", "sh", "-c", "stty size; echo hello; exit 3"),
                tty=True,
                stdin=True,
            )
        )
        container = await node.until_running()
        async with container.attach() as attachment:
            container.resize(132, 43)
            assert await read_all(attachment) == b"43 132\r\nhello\r\n"
        await node.until_ended()
        assert node.state()["terminated"]["exitCode"] == 3


async def test_a_resize_reaches_the_foreground_process_as_a_signal(tmp_path: Path) -> None:
    script = "trap 'stty size; exit 0' WINCH; echo up; while true; do sleep 0.02; done"
    async with open_node(tmp_path) as node:
        node.create(make_pod("one", "sh", "-c", script, tty=True))
        container = await node.until_running()
        async with container.attach() as attachment:
            await node.until_logged(b"up")
            container.resize(20, 10)
            assert (await read_all(attachment)).endswith(b"10 20\r\n")


@pytest.mark.parametrize("size", [(0, 0), (-1, 5), (10**9, 10**9)])
async def test_an_odd_size_does_no_harm(tmp_path: Path, size: tuple[int, int]) -> None:
    async with open_node(tmp_path) as node:
        node.create(make_pod("one", "cat", tty=True, stdin=True))
        container = await node.until_running()
        container.resize(*size)
        assert container.is_running


async def test_ctrl_c_reaches_the_foreground_process(tmp_path: Path) -> None:
    script = "trap 'echo caught; exit 5' INT; echo up; while true; do sleep 0.02; done"
    async with open_node(tmp_path) as node:
        node.create(make_pod("one", "sh", "-c", script, tty=True, stdin=True))
        container = await node.until_running()
        async with container.attach() as attachment:
            await node.until_logged(b"up")
            await attachment.write_stdin(b"\x03")
            assert b"caught" in await read_all(attachment)
        await node.until_ended()
        assert node.state()["terminated"]["exitCode"] == 5


async def test_every_byte_passes_both_ways_through_a_raw_terminal(tmp_path: Path) -> None:
    everything = bytes(range(256))
    script = "stty raw -echo; echo up; exec head -c 256"
    async with open_node(tmp_path) as node:
        node.create(make_pod("one", "sh", "-c", script, tty=True, stdin=True))
        container = await node.until_running()
        async with container.attach() as attachment:
            await node.until_logged(b"up")
            await attachment.write_stdin(everything)
            assert (await read_all(attachment)).removeprefix(b"up\n") == everything


async def test_a_paste_of_256_kib_reaches_a_slow_reader_intact(tmp_path: Path) -> None:
    paste = bytes(range(256)) * 1024
    args = ["-c", SLOW_READER, str(len(paste))]
    async with open_node(tmp_path, images=PYTHON) as node:
        node.create(make_pod("one", image="python", args=args, tty=True, stdin=True))
        container = await node.until_running()
        async with container.attach() as attachment:
            loop = asyncio.get_running_loop()
            await node.until_logged(b"ready")
            began = loop.time()
            await attachment.write_stdin(paste)
            assert loop.time() - began > 2, "the typist must feel that the application is slow"
            seen = (await read_all(attachment)).decode().split()[-1]
            assert f"{len(paste)} bytes, {seen}" == digest(paste)


async def test_streams_keep_output_and_errors_apart_and_carry_large_input(tmp_path: Path) -> None:
    given = bytes(range(256)) * 4096
    async with open_node(tmp_path) as node:
        script = "echo oops >&2; exec head -c 1048576"
        node.create(make_pod("one", "sh", "-c", script, stdin=True))
        container = await node.until_running()
        async with container.attach() as attachment, asyncio.TaskGroup() as group:
            reading = group.create_task(_read_streams(attachment))
            await attachment.write_stdin(given)
        streams = reading.result()
        assert digest(streams[1]) == digest(given)
        assert streams[2] in {b"oops\n", b""}
        await node.until_ended()
        assert b"oops\n" in await node.log()


async def _read_streams(attachment: Attachment) -> dict[int, bytes]:
    streams = {1: b"", 2: b""}
    while (piece := await attachment.read()) is not None:
        streams[piece[0]] += piece[1]
    return streams


async def test_a_viewer_that_leaves_does_not_end_the_input_for_the_next(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        for name, tty in (("one", True), ("two", False)):
            node.create(make_pod(name, "cat", tty=tty, stdin=True))
            container = await node.until_running(name)
            async with container.attach() as first:
                await first.write_stdin(b"from the first\n")
                await read_until(first, b"from the first")
                await first.close_stdin()
            async with container.attach() as second:
                await second.write_stdin(b"from the second\n")
                seen = await read_until(second, b"from the second")
                assert b"from the first\r\nfrom the first" not in seen


async def test_stdin_once_ends_the_input_with_the_first_viewer(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        node.create(make_pod("one", "cat", stdin=True, stdinOnce=True))
        container = await node.until_running()
        async with container.attach() as attachment:
            await attachment.write_stdin(b"all of it")
            await attachment.close_stdin()
            assert await read_all(attachment) == b"all of it"
        assert (await node.until_ended())["status"]["phase"] == "Succeeded"


async def test_a_container_without_stdin_reads_an_end_of_file(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        node.create(make_pod("one", "cat"))
        assert (await node.until_ended())["status"]["phase"] == "Succeeded"


async def test_two_viewers_see_the_same_and_input_arrives_once(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        node.create(make_pod("one", "sh", "-c", "read x; echo got $x", tty=True, stdin=True))
        container = await node.until_running()
        async with container.attach() as first, container.attach() as second:
            await first.write_stdin(b"x\n")
            assert await read_all(first) == b"x\r\ngot x\r\n"
            assert await read_all(second) == b"x\r\ngot x\r\n"


async def test_output_waits_for_a_viewer_that_does_not_read_and_goes_on_when_it_leaves(
    tmp_path: Path,
) -> None:
    async with open_node(tmp_path) as node:
        script = "read x; head -c 20000000 /dev/zero; echo last"
        node.create(make_pod("one", "sh", "-c", script, stdin=True))
        container = await node.until_running()
        async with container.attach() as stalled:
            await stalled.write_stdin(b"\n")
            await until_true(lambda: stalled.is_full)
            # Were it not held, 20 MB would be through long before.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    await container.wait()
            assert container.is_running
            assert len((await stalled.read() or (0, b""))[1]) <= 32 * 1024
            assert container.is_running
        exit_ = await container.wait()
        assert exit_.exit_code == 0
        assert ATTACHMENT_BYTES < 20_000_000


async def test_a_viewer_that_does_not_read_does_not_hold_up_the_end(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        node.create(make_pod("one", "sh", "-c", "read x; exec cat /dev/zero", stdin=True))
        container = await node.until_running()
        async with container.attach() as stalled:
            await stalled.write_stdin(b"\n")
            await until_true(lambda: stalled.is_full)
            await node.delete(grace_seconds=1)


async def test_input_for_a_container_that_has_ended_is_dropped(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        node.create(make_pod("one", "sh", "-c", "read x", tty=True, stdin=True))
        container = await node.until_running()
        async with container.attach() as attachment:
            await attachment.write_stdin(b"x\n")
            await read_all(attachment)
            await attachment.write_stdin(b"too late\n")
            assert await attachment.read() is None
        await node.until_ended()
        with pytest.raises(ContainerUnavailable) as refused:
            node.agent.container(NAMESPACE, "one", None)
        assert refused.value.status_code == 500
        assert "is not running" in refused.value.message


async def test_a_writer_that_waits_is_let_go_by_the_end_of_the_container(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        node.create(make_pod("one", "sleep", "300", stdin=True))
        container = await node.until_running()
        async with container.attach() as attachment, asyncio.TaskGroup() as group:
            group.create_task(attachment.write_stdin(bytes(1_000_000)))
            await node.delete(grace_seconds=0)
