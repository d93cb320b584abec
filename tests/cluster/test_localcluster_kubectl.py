"""The local cluster as kubectl sees it: the real program, the real node agent, real processes."""

import asyncio
import shutil
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import pytest

from telorunner.localcluster.cluster import ClusterSettings, LocalCluster, open_local_cluster

KUBECTL = shutil.which("kubectl")
WAIT_SECONDS = 30.0

pytestmark = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not on PATH")


class Kubectl:
    """Runs kubectl against one cluster, in its default namespace."""

    def __init__(self, cluster: LocalCluster, home: Path) -> None:
        self.cluster = cluster
        self._environment = {
            "KUBECONFIG": str(cluster.kubeconfig),
            "HOME": str(home),
            "PATH": "/usr/bin:/bin",
        }

    @asynccontextmanager
    async def start(self, *arguments: str) -> AsyncIterator[Process]:
        """Start kubectl; it is ended with the block."""
        assert KUBECTL is not None
        process = await asyncio.create_subprocess_exec(
            KUBECTL,
            "--namespace=default",
            *arguments,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env=self._environment,
        )
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()

    async def __call__(self, *arguments: str, stdin: bytes = b"", code: int = 0) -> str:
        """Run kubectl to its end and return its output."""
        async with self.start(*arguments) as process:
            out, err = await process.communicate(stdin)
        assert process.returncode == code, f"{arguments}: {err.decode()}{out.decode()}"
        return out.decode() + (err.decode() if code else "")

    async def make_pod(self, name: str, script: str, **container: object) -> None:
        """Make a pod that runs a shell script, and wait until it has been taken up."""
        main = {
            "name": "session",
            "image": "busybox",
            "command": ["sh", "-c", script],
            **container,
        }
        spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [main]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        made = await self("apply", "-f", "-", stdin=orjson.dumps(pod))
        assert made == f"pod/{name} created\n"

    async def wait_phase(self, name: str, phase: str) -> None:
        """Wait until a pod is in a phase."""
        await self("wait", "--for", f"jsonpath={{.status.phase}}={phase}", f"pod/{name}")


@pytest.fixture
async def kubectl(tmp_path: Path) -> AsyncIterator[Kubectl]:
    async with open_local_cluster(ClusterSettings(data_dir=tmp_path)) as cluster:
        yield Kubectl(cluster, tmp_path)


async def test_get_prints_tables(kubectl: Kubectl) -> None:
    assert "local   Ready" in await kubectl("get", "nodes")
    namespaces = await kubectl("get", "ns", "--no-headers")
    assert [line.split()[:2] for line in namespaces.splitlines()] == [
        ["default", "Active"],
        ["kube-public", "Active"],
        ["kube-system", "Active"],
        ["telo-sessions", "Active"],
    ]
    assert "Server Version: v1.34.4" in await kubectl("version")


async def test_a_pod_runs_and_tells_its_log(kubectl: Kubectl) -> None:
    await kubectl.make_pod("hi", "echo hi; sleep 0.2")
    await kubectl.wait_phase("hi", "Succeeded")
    assert await kubectl("logs", "hi") == "hi\n"
    header, line = (await kubectl("get", "pods", "-o", "wide")).splitlines()
    assert header.split()[:5] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert line.split()[:4] == ["hi", "0/1", "Completed", "0"]
    told = await kubectl("describe", "pod", "hi")
    assert "Status:           Succeeded" in told
    assert "Successfully assigned default/hi to local" in told
    assert "Started container session" in told
    assert "hi" in await kubectl("get", "events")


async def test_a_log_is_followed_to_its_end(kubectl: Kubectl) -> None:
    script = 'trap "echo two; exit 0" TERM; echo one; while :; do sleep 0.05; done'
    await kubectl.make_pod("talk", script)
    await kubectl.wait_phase("talk", "Running")
    async with kubectl.start("logs", "-f", "talk") as process:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"one\n"
        await kubectl("delete", "pod", "talk", "--wait=false", "--grace-period=20")
        assert await process.stdout.read() == b"two\n"
        assert await process.wait() == 0


async def test_attach_relays_input_and_output(kubectl: Kubectl) -> None:
    script = "while read line; do echo got $line; done"
    await kubectl.make_pod("talk", script, stdin=True)
    await kubectl.wait_phase("talk", "Running")
    async with kubectl.start("attach", "-i", "talk") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"one\n")
        assert await process.stdout.readline() == b"got one\n"
        process.stdin.write(b"two\n")
        assert await process.stdout.readline() == b"got two\n"
    # The container outlives whoever was attached to it.
    assert (await kubectl("get", "pod", "talk")).splitlines()[1].split()[2] == "Running"


async def test_run_brings_output_and_exit_code(kubectl: Kubectl) -> None:
    script = "read line; echo got $line; exit 3"
    arguments = ("run", "ask", "-i", "--rm", "-q", "--restart=Never", "--image=busybox")
    out = await kubectl(*arguments, "--command", "--", "sh", "-c", script, stdin=b"it\n", code=3)
    assert "got it\n" in out


async def test_run_takes_what_follows_for_the_arguments_of_the_image(kubectl: Kubectl) -> None:
    arguments = ("run", "say", "-i", "--rm", "-q", "--restart=Never", "--image=busybox")
    assert "hi\n" in await kubectl(*arguments, "--", "sh", "-c", "sleep 0.2; echo hi")
    assert "from sh\n" in await kubectl(*arguments, stdin=b"echo from sh; exit\n")


async def test_watch_shows_a_pod_until_it_is_deleted(kubectl: Kubectl) -> None:
    await kubectl.make_pod("one", "sleep 60")
    await kubectl.wait_phase("one", "Running")
    async with kubectl.start("get", "pod", "one", "--watch", "-o", "name") as process:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"pod/one\n"
        deleted = await kubectl("delete", "pod", "one")
        assert deleted.startswith('pod "one" deleted')
        assert await process.stdout.readline() == b"pod/one\n"
    assert "NotFound" in await kubectl("get", "pod", "one", code=1)


async def test_objects_are_labelled_replaced_and_deleted(kubectl: Kubectl) -> None:
    configmap = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "one"},
        "data": {"a": "b"},
    }
    await kubectl("apply", "-f", "-", stdin=orjson.dumps(configmap))
    await kubectl("label", "configmap", "one", "x=y")
    await kubectl("annotate", "configmap", "one", "note=this")
    assert await kubectl("get", "cm", "-l", "x=y", "-o", "name") == "configmap/one\n"
    await kubectl("apply", "-f", "-", stdin=orjson.dumps({**configmap, "data": {"a": "c"}}))
    assert await kubectl("get", "cm", "one", "-o", "jsonpath={.data.a}") == "c"
    await kubectl("delete", "cm", "-l", "x=y")
    assert "NotFound" in await kubectl("get", "cm", "one", code=1)


async def test_a_refusal_is_shown_in_the_real_words(kubectl: Kubectl) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "bare", "namespace": "telo-sessions"},
        "spec": {"containers": [{"name": "a", "image": "busybox"}]},
    }
    arguments = ("--namespace=telo-sessions", "create", "-f", "-")
    refused = await kubectl(*arguments, stdin=orjson.dumps(pod), code=1)
    assert 'violates PodSecurity "restricted:latest"' in refused
