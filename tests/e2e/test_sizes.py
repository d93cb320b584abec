"""What just fits runs on a real cluster, and what does not is refused before there is a session."""

import base64
import random
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from sessions.bundles import INLINE_MAX_BYTES, pack
from telorunner.conf import Settings
from tests.e2e.conftest import Served, Serving

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

EXITED = {"kind": "exited", "code": 0}

# Linux takes 128 KiB a string, its end and the "=" included; and what all of it may be.
VARIABLE_BYTES = 131_072 - 2
ALL_VARIABLES_BYTES = 1_048_576

# What is in a runtime's pipe at the exit may be lost there, in the log too.
ENVIRONMENT = """
import os, time
given = {name: value for name, value in os.environ.items() if name[0] == "V"}
print({name: [len(value), len(set(value))] for name, value in given.items()}, flush=True)
time.sleep(1)
"""
DATA = """
import os
print(os.path.getsize("/app/data"), os.path.exists("/bundle"))
"""


@pytest.fixture
async def client(serve: Serving) -> AsyncIterator[Served]:
    async with serve() as client:
        yield client


async def output(client: Served, session: str) -> bytes:
    events = [event for _, event in await client.events(session)]
    assert events[-1]["status"] == EXITED, events
    return await client.replay(session)


async def test_an_environment_of_exactly_the_limits_reaches_the_application(
    client: Served,
) -> None:
    env = {f"V{number}": "x" * (VARIABLE_BYTES - 2) for number in range(8)}
    env["V"] = "x" * (ALL_VARIABLES_BYTES - 8 * VARIABLE_BYTES - 1)
    session = await client.create(ENVIRONMENT, env=env)
    found = orjson.loads((await output(client, session)).replace(b"'", b'"'))
    assert found == {name: [len(value), 1] for name, value in env.items()}


# Each is longer where the API server, the kubelet or the database takes it; the last is many.
SWELLING = {
    "for the kubelet": {f"V{number}": "$" * 100_000 for number in range(8)},
    "in JSON": {f"V{number}": "\u0001" * 100_000 for number in range(8)},
    "in JSON too": {f"V{number}": '"' * 100_000 for number in range(8)},
    "in UTF-8": {f"V{number}": "\u20ac" * 40_000 for number in range(8)},
    "by names": {f"V{number:030}": "x" for number in range(10_000)},
}


async def test_an_environment_that_swells_on_its_way_runs_or_is_refused_at_once(
    client: Served,
) -> None:
    for env in SWELLING.values():
        entries = list(env.items())
        # The most that is taken is the most that must run.
        for eighths in range(8, 0, -1):
            taken = dict(entries[: len(env) * eighths // 8])
            answer = await client.ask_to_create(ENVIRONMENT, env=taken)
            if answer.status_code == 201:
                break
            assert [issue["path"] for issue in answer.json()["issues"]] == ["/env"]
        found = await output(client, answer.json()["sessionId"])
        expected = {name: [len(value), 1] for name, value in taken.items()}
        assert orjson.loads(found.replace(b"'", b'"')) == expected


def bundle_of_archive(size_bytes: int) -> tuple[dict[str, Any], int]:
    """Return a bundle whose archive is of exactly this size, and the size of its data."""
    chance = random.Random(5)
    length = size_bytes - 400
    for _ in range(100):
        # Chance does not shrink: each byte more is a byte of archive more, or nearly so.
        data = chance.randbytes(length)
        missing = size_bytes - len(pack({"main.yaml": DATA.encode(), "data": data}))
        if not missing:
            break
        length += missing
    else:
        raise AssertionError(f"no archive of {size_bytes} bytes")
    encoded = base64.b64encode(data).decode()
    files = [
        {"relativePath": "main.yaml", "contents": DATA},
        {"relativePath": "data", "contents": encoded, "encoding": "base64"},
    ]
    return {"entryRelativePath": "main.yaml", "files": files}, len(data)


async def test_an_archive_travels_inline_up_to_exactly_the_limit(serve: Serving) -> None:
    async with serve(fetching=True) as client:
        for more_bytes in (0, 1):
            bundle, length = bundle_of_archive(INLINE_MAX_BYTES + more_bytes)
            session = await client.create("", bundle=bundle)
            is_inline = not more_bytes
            assert await output(client, session) == f"{length} {is_inline}\r\n".encode()


async def test_a_request_of_exactly_the_limit_runs_and_a_byte_more_is_refused(
    serve: Serving,
) -> None:
    limit_bytes = Settings().max_bundle_bytes
    chance = random.Random(6)
    async with serve(fetching=True) as client:

        def body(length: int) -> bytes:
            """Return a request with this much text in its data file."""
            files = [
                {"relativePath": "main.yaml", "contents": DATA},
                {"relativePath": "data", "contents": text[:length]},
            ]
            return orjson.dumps(
                {
                    "bundle": {"entryRelativePath": "main.yaml", "files": files},
                    "env": {},
                    "config": {"image": client.image, "pullPolicy": "missing"},
                    "limits": {"cpu": "200m"},
                }
            )

        text = chance.randbytes(limit_bytes // 2 + 1).hex()
        length = limit_bytes - len(body(0))
        headers = {"content-type": "application/json"}
        refused = await client.http.post("/v1/sessions", content=body(length + 1), headers=headers)
        assert (refused.status_code, refused.json()["error"]) == (413, "bundle_too_large")
        made = await client.http.post("/v1/sessions", content=body(length), headers=headers)
        assert made.status_code == 201
        session = made.json()["sessionId"]
        assert await output(client, session) == f"{length} False\r\n".encode()
