"""Containers as real processes: how they end, and what becomes of their processes."""

import asyncio
import os
import sys
import uuid
from pathlib import Path

import pytest

from telorunner.localcluster.node.container import ContainerUnavailable
from telorunner.localcluster.node.images import Images
from tests.cluster.node_harness import (
    NAMESPACE,
    digest,
    make_pod,
    open_node,
    processes_of,
    read_all,
    read_until,
)


async def test_an_application_that_ends_with_0_makes_its_pod_succeed(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        node.create(make_pod("one", "sh", "-c", "echo done"))
        pod = await node.until_ended()
        assert pod["status"]["phase"] == "Succeeded"
        terminated = node.state()["terminated"]
        assert (terminated["exitCode"], terminated["reason"]) == (0, "Completed")
        assert await node.log() == b"done\n"


@pytest.mark.parametrize(
    ("script", "code"), [("exit 3", 3), ("kill -TERM $$$$; sleep 9", 143), ("kill -KILL $$$$", 137)]
)
async def test_a_failing_application_reports_its_code(
    tmp_path: Path, script: str, code: int
) -> None:
    async with open_node(tmp_path) as node:
        node.create(make_pod("one", "sh", "-c", script))
        pod = await node.until_ended()
        assert pod["status"]["phase"] == "Failed"
        terminated = node.state()["terminated"]
        assert (terminated["exitCode"], terminated["reason"]) == (code, "Error")


async def test_a_command_that_is_not_there_is_a_start_error(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        node.create(make_pod("one", "nosuchcmd", "a"))
        pod = await node.until_ended()
        assert pod["status"]["phase"] == "Failed"
        terminated = node.state()["terminated"]
        assert (terminated["exitCode"], terminated["reason"]) == (128, "StartError")
        assert terminated["startedAt"] == "1970-01-01T00:00:00Z"
        assert 'exec: "nosuchcmd": executable file not found in $PATH' in terminated["message"]


async def test_a_file_without_a_program_in_it_is_a_start_error(tmp_path: Path) -> None:
    odd = tmp_path / "odd"
    odd.write_bytes(b"\x00\x01\x02")
    odd.chmod(0o755)
    async with open_node(tmp_path / "state") as node:
        node.create(make_pod("one", str(odd), tty=True))
        await node.until_ended()
        assert "exec format error" in node.state()["terminated"]["message"]


async def test_the_environment_is_the_pods_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNNER_SECRET_OF_THE_OPERATOR", "x")
    env = [
        {"name": "GREETING", "value": "good $(WHO) $(POD) $$(WHO) $(NOBODY)"},
        {"name": "WHO", "value": "day"},
        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    ]
    async with open_node(tmp_path, address_range="127.31.7.0/24") as node:
        node.create(make_pod("one", "/usr/bin/env", "-0", env=env))
        await node.until_ended()
        seen = dict(
            entry.decode().split("=", 1)
            for entry in (await node.log()).rstrip(b"\n").split(b"\0")
            if entry
        )
    assert seen.pop("PATH").endswith(
        "/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    )
    assert seen == {
        "HOSTNAME": "one",
        "TELO_STANDIN_BIND": "127.31.7.1",
        "GREETING": "good $(WHO) $(POD) $(WHO) $(NOBODY)",
        "WHO": "day",
        "POD": "one",
        "ADDRESS": "127.31.7.1",
    }


async def test_a_container_inherits_nothing_but_its_three_streams(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        for name, tty in (("one", False), ("two", True)):
            # The fourth is the folder that is being listed.
            node.create(make_pod(name, "sh", "-c", "echo `ls /proc/self/fd`", tty=tty))
            await node.until_ended(name)
            assert (await node.log(name)).splitlines()[0] == b"0 1 2 3"


async def test_mount_paths_in_arguments_and_values_reach_the_volumes(tmp_path: Path) -> None:
    spec = {
        "volumes": [
            {"name": "app", "emptyDir": {}},
            {"name": "bundle", "configMap": {"name": "files"}},
        ]
    }
    mounts = [
        {"name": "app", "mountPath": "/app"},
        {"name": "bundle", "mountPath": "/bundle", "readOnly": True},
    ]
    async with open_node(tmp_path) as node:
        files = {"metadata": {"name": "files", "namespace": NAMESPACE}, "data": {"a.txt": "text"}}
        node.store.create("configmaps", files)
        script = 'cp "$1" "$2"; cat "$COPY"; pwd'
        node.create(
            make_pod(
                "one",
                *("sh", "-c", script, "sh", "/bundle/a.txt", "/app/b.txt"),
                env=[{"name": "COPY", "value": "/app/b.txt"}],
                workingDir="/app",
                volumeMounts=mounts,
                spec=spec,
            )
        )
        pod = await node.until_ended()
        folder = tmp_path / "pods" / pod["metadata"]["uid"] / "volumes" / "app"
        assert await node.log() == f"text{folder}\n".encode()
        await node.delete()
        assert not folder.exists()


async def test_a_daemon_that_left_the_session_does_not_outlive_its_container(
    tmp_path: Path,
) -> None:
    script = (
        "setsid sleep 300 & setsid -f sleep 300 </dev/null >/dev/null 2>&1; sleep 300 & echo up"
    )
    async with open_node(tmp_path) as node:
        node.create(make_pod("one", "sh", "-c", script, tty=True))
        await node.until_ended()
        assert await node.log() == b"up\n"
        assert node.processes() == []


async def test_cancelling_the_agent_kills_every_container(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        script = 'trap "" TERM HUP INT; sleep 300 & echo up; while true; do sleep 1; done'
        node.create(make_pod("one", "sh", "-c", script, tty=True))
        node.create(make_pod("two", "sleep", "300"))
        await node.until_running("one")
        await node.until_running("two")
        await node.until_logged(b"up")
        assert len(node.processes()) >= 3
    assert processes_of(tmp_path) == []
    assert list((tmp_path / "pods").iterdir()) == []


async def test_what_a_killed_node_left_is_cleared_at_the_next_start(tmp_path: Path) -> None:
    folder = tmp_path / "pods" / str(uuid.uuid4()) / "containers" / "session" / "bin"
    folder.mkdir(parents=True)
    left = await sleep_with(PATH=f"{folder}:/bin")
    stranger = await sleep_with(PATH="/bin", PWD=str(folder), NOTE=f"PATH={folder}:/bin")
    async with open_node(tmp_path) as node:
        async with asyncio.timeout(10):
            assert await left.wait() == -9
        node.create(make_pod("one", "true"))
        await node.until_ended()
        assert not folder.exists()
    assert stranger.returncode is None
    stranger.terminate()
    assert await stranger.wait() == -15


async def sleep_with(**env: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec("/bin/sleep", "300", env=env)


async def test_containers_die_with_a_cluster_that_is_killed(tmp_path: Path) -> None:
    program = f"""
import asyncio, sys
sys.path[:0] = {sys.path!r}
from pathlib import Path
from tests.cluster.node_harness import make_pod, open_node
async def main():
    async with open_node(Path({str(tmp_path)!r})) as node:
        node.create(make_pod("one", "sh", "-c", "trap '' HUP; exec sleep 300"))
        await node.until_running()
        print("up", flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""
    cluster = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE
    )
    assert cluster.stdout is not None
    async with asyncio.timeout(20):
        assert await cluster.stdout.readline() == b"up\n"
    (pid,) = processes_of(tmp_path)
    watched = os.pidfd_open(pid)
    gone = asyncio.Event()
    asyncio.get_running_loop().add_reader(watched, gone.set)
    cluster.kill()
    async with asyncio.timeout(10):
        await cluster.wait()
        await gone.wait()
    asyncio.get_running_loop().remove_reader(watched)
    os.close(watched)


async def test_all_output_of_20_short_runs_is_there(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        for number in range(20):
            name = f"run-{number}"
            script = "head -c 1000000 /dev/zero | tr '\\0' x; echo; echo last; exit 3"
            node.create(make_pod(name, "sh", "-c", script, tty=bool(number % 2)))
        for number in range(20):
            await node.until_ended(f"run-{number}")
            log = await node.log(f"run-{number}")
            assert digest(log) == digest(b"x" * 1_000_000 + b"\nlast\n")


async def test_5_mib_reach_an_attached_reader_and_the_log_intact(tmp_path: Path) -> None:
    script = (
        "import sys; sys.stdin.readline(); w = sys.stdout.buffer.write\n"
        "for i in range(81920): w(b'%063d\\n' % i)"
    )
    expected = b"".join(b"%063d\n" % number for number in range(81920))
    assert len(expected) == 5 * 1024 * 1024
    images = Images(extra={"python": (sys.executable,)})
    async with open_node(tmp_path, images=images) as node:
        node.create(make_pod("one", image="python", args=["-c", script], stdin=True))
        container = await node.until_running()
        async with container.attach() as attachment:
            await attachment.write_stdin(b"go\n")
            assert digest(await read_all(attachment)) == digest(expected)
        await node.until_ended()
        assert digest(await node.log()) == digest(expected)


async def test_50_pods_leave_no_descriptor_and_no_process(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:

        async def run_ten(round_: int) -> None:
            names = [f"pod-{round_}-{number}" for number in range(10)]
            for number, name in enumerate(names):
                node.create(make_pod(name, "sh", "-c", "cat", tty=number % 2 == 0, stdin=True))
            for name in names:
                container = await node.until_running(name)
                async with container.attach() as attachment:
                    await attachment.write_stdin(b"hello\n")
                    await read_until(attachment, b"hello")
                await node.delete(name, grace_seconds=1)

        await run_ten(0)
        before = len(os.listdir("/proc/self/fd"))
        for round_ in range(1, 5):
            await run_ten(round_)
        assert len(os.listdir("/proc/self/fd")) <= before
        assert node.processes() == []
        assert list((tmp_path / "pods").iterdir()) == []
        with pytest.raises(ContainerUnavailable) as refused:
            node.agent.container(NAMESPACE, "pod-4-9", None)
        assert refused.value.status_code == 404
