"""An image without `stty` has no start gate: what was printed before the attach comes too, once."""

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.clients import Client
from tests.clusters import ClusterUnderTest
from tests.serving import KERNEL_DIR

pytestmark = pytest.mark.cluster

# What a start needs, and nothing more.
PROGRAMS = ("sh", "tar", "gzip", "env", "python3")
# The folder of the same kind in the image for tests on a real cluster.
IMAGE_FOLDER = "/opt/without-stty"
AT_ONCE = 4

SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"

HELLO = 'import os\nos.write(1, b"first line\\nsecond line\\nno end")\n'
QUESTION = """
import sys
print("first line", flush=True)
for line in sys.stdin:
    print("heard " + line.strip(), flush=True)
    break
"""


@pytest.fixture(name="path")
def path_without_stty(cluster: ClusterUnderTest) -> Iterator[str]:
    """A PATH for the container on which there is no `stty`."""
    if cluster.kind == "real":
        yield IMAGE_FOLDER
        return
    # Not in /tmp, which is the pod's own in a container.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        folder = Path(name)
        for program in PROGRAMS:
            found = shutil.which(program, path=SYSTEM_PATH)
            assert found is not None
            (folder / program).symlink_to(Path(found).resolve())
        (folder / "telo").symlink_to(KERNEL_DIR / "telo")
        yield name


async def test_runs_without_stty_that_exit_at_once_are_told_whole_and_once(
    client: Client, path: str, times: Callable[[int, int], int]
) -> None:
    turns = asyncio.Semaphore(AT_ONCE)

    async def say_hello() -> None:
        async with turns:
            session = await client.create(HELLO, env={"PATH": path})
            assert await client.status(session) == {"kind": "exited", "code": 0}
            assert await client.replay(session) == b"first line\r\nsecond line\r\nno end"

    async with asyncio.TaskGroup() as group:
        for _ in range(times(20, 4)):
            group.create_task(say_hello())


async def test_without_stty_what_is_typed_while_the_beginning_is_looked_for_is_heard(
    client: Client, path: str
) -> None:
    session = await client.create(QUESTION, env={"PATH": path})
    async with client.terminal(session) as terminal:
        await terminal.socket.send(b"Ann\r")
        assert await terminal.drain() == 1000
    assert terminal.output.count(b"first line\r\n") == 1
    assert terminal.output.endswith(b"heard Ann\r\n")
    assert await client.status(session) == {"kind": "exited", "code": 0}
