"""`manage.py serve` beside a cluster whose API accepts requests and does not answer them."""

import asyncio
import re
import statistics
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from tests.builders import create_body
from tests.fakes import FakeApi, hang, open_fake_api
from tests.serving import Process

pytestmark = pytest.mark.timeout(180)

LISTENING = re.compile(r"Listening on (http://127\.0\.0\.1:[0-9]+)$")
SESSIONS = 20
ANSWER_SECONDS = 1.0
HEARTBEAT_SECONDS = 20.0


@asynccontextmanager
async def serving(api: FakeApi, folder: Path) -> AsyncIterator[str]:
    environment = {
        "RUNNER_CLUSTER": "kubeconfig",
        "KUBECONFIG": str(api.kubeconfig(folder)),
        "RUNNER_DATA_DIR": str(folder / "data"),
        "RUNNER_HOST": "127.0.0.1",
        "PORT": "0",
        "RUNNER_BUNDLE_DELIVERY": "inline",
    }
    process = await asyncio.to_thread(Process, "serve", environment=environment)
    try:
        yield (await asyncio.to_thread(process.wait_for, LISTENING))[1]
    finally:
        assert await asyncio.to_thread(process.stop) == 0, "".join(process.output)


async def next_heartbeat(url: str, session: str) -> float:
    """Follow a stream that goes silent, and return the pause before its first comment."""
    async with (
        httpx.AsyncClient(base_url=url, trust_env=False, timeout=60) as http,
        http.stream("GET", f"/v1/sessions/{session}/events") as stream,
    ):
        last_at = time.monotonic()
        async for line in stream.aiter_lines():
            if line.startswith(":"):
                return time.monotonic() - last_at
            last_at = time.monotonic()
    raise AssertionError("the stream ended")


async def test_creates_that_hang_hold_nobody_up(
    tmp_path: Path, times: Callable[[int, int], int]
) -> None:
    async with open_fake_api() as api:
        api.script("create", *[hang] * 1_000)
        async with (
            serving(api, tmp_path) as url,
            httpx.AsyncClient(base_url=url, trust_env=False, timeout=60) as http,
        ):
            made = [await http.post("/v1/sessions", json=create_body()) for _ in range(SESSIONS)]
            assert [answer.status_code for answer in made] == [201] * SESSIONS
            await api.wait_for("create", SESSIONS)
            async with asyncio.TaskGroup() as group:
                # Twenty seconds of silence are only waited for where there is time.
                beats = [
                    group.create_task(next_heartbeat(url, answer.json()["sessionId"]))
                    for answer in made[: times(SESSIONS, 0)]
                ]
                delays: list[float] = []
                while True:
                    began_at = time.monotonic()
                    assert (await http.get("/v1/health")).status_code == 200
                    assert (await http.post("/v1/sessions", json={})).status_code == 400
                    delays.append(time.monotonic() - began_at)
                    if all(beat.done() for beat in beats):
                        break
                    await asyncio.sleep(0.2)
            # The usual delay: a busy machine makes somebody wait now and then.
            assert statistics.median(delays) < 2 * ANSWER_SECONDS, delays
            # One call that blocks would hold somebody up for as long as the cluster hangs.
            assert max(delays) < 5 * ANSWER_SECONDS, delays
            for beat in beats:
                assert beat.result() == pytest.approx(HEARTBEAT_SECONDS, abs=1.5)
