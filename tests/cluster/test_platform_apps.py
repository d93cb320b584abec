"""Apps of the catalog and usage terms with `serve` and the local cluster: what runs is real."""

import asyncio
import json
import os
import re
import subprocess
import sys
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from telorunner.kube import objects
from tests.clients import Client
from tests.clusters import LOCAL_IMAGE, ClusterUnderTest
from tests.serving import KERNEL_DIR, ROOT, Platform, Process

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

# What a change in another process may take to show.
SHOWN_SECONDS = 1.0
LINES = 3000

TALKS = """
import os, signal, sys, threading
names = ("TOKEN", "OWN", "CLICOLOR_FORCE", "TELO_CACHE_DIR")
print("env", [os.environ.get(name) for name in names], flush=True)
print("tty", [os.isatty(fd) for fd in range(3)], flush=True)
for line in sys.stdin:
    if line.strip() == "bye":
        raise SystemExit(0)
    if line.strip() == "crash":
        raise SystemExit(3)
    print("heard", line.strip(), flush=True)
"""
# All at once, before anybody can attach, and then the end.
FLOODS = f"""
for number in range({LINES}):
    print("line", number)
"""
# A debug server as a kernel has, and a port.
SERVES = """
import os, socket, threading
address = os.environ["TELO_STANDIN_BIND"]
served = socket.create_server((address, 8080))
debug = socket.create_server((address, 9230))
one, _ = debug.accept()
one.recv(65536)
one.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Type: text/event-stream\\r\\n\\r\\n"
            b'data: {"kind": "event", "event": "Started"}\\n\\n')
threading.Event().wait()
"""
PROGRAMS = {"talks": TALKS, "floods": FLOODS, "serves": SERVES}
APPS: dict[str, Any] = {
    "talks": {"image": "apps.test/talks:1", "env": {"TOKEN": "operators $(OWN)"}},
    "floods": {"image": "apps.test/floods:1", "pullPolicy": "never"},
    "serves": {"image": "apps.test/serves:1"},
    "missing": {"image": "apps.test/missing:1", "pullPolicy": "never"},
    # busybox's user is root.
    "root": {"image": "busybox:1"},
}


@pytest.fixture(scope="module", name="cluster")
def local_apps(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterUnderTest]:
    """A local cluster that knows the apps' images and outlives the runner."""
    data_dir = tmp_path_factory.mktemp("apps")
    images = {
        f"apps.test/{name}:1": [sys.executable, "-c", text] for name, text in PROGRAMS.items()
    }
    environment = {
        "RUNNER_CLUSTER": "local",
        "RUNNER_DATA_DIR": str(data_dir),
        "RUNNER_LOCAL_KUBELET_DELAYS": "true",
        "RUNNER_LOCAL_IMAGES": json.dumps(images),
        "RUNNER_APPS": json.dumps(APPS),
        "PATH": f"{KERNEL_DIR}:{os.environ['PATH']}",
    }
    process = Process("runcluster", environment=environment)
    try:
        process.wait_for(re.compile(r"kubeconfig"))
        kubeconfig = data_dir / "localcluster" / "kubeconfig"
        yield ClusterUnderTest(
            "local", data_dir, environment, LOCAL_IMAGE, kubeconfig, "telo-sessions", process
        )
    finally:
        process.stop()


def label_of(folder: Path) -> str:
    return f"runner-{zlib.crc32(str(folder).encode())}"


@contextmanager
def platform(cluster: ClusterUnderTest, folder: Path, **variables: str) -> Iterator[Platform]:
    """A platform with a database and a label of its own."""
    own = {
        "DATABASE_URL": f"sqlite:///{folder}/db.sqlite3",
        # Several work in one cluster here, and each deletes what it does not know.
        "RUNNER_MANAGED_BY": label_of(folder),
    }
    opened = Platform(cluster.data_dir, {**cluster.environment, **own, **variables})
    opened.start()
    try:
        yield opened
    finally:
        if opened.process is not None:
            assert opened.stop() == 0


@asynccontextmanager
async def client_of(platform: Platform) -> AsyncIterator[Client]:
    client = Client(platform.url, LOCAL_IMAGE)
    try:
        yield client
    finally:
        await client.close()


@pytest.fixture(scope="module", name="serving")
def serving_platform(
    cluster: ClusterUnderTest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Platform]:
    """One platform for the tests that need nothing of their own."""
    with platform(cluster, tmp_path_factory.mktemp("database")) as opened:
        yield opened


async def until_nothing_is_left(platform: Platform, cluster: ClusterUnderTest) -> None:
    """Wait until a platform has no object in the cluster any more."""
    await cluster.until_nothing_is_left(platform.environment["RUNNER_MANAGED_BY"])


@pytest.fixture
async def client(serving: Platform) -> AsyncIterator[Client]:
    async with client_of(serving) as opened:
        yield opened


async def ask(client: Client, name: str, **request: Any) -> httpx.Response:
    return await client.http.post(f"/v1/apps/{name}/sessions", **request)


async def start(client: Client, name: str, **body: Any) -> str:
    answer = await ask(client, name, json=body)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["sessionId"])


def change(platform: Platform, code: str) -> None:
    """Change the catalog in a process of its own, as an admin that is served elsewhere does."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), "shell", "-v", "0", "-c", code],
        env={**os.environ, **platform.environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout


async def test_an_app_runs_with_its_own_entrypoint_env_and_terminal(
    client: Client, serving: Platform, cluster: ClusterUnderTest
) -> None:
    env = {"TOKEN": "clients", "OWN": "$(TOKEN) $$", "TELO_CACHE_DIR": "/x"}
    session = await start(client, "talks", env=env)
    async with client.terminal(session) as terminal:
        await terminal.until(b"tty")
        await terminal.resize(100, 40)
        await terminal.socket.send(b"hello\r")
        await terminal.until(b"heard hello")
        await terminal.socket.send(b"bye\r")
        assert await terminal.drain() == 1000
    printed = bytes(terminal.output).decode()
    assert "env ['operators $(OWN)', '$(TOKEN) $$', '1', None]" in printed
    assert "tty [True, True, True]" in printed
    assert terminal.texts[0] == {"type": "seq", "seq": 0, "app": "app", "io": "tty"}
    events = [event for _, event in await client.events(session)]
    kinds = [event["status"]["kind"] for event in events if event["type"] == "status"]
    assert kinds == ["starting", "running", "exited"]
    assert events[-1]["status"] == {"kind": "exited", "code": 0}
    assert "Delivering application" not in str(events)
    document = (await client.http.get(f"/v1/sessions/{session}")).json()
    assert document["apps"] == [{"name": "app", "io": "tty", "generation": 0, "ports": []}]
    await until_nothing_is_left(serving, cluster)


async def test_an_end_with_another_code_fails(client: Client) -> None:
    session = await start(client, "talks")
    async with client.terminal(session) as terminal:
        await terminal.until(b"tty")
        await terminal.socket.send(b"crash\r")
        assert await terminal.drain() == 1000
    assert await client.status(session) == {
        "kind": "failed",
        "message": 'container "session" failed: Error (exit code 3)',
    }


async def test_a_stop_ends_it(client: Client, serving: Platform, cluster: ClusterUnderTest) -> None:
    session = await start(client, "talks")
    await client.until_running(session)
    assert (await client.http.delete(f"/v1/sessions/{session}")).status_code == 204
    assert await client.status(session) == {"kind": "stopped"}
    await until_nothing_is_left(serving, cluster)


async def test_nothing_of_what_is_written_before_the_attach_is_lost_or_doubled(
    client: Client,
) -> None:
    async with asyncio.TaskGroup() as group:
        starts = [group.create_task(start(client, "floods")) for _ in range(4)]
    expected = [f"line {number}" for number in range(LINES)]
    for begun in starts:
        session = begun.result()
        assert await client.status(session) == {"kind": "exited", "code": 0}
        assert (await client.replay(session)).decode().splitlines() == expected


async def test_declared_ports_and_a_debug_stream_that_the_image_serves(client: Client) -> None:
    ports = [{"port": 8080, "protocol": "tcp"}]
    session = await start(client, "serves", ports=ports, inspect=True)
    seen = set[str]()
    async for _, event in client.follow(session):
        if event["type"] == "status" and event["status"]["kind"] == "running":
            assert event["status"]["endpoints"] == [{"host": "", **ports[0]}]
        if event["type"] == "debug":
            assert event["frame"] == {"kind": "event", "event": "Started"}
            seen.add("debug")
        if event["type"] == "reachability" and event["state"] == "reachable":
            seen.add("reachable")
        if seen == {"debug", "reachable"}:
            break
    await client.http.delete(f"/v1/sessions/{session}")
    assert await client.status(session) == {"kind": "stopped"}


async def test_what_is_wrong_with_an_app_is_told_in_words(client: Client) -> None:
    missing, root = await start(client, "missing"), await start(client, "root")
    told = await client.status(missing)
    assert "ErrImageNeverPull" in told["message"]
    assert "the app's pull policy" in told["message"]
    told = await client.status(root)
    assert "image will run as root" in told["message"]
    assert told["message"].endswith("or set its allow_root")


ROOTED = (
    "from catalog.models import App\n"
    "App.objects.create(name='rooted', image='busybox:1', allow_root=True)"
)


async def test_an_app_that_may_run_as_root_is_refused_where_the_namespace_is_strict(
    serving: Platform, client: Client
) -> None:
    change(serving, ROOTED)
    told = await client.status(await start(client, "rooted"))
    assert told["kind"] == "failed"
    assert "Pod Security level refuses this pod" in told["message"]


async def test_an_app_that_may_run_as_root_does_where_the_namespace_admits_it(
    cluster: ClusterUnderTest, tmp_path: Path
) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "open"}}
    async with cluster.opened() as kube:
        await objects.create(kube, "namespaces", namespace)
    with platform(cluster, tmp_path, RUNNER_SESSION_NAMESPACE="open") as opened:
        change(opened, ROOTED)
        async with client_of(opened) as client:
            session = await start(client, "rooted")
            async with client.terminal(session) as terminal:
                await terminal.socket.send(b"echo $((40 + 2)); exit\r")
                await terminal.until(b"\n42")
                assert await terminal.drain() == 1000
            assert await client.status(session) == {"kind": "exited", "code": 0}


async def test_a_disabled_app_is_unknown_at_the_next_request(
    cluster: ClusterUnderTest, tmp_path: Path
) -> None:
    with platform(cluster, tmp_path) as opened:
        async with client_of(opened) as client:
            session = await start(client, "talks")
            await client.until_running(session)
            disable = "from catalog.models import App\nApp.objects.filter(name='talks')"
            change(opened, f"{disable}.update(enabled=False)")
            answer = await ask(client, "talks")
            assert (answer.status_code, answer.json()["error"]) == (404, "unknown_app")
            change(opened, f"{disable}.delete()")
            # Its session stays, whole.
            async with client.terminal(session) as terminal:
                await terminal.socket.send(b"still\r")
                await terminal.until(b"heard still")
                await terminal.socket.send(b"bye\r")
                assert await terminal.drain() == 1000
            assert await client.status(session) == {"kind": "exited", "code": 0}


async def test_app_sessions_go_on_after_a_restart(
    cluster: ClusterUnderTest, tmp_path: Path
) -> None:
    with platform(cluster, tmp_path) as opened:
        async with client_of(opened) as client:
            session = await start(client, "talks", env={"OWN": "kept"})
            async with client.terminal(session) as terminal:
                await terminal.until(b"tty")
                number = terminal.numbers[-1]
        assert opened.stop() == 0
        opened.start()
        async with client_of(opened) as client:
            async with client.terminal(session, last_seq=number) as terminal:
                await terminal.socket.send(b"again\r")
                await terminal.until(b"heard again")
                assert min(terminal.numbers) > number
                await terminal.socket.send(b"bye\r")
                assert await terminal.drain() == 1000
            assert await client.status(session) == {"kind": "exited", "code": 0}
            await until_nothing_is_left(opened, cluster)


async def until_terms(client: Client, version: str) -> None:
    """Wait until the capabilities show a version of the terms, as long as that may take."""
    async with asyncio.timeout(SHOWN_SECONDS):
        shown = ""
        while shown != version:
            capabilities = (await client.http.get("/v1/capabilities")).json()
            shown = capabilities.get("terms", {}).get("version", "")


async def test_terms_are_asked_for_until_the_current_ones_are_accepted(
    cluster: ClusterUnderTest, tmp_path: Path
) -> None:
    variables = {"RUNNER_TERMS_BODY": "Be kind.", "RUNNER_TERMS_VERSION": "v1"}
    with platform(cluster, tmp_path, **variables) as opened:
        async with client_of(opened) as client:
            asked = await client.ask_to_create("print(1)\n")
            terms = {"version": "v1", "title": "Usage agreement", "body": "Be kind."}
            for answer in (asked, await ask(client, "talks")):
                assert answer.status_code == 428
                assert answer.json()["error"] == "terms_required"
                assert answer.json()["terms"] == terms
            client.http.headers["x-telo-accepted-terms"] = "v1"
            first = await start(client, "talks")
            assert (await client.ask_to_create("print(1)\n")).status_code == 201
            change(
                opened,
                "from catalog.models import Terms\n"
                "assert Terms.objects.get().accepted_count == 2\n"
                "Terms.objects.update(is_current=False)\n"
                "Terms.objects.create(version='v2', body='Be kinder.', is_current=True)",
            )
            await until_terms(client, "v2")
            answer = await ask(client, "talks")
            assert (answer.status_code, answer.json()["terms"]["version"]) == (428, "v2")
            assert (await client.ask_to_create("print(1)\n")).status_code == 428
            client.http.headers["x-telo-accepted-terms"] = "v2"
            second = await start(client, "talks")
            # What was started under the old ones goes on.
            for session in (first, second):
                await client.until_running(session)
                await client.http.delete(f"/v1/sessions/{session}")
                assert await client.status(session) == {"kind": "stopped"}
