"""Apps of the catalog on a real node: the image's own entrypoint and user, confined from outside.

The app is the test kernel's image, whose own entrypoint is Python: a prompt that takes programs.
"""

import json
import os
import re
from typing import Any

import orjson
import pytest

from tests.clusters import ClusterUnderTest
from tests.e2e.conftest import Served, Serving
from tests.realcluster import kubectl

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

# What is typed is echoed: what is looked for must not stand in it.
LOOK = "; ".join(
    (
        "import json, os",
        'status = dict(line.split(":\\t", 1) for line in open("/proc/self/status"))',
        "number = lambda name: int(status[name].split()[0], 16)",
        'print("fo" + "und", json.dumps({"ids": [os.getuid(), os.getgid()], '
        '"capabilities": [number(name) for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb")], '
        '"alone": [number("NoNewPrivs"), number("Seccomp")], '
        '"writable": [path for path in ("/", "/etc", "/tmp", os.path.expanduser("~")) '
        "if os.access(path, os.W_OK)], "
        '"account": os.path.exists("/var/run/secrets/kubernetes.io"), '
        '"env": [os.environ.get(name) for name in '
        '("TOKEN", "OWN", "CLICOLOR_FORCE", "TELO_CACHE_DIR")]}), "end")',
    )
)
FOUND = re.compile(rb"found (\{.*\}) end")
SIZE = 'import os; print("si" + "ze", *os.get_terminal_size())'
# Python's own way to write hundreds of lines before its prompt.
VERBOSE = {"PYTHONVERBOSE": "1"}


def catalog(prepared: ClusterUnderTest, **fields: Any) -> dict[str, str]:
    """Return the variable that seeds the catalog with the one app of these tests."""
    return {"RUNNER_APPS": json.dumps({"prompt": {"image": prepared.image, **fields}})}


async def start(client: Served, **body: Any) -> str:
    answer = await client.http.post("/v1/apps/prompt/sessions", json=body)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["sessionId"])


async def test_an_app_is_confined_and_otherwise_its_own(
    serve: Serving, prepared: ClusterUnderTest
) -> None:
    env = {"TOKEN": "operators $(OWN)"}
    async with serve(RUNNER_APP_MAX_CPU="200m", **catalog(prepared, env=env)) as client:
        session = await start(
            client, env={"TOKEN": "clients", "OWN": "$$(TOKEN)", "TELO_CACHE_DIR": "/x"}
        )
        async with client.terminal(session) as terminal:
            await terminal.until(b"Python 3")
            pod = orjson.loads(
                kubectl("get", "pod", f"telo-run-{session}", "-n", prepared.namespace, "-ojson")
            )
            assert pod["metadata"]["labels"]["telo.run/app"] == "prompt"
            assert "runAsUser" not in pod["spec"]["containers"][0]["securityContext"]
            await terminal.socket.send(f"{LOOK}\r".encode())
            await terminal.until(b" end\r\n")
            await terminal.resize(101, 37)
            # A size travels beside the keys, and may come behind them.
            while b"size 101 37" not in terminal.output:
                told = terminal.output.count(b"\nsize ")
                await terminal.socket.send(f"{SIZE}\r".encode())
                while terminal.output.count(b"\nsize ") == told:
                    await terminal.receive()
            await terminal.socket.send(b"exit()\r")
            assert await terminal.drain() == 1000
        assert await client.status(session) == {"kind": "exited", "code": 0}
    found = FOUND.search(terminal.output)
    assert found is not None
    assert orjson.loads(found[1]) == {
        "ids": [1000, 1000],
        "capabilities": [0, 0, 0, 0],
        "alone": [1, 2],
        # The image's own filesystem, as far as its user may write there.
        "writable": ["/tmp", "/home/user"],  # noqa: S108 - the pod's own
        "account": False,
        "env": ["operators $(OWN)", "$$(TOKEN)", "1", None],
    }


async def test_what_is_written_before_the_attach_comes_once(
    serve: Serving, prepared: ClusterUnderTest
) -> None:
    async with serve(RUNNER_APP_MAX_CPU="200m", **catalog(prepared, env=VERBOSE)) as client:
        session = await start(client)
        async with client.terminal(session) as terminal:
            await terminal.until(b"Python 3")
            await terminal.socket.send(b"exit(3)\r")
            assert await terminal.drain() == 1000
        status = await client.status(session)
        assert status["kind"] == "failed"
        assert "(exit code 3)" in status["message"]
        lines = (await client.replay(session)).decode(errors="replace").splitlines()
    begun = [line for line in lines if line.startswith("import _frozen_importlib #")]
    assert len(begun) == 1, lines[:20]
    assert sum(line.startswith("Python 3") for line in lines) == 1


async def test_an_app_is_adopted_after_a_restart_and_stopped(
    serve: Serving, prepared: ClusterUnderTest
) -> None:
    variables = {"RUNNER_APP_MAX_CPU": "200m", **catalog(prepared)}
    async with serve(**variables) as client:
        session = await start(client)
        async with client.terminal(session) as terminal:
            await terminal.until(b"Python 3")
            number = terminal.numbers[-1]
        await client.until_running(session)
    async with serve(**variables) as client:
        async with client.terminal(session, last_seq=number) as terminal:
            await terminal.socket.send(b'print("st" + "ill here")\r')
            await terminal.until(b"still here")
            assert min(terminal.numbers) > number
        assert (await client.http.delete(f"/v1/sessions/{session}")).status_code == 204
        assert await client.status(session) == {"kind": "stopped"}
    await prepared.until_nothing_is_left()


async def test_an_image_that_runs_as_root_says_what_to_do(
    serve: Serving, prepared: ClusterUnderTest
) -> None:
    image = os.environ.get("TELORUNNER_TEST_BUSYBOX_IMAGE")
    if not image:
        pytest.skip("TELORUNNER_TEST_BUSYBOX_IMAGE names no image on the real cluster")
    async with serve(**catalog(prepared, image=image)) as client:
        status = await client.status(await start(client))
    assert status["kind"] == "failed"
    assert "CreateContainerConfigError" in status["message"]
    assert "image will run as root" in status["message"]
    assert status["message"].endswith("or set its allow_root")
