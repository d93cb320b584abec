"""Marked secrets go through a whole platform, and then all that it left is searched for them.

Where a secret has to be is left out, and nothing else: what the local cluster keeps (a pod's
manifest names its environment, as it does in etcd; Kubernetes is what keeps readers from it), and
the sealed value in the database, which must not be there in clear.
"""

import base64
import os
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.evidence import (
    Admin,
    Evidence,
    Watched,
    cluster,
    make_superuser,
    manifests,
    new_mark,
    platform,
    search_files,
)
from tests.serving import KERNEL_DIR

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

ENV, REGISTRY, OPERATOR, CONTENTS = MARKS = (
    new_mark("envmark"),
    new_mark("regmark"),
    new_mark("opsmark"),
    new_mark("filemark"),
)

# What must have been searched.
SOURCES = ("the output of serve", "the output of runcluster", "the file telorunner.sqlite3")

WAITS = "import sys\nprint('ready', flush=True)\nsys.stdin.readline()\n"
ENDS = "raise SystemExit({code})\n"
RAISES = "import os\nassert os.environ['SECRET']\nraise RuntimeError('crash')\n"
TOKEN = re.compile(r"\b[0-9a-f]{48}\b")


def test_a_leak_would_be_found() -> None:
    for what in (
        ENV,
        f"x{ENV}",
        base64.b64encode(f"{{{ENV}}}".encode()).decode(),
        ENV.encode().hex(),
    ):
        evidence = Evidence(set(MARKS))
        evidence.keep("somewhere", what)
        assert evidence.leaks() == [f"{ENV[:7]}… in 0 somewhere"]


async def start(client: Watched, program: str, **fields: Any) -> str:
    """Create a session that is full of secrets."""
    files = [("telo.yaml", program), ("secret.txt", CONTENTS)]
    given: dict[str, Any] = {
        "bundle": {
            "entryRelativePath": "telo.yaml",
            "files": [{"relativePath": path, "contents": text} for path, text in files],
        },
        "env": {"SECRET": ENV, "OTHER": f"https://user:{ENV}@host/"},
        "config": {
            "image": client.image,
            "pullPolicy": "missing",
            "registryUrl": f"https://user:{REGISTRY}@registry.example/",
        },
    }
    return await client.create(program, **{**given, **fields})


def wrong_bodies() -> Iterator[bytes]:
    """Yield requests that have a secret where it is refused."""
    env, url = f'"{ENV}"', f'"{REGISTRY}"'
    good = {"env": f'{{"A": {env}}}', "files": "[]", "config": f'{{"registryUrl": {url}}}'}
    yield f'{{"env": {good["env"]}'.encode()
    for env_given in (env, f"[{env}]", f'{{"A": [{env}]}}', f'{{"A": {{"B": {env}}}}}'):
        yield f'{{"env": {env_given}}}'.encode()
    for text in (f"{ENV}\\u0000", f"{ENV}\\ud800", ENV + "x" * 140_000):
        yield f'{{"bundle": {{}}, "env": {{"A": "{text}"}}, "config": {{}}}}'.encode()
    for given in (f"[{url}]", f'"{REGISTRY}{"x" * 3000}"', f'"{REGISTRY}\\u0000"'):
        yield f'{{"env": {good["env"]}, "config": {{"registryUrl": {given}}}}}'.encode()
    for encoding in ("base64", "utf8", CONTENTS):
        file = f'{{"relativePath": "a", "encoding": "{encoding}", "contents": "{CONTENTS}\\u0000"}}'
        yield f'{{"bundle": {{"files": [{file}]}}, "env": {good["env"]}}}'.encode()
    yield f'{{"limits": {{"cpu": {env}, "memory": {env}}}, "inspect": {env}}}'.encode()
    yield f'{{"ports": [{{"port": {env}, "protocol": {env}}}], "apps": {env}}}'.encode()


async def ask_wrongly(client: Watched) -> None:
    """Send secrets where they do not belong."""
    for body in wrong_bodies():
        headers = {"content-type": "application/json"}
        answer = await client.http.post("/v1/sessions", content=body, headers=headers)
        assert answer.status_code == 400, answer.text
    for path in ("/v1/sessions", "/v1/probe", f"/v1/sessions/abc?x={ENV}", f"/v1/x?token={ENV}"):
        await client.http.get(path, headers={"authorization": f"Bearer {ENV}", "cookie": ENV})
        await client.http.post(path, content=ENV, headers={"last-event-id": ENV})
    await client.http.get(f"/internal/bundles/{'a' * 12}?token={ENV}")
    for path in ("/v1/capabilities", "/v1/health", "/readyz", "/v1/openapi.json", "/v1/docs"):
        await client.http.get(path)


async def run_sessions(client: Watched, kubeconfig: Path) -> str:
    """Let sessions end in each way; return one that still runs."""
    lasting = await start(client, WAITS)
    await client.until_running(lasting)
    # They did go through, and the token of a fetched delivery stands there too.
    pods = await manifests(kubeconfig)
    assert ENV in pods
    assert REGISTRY in pods
    client.evidence.marks |= set(TOKEN.findall(pods))
    stopped = await start(client, WAITS)
    await client.until_running(stopped)
    await client.http.delete(f"/v1/sessions/{stopped}")
    ended = [
        stopped,
        await start(client, ENDS.format(code=3)),
        await start(client, RAISES),
        await start(client, ENDS.format(code=0), limits={"ttlSeconds": 1}),
    ]
    for session in ended:
        await client.look(session)
    return lasting


@pytest.mark.parametrize(
    ("level", "delivery"), [("debug", "fetch"), ("info", "inline"), ("debug", "inline")]
)
async def test_a_secret_stands_nowhere(
    tmp_path: Path, times: Callable[[int, int], int], level: str, delivery: str
) -> None:
    if (level, delivery) != ("debug", "fetch") and not times(1, 0):
        pytest.skip("needs --full-counts")
    evidence = Evidence(set(MARKS))
    environment = {
        "RUNNER_CLUSTER": "local",
        "RUNNER_DATA_DIR": str(tmp_path),
        "RUNNER_BUNDLE_DELIVERY": delivery,
        "TELO_REGISTRY_URL": f"https://user:{OPERATOR}@registry.example/",
        "LOG_LEVEL": level,
        "PATH": f"{KERNEL_DIR}:{os.environ['PATH']}",
        "PORT": "0",
    }
    async with AsyncExitStack() as stack:
        kubeconfig = stack.enter_context(cluster(environment, evidence))
        with platform(tmp_path, environment, evidence) as first:
            make_superuser(environment)
            client = await stack.enter_async_context(Watched(first.url, evidence))
            lasting = await run_sessions(client, kubeconfig)
            assert len(evidence.marks) > 4 or delivery == "inline"
            await ask_wrongly(client)
            search_files(tmp_path, evidence)
            async with Admin(first.url, evidence) as admin:
                assert await admin.read_all() > 10
        # Another key, and an image that cannot be pulled.
        changed = {
            "DJANGO_SECRET_KEY": secrets.token_hex(32),
            "RUNNER_IMAGE": "nowhere.invalid/image:1",
            "RUNNER_IMAGE_PULL_GRACE_SECONDS": "0",
        }
        with platform(tmp_path, {**environment, **changed}, evidence) as second:
            client = await stack.enter_async_context(Watched(second.url, evidence))
            client.image = changed["RUNNER_IMAGE"]
            await client.look(await start(client, WAITS))
            await client.http.delete(f"/v1/sessions/{lasting}")
            await client.look(lasting)
            search_files(tmp_path, evidence)
    search_files(tmp_path, evidence)
    assert evidence.leaks() == []
    for name in (*SOURCES, "event 1"):
        assert evidence.has(name), name
