"""Bundles on their way to the pod: by URL and inline, byte for byte the same files."""

import asyncio
import base64
import hashlib
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.clients import Client
from tests.clusters import ClusterUnderTest
from tests.serving import Platform

pytestmark = pytest.mark.cluster

# Prints one digest of all paths and contents, and how many files there are and whose modes.
DIGEST = b"""
import hashlib, os, sys
root = os.fsencode(os.path.dirname(sys.argv[0]))
digest, count = hashlib.sha256(), 0
paths = sorted(os.path.join(parent, name) for parent, _, names in os.walk(root) for name in names)
for path in paths:
    with open(path, "rb") as file:
        contents = file.read()
    digest.update(b"%d %s %d " % (len(path) - len(root), path[len(root) + 1:], len(contents)))
    digest.update(contents)
    assert os.stat(path).st_uid == os.getuid()
print(digest.hexdigest(), len(paths))
"""

ODD_FILES = {
    "-rf.yaml": b"dash",
    "$(id) `id` ${HOME}.yaml": b"substitution",
    "a;b & c | d.yaml": b"shell",
    "100%, %2e%2e/%41.txt": b"percent",
    'it\'s "quoted".txt': b"quotes",
    "new\nline/tab\there.txt": b"control",
    " leading and trailing ": b"spaces",
    "*?[x].txt": b"pattern",
    "é.txt": b"composed",
    "e\u0301.txt": b"decomposed",
    "é" * 60 + "/" + "日本" * 30 + ".txt": b"letters",
    "s" * 255: b"a whole segment",
    "/".join(["p" * 100] * 39): b"a long path",
    "a" * 100 + "1.yaml": b"first",
    "a" * 100 + "2.yaml": b"second",
    "x" * 101: b"101",
    "y" * 150: b"150",
    "z" * 150 + "/" + "z" * 149: b"300",
    "empty": b"",
    "crlf": b"\xef\xbb\xbfone\r\ntwo\r\n",
    "binary": bytes(range(256)),
    ".hidden/.file": b"hidden",
}


Serving = Callable[[str], AbstractAsyncContextManager[Client]]


@pytest.fixture
def serving(cluster: ClusterUnderTest, tmp_path: Path) -> Serving:
    """Return a context manager that serves with a delivery and has a client of it."""
    if cluster.fetching is None:
        pytest.skip("TELORUNNER_TEST_SELF_HOST and _INIT_IMAGE do not say how to fetch there")
    environment = {
        **cluster.fetching,
        "DATABASE_URL": f"sqlite:///{tmp_path}/db.sqlite3",
        "LOG_LEVEL": "debug",
    }

    @asynccontextmanager
    async def serve(delivery: str) -> AsyncIterator[Client]:
        variables = {**environment, "RUNNER_BUNDLE_DELIVERY": delivery}
        platform = Platform(cluster.data_dir, variables)
        await asyncio.to_thread(platform.start)
        assert platform.process is not None
        output = platform.process.output
        client = Client(platform.url, cluster.image)
        try:
            yield client
        finally:
            await client.close()
            code = await asyncio.to_thread(platform.stop)
        assert code == 0
        assert not [line for line in output if "token=" in line]

    return serve


def digest(files: Mapping[str, bytes]) -> bytes:
    """Return what DIGEST prints of the files."""
    whole = hashlib.sha256()
    paths = {path.encode(): contents for path, contents in files.items()}
    for path, contents in sorted(paths.items()):
        whole.update(b"%d %s %d " % (len(path) + 1, path, len(contents)))
        whole.update(contents)
    return b"%s %d\r\n" % (whole.hexdigest().encode(), len(files))


def bundle(files: Mapping[str, bytes]) -> dict[str, Any]:
    listed = [
        {
            "relativePath": path,
            "contents": base64.b64encode(contents).decode(),
            "encoding": "base64",
        }
        for path, contents in files.items()
    ]
    return {"entryRelativePath": "main.yaml", "files": listed}


async def run(client: Client, files: Mapping[str, bytes]) -> bytes:
    """Run a bundle to its good end and return its output."""
    session = await client.create("", bundle=bundle(files), limits={"cpu": "500m"})
    events = [event for _, event in await client.events(session)]
    assert events[-1]["status"] == {"kind": "exited", "code": 0}, events
    return await client.replay(session)


# Ten thousand files take a while to unpack on a slow node.
@pytest.mark.timeout(300)
@pytest.mark.parametrize("delivery", ["fetch", "auto"])
async def test_both_deliveries_leave_the_same_files_whatever_their_names(
    serving: Serving, cluster: ClusterUnderTest, times: Callable[[int, int], int], delivery: str
) -> None:
    tiny = {f"{number % 100}/{number}": b"%d" % number for number in range(times(10_000, 200))}
    files = {"main.yaml": DIGEST, **ODD_FILES, **tiny}
    async with serving(delivery) as client:
        assert await run(client, files) == digest(files)
        # What a session had goes after its last status.
        await cluster.until_nothing_is_left()


async def test_what_is_too_large_for_a_config_map_is_fetched(
    serving: Serving, cluster: ClusterUnderTest, times: Callable[[int, int], int]
) -> None:
    chance = random.Random(12)
    async with serving("auto") as client:
        # The largest one comes close to what a request body may be.
        for size in (1_200_000, 7_800_000)[: times(2, 1)]:
            files = {"main.yaml": DIGEST, "data": chance.randbytes(size)}
            assert await run(client, files) == digest(files)
            assert await cluster.objects("configmaps") == []


async def test_what_a_fetched_bundle_prints_at_once_is_told_whole_and_once(
    serving: Serving, times: Callable[[int, int], int]
) -> None:
    # Nothing waits for a terminal here, and the last line is not ended.
    files = {"main.yaml": b'import os\nos.write(1, b"first line\\nsecond line\\nno end")\n'}
    turns = asyncio.Semaphore(3)

    async def say_hello(client: Client) -> None:
        async with turns:
            assert await run(client, files) == b"first line\r\nsecond line\r\nno end"

    async with serving("fetch") as client, asyncio.TaskGroup() as group:
        for _ in range(times(20, 3)):
            group.create_task(say_hello(client))
