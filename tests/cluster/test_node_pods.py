"""The life of pods on the node: images, init containers, deletion, deadlines, limits, logs."""

import asyncio
import sys
from pathlib import Path

import pytest

from telorunner.localcluster.node.container import ContainerUnavailable
from telorunner.localcluster.node.images import Images
from tests.cluster.node_harness import (
    NAMESPACE,
    Node,
    Pod,
    make_pod,
    open_node,
    read_until,
    until_true,
)

PYTHON = Images(extra={"python": (sys.executable,)})


async def test_an_unknown_image_goes_from_err_image_pull_to_back_off(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        node.create(make_pod("one", "sh", image="nosuch.example/x:1"))
        pod = await node.until_waiting("ErrImagePull")
        waiting = pod["status"]["containerStatuses"][0]["state"]["waiting"]
        assert waiting["message"].startswith('failed to pull and unpack image "nosuch.example/x:1"')
        with pytest.raises(ContainerUnavailable) as refused:
            node.agent.container(NAMESPACE, "one", "session")
        assert refused.value.status_code == 400
        pod = await node.until_waiting("ImagePullBackOff")
        waiting = pod["status"]["containerStatuses"][0]["state"]["waiting"]
        assert waiting["message"].startswith('Back-off pulling image "nosuch.example/x:1"')
        assert pod["status"]["phase"] == "Pending"
        assert ("Failed", "Error: ImagePullBackOff") in node.events()
        await node.delete()


@pytest.mark.parametrize(
    ("image", "policy", "reason"),
    [
        ("nosuch.example/x:1", "Never", "ErrImageNeverPull"),
        ("UPPER/x:1:2", "IfNotPresent", "InvalidImageName"),
    ],
)
async def test_an_image_that_can_never_run_is_told_at_once(
    tmp_path: Path, image: str, policy: str, reason: str
) -> None:
    async with open_node(tmp_path) as node:
        node.create(make_pod("one", "sh", image=image, imagePullPolicy=policy))
        await node.until_waiting(reason)


async def test_init_containers_run_in_order_before_the_others(tmp_path: Path) -> None:
    volumes = [{"name": "app", "emptyDir": {}}]
    mounts = [{"name": "app", "mountPath": "/app"}]
    init = [
        {
            "name": name,
            "image": "busybox",
            "command": ["sh", "-c", f'echo {name} >> "$1"', "sh", "/app/order"],
            "volumeMounts": mounts,
        }
        for name in ("first", "second")
    ]
    async with open_node(tmp_path) as node:
        spec = {"volumes": volumes, "initContainers": init}
        node.create(make_pod("one", "cat", "/app/order", volumeMounts=mounts, spec=spec))
        pod = await node.until_ended()
        assert await node.log() == b"first\nsecond\n"
        ready = [(one["name"], one["ready"]) for one in pod["status"]["initContainerStatuses"]]
        assert ready == [("first", True), ("second", True)]


async def test_a_failing_init_container_fails_the_pod_and_starts_nothing_else(
    tmp_path: Path,
) -> None:
    init = {
        "name": "body-fetch",
        "image": "busybox",
        "command": ["sh", "-c", "echo no route; exit 4"],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    async with open_node(tmp_path) as node:
        node.create(make_pod("one", "echo", spec={"initContainers": [init]}))
        pod = await node.until_ended()
        assert pod["status"]["phase"] == "Failed"
        terminated = pod["status"]["initContainerStatuses"][0]["state"]["terminated"]
        assert (terminated["exitCode"], terminated["message"]) == (4, "no route\n")
        assert node.state()["waiting"] == {"reason": "PodInitializing"}
        with pytest.raises(ContainerUnavailable) as refused:
            await node.log()
        assert refused.value.message.endswith("is waiting to start: PodInitializing")


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ('echo why > "$0"; exit 3', "why\n"),
        ("exit 3", None),
        ('rm "$0"; mkfifo "$0"; exit 3', None),
        ('rm "$0"; ln -s /etc/passwd "$0"; exit 3', None),
    ],
    ids=["left", "nothing left", "a pipe", "a link"],
)
async def test_what_a_container_leaves_as_its_last_word_is_told(
    tmp_path: Path, script: str, message: str | None
) -> None:
    path = "/dev/termination-log"
    async with open_node(tmp_path) as node:
        node.create(make_pod("one", "sh", "-c", script, path, terminationMessagePath=path))
        await node.until_ended()
        assert node.state()["terminated"].get("message") == message


async def test_deletion_asks_first_and_tells_the_exit_code(tmp_path: Path) -> None:
    script = "trap 'echo bye; exit 7' TERM; echo up; while true; do sleep 0.02; done"
    async with open_node(tmp_path) as node:
        node.create(make_pod("one", "sh", "-c", script))
        container = await node.until_running()
        async with asyncio.TaskGroup() as group:
            ended = group.create_task(node.until(lambda pod: pod["status"]["phase"] == "Failed"))
            async with container.attach() as attachment:
                await node.until_logged(b"up")
                group.create_task(node.delete(grace_seconds=30))
                await read_until(attachment, b"bye")
        terminated = ended.result()["status"]["containerStatuses"][0]["state"]["terminated"]
        assert terminated["exitCode"] == 7
        assert ("Killing", "Stopping container session") in node.events()


async def test_an_application_that_ignores_the_request_is_killed_after_the_grace_period(
    tmp_path: Path,
) -> None:
    async with open_node(tmp_path) as node:
        script = "trap '' TERM; echo up; while true; do sleep 0.02; done"
        node.create(make_pod("one", "sh", "-c", script, stdin=True))
        await node.until_running()
        await node.until_logged(b"up")
        loop = asyncio.get_running_loop()
        began = loop.time()
        await node.delete(grace_seconds=1)
        assert 0.9 < loop.time() - began < 5
        assert node.processes() == []


async def test_a_pod_removed_by_force_is_asked_to_end_all_the_same(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        node.create(make_pod("one", "sleep", "300"))
        container = await node.until_running()
        node.store.remove("pods", NAMESPACE, "one")
        async with asyncio.timeout(10):
            assert (await container.wait()).exit_code == 143
        again = node.create(make_pod("one", "sleep", "300"))
        await node.until_running()
        assert (
            node.store.get("pods", NAMESPACE, "one")["metadata"]["uid"] == again["metadata"]["uid"]
        )


async def test_pods_deleted_at_any_moment_of_their_start_leave_nothing(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        for number in range(20):
            node.create(make_pod("one", "sleep", "300", tty=True))
            for _ in range(number * 3):
                await asyncio.sleep(0.001)
            await node.delete(grace_seconds=2)
        assert node.processes() == []
        assert node.store.list("pods")[0] == []


async def test_a_pod_past_its_deadline_is_stopped_and_says_so(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        node.create(make_pod("one", "sleep", "300", spec={"activeDeadlineSeconds": 1}))
        pod = await node.until_ended()
        assert pod["status"]["phase"] == "Failed"
        assert pod["status"]["reason"] == "DeadlineExceeded"
        assert pod["status"]["message"] == (
            "Pod was active on the node longer than the specified deadline"
        )
        assert node.state()["terminated"]["exitCode"] == 143


async def test_a_container_above_its_memory_limit_is_oom_killed(tmp_path: Path) -> None:
    eater = "x = bytearray(b'x') * 80_000_000\nimport time; time.sleep(300)"
    limits = {"limits": {"memory": "40Mi"}}
    async with open_node(tmp_path, images=PYTHON) as node:
        node.create(make_pod("one", image="python", args=["-c", eater], resources=limits))
        node.create(make_pod("two", "sleep", "300", resources=limits))
        await node.until_ended()
        terminated = node.state()["terminated"]
        assert (terminated["exitCode"], terminated["reason"]) == (137, "OOMKilled")
        assert "running" in node.state("two")


@pytest.mark.parametrize(
    ("volume", "container", "message"),
    [
        ({"sizeLimit": "1Mi"}, {}, 'Usage of EmptyDir volume "e" exceeds the limit "1Mi". '),
        (
            {},
            {"resources": {"limits": {"ephemeral-storage": "2Mi"}}},
            "Pod ephemeral local storage usage exceeds the total limit of containers 2Mi. ",
        ),
    ],
)
async def test_a_pod_that_fills_the_disk_is_evicted(
    tmp_path: Path, volume: Pod, container: Pod, message: str
) -> None:
    script = 'head -c 5000000 /dev/urandom > "$1"; sleep 300'
    mounts = [{"name": "e", "mountPath": "/e"}]
    spec = {"volumes": [{"name": "e", "emptyDir": volume}]}
    async with open_node(tmp_path, storage_period_seconds=0.05) as node:
        command = ("sh", "-c", script, "sh", "/e/file")
        node.create(make_pod("one", *command, volumeMounts=mounts, spec=spec, **container))
        pod = await node.until_ended()
        assert (pod["status"]["reason"], pod["status"]["message"]) == ("Evicted", message)
        # It is asked first: a kubelet gives everybody two seconds.
        assert node.state()["terminated"]["exitCode"] == 143
        assert ("Evicted", message) in node.events()


async def test_a_pod_that_is_not_bound_yet_is_no_unknown_one(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        pod = make_pod("one", "true")
        del pod["spec"]["nodeName"]
        node.create(pod)
        with pytest.raises(ContainerUnavailable) as refused:
            node.agent.container(NAMESPACE, "one", None)
        assert refused.value.status_code == 400
        with pytest.raises(ContainerUnavailable) as refused:
            node.agent.container(NAMESPACE, "two", None)
        assert refused.value.status_code == 404


async def test_other_restart_policies_are_treated_as_never(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        node.create(make_pod("one", "false", spec={"restartPolicy": "Always"}))
        assert (await node.until_ended())["status"]["phase"] == "Failed"
        assert "RestartPolicyIgnored" in dict(node.events())


async def test_a_pod_waits_for_a_config_map_that_is_missing(tmp_path: Path) -> None:
    spec = {"volumes": [{"name": "cm", "configMap": {"name": "late"}}]}
    mounts = [{"name": "cm", "mountPath": "/cm"}]
    async with open_node(tmp_path) as node:
        node.create(make_pod("one", "cat", "/cm/a", volumeMounts=mounts, spec=spec))
        await node.until_waiting("ContainerCreating")
        await until_true(node.events)
        message = 'MountVolume.SetUp failed for volume "cm" : configmap "late" not found'
        assert node.events() == [("FailedMount", message)]
        late = {"metadata": {"name": "late", "namespace": NAMESPACE}, "data": {"a": "1"}}
        node.store.create("configmaps", late)
        await node.until_ended()
        assert await node.log() == b"1"


async def test_with_delays_a_container_runs_before_the_api_says_so(tmp_path: Path) -> None:
    async with open_node(tmp_path, kubelet_delays=True) as node:
        loop = asyncio.get_running_loop()
        began = loop.time()
        node.create(make_pod("one", "cat", stdin=True, tty=True))
        await until_true(lambda: _is_attachable(node))
        container = node.agent.container(NAMESPACE, "one", None)
        assert loop.time() - began >= 0.4
        assert "waiting" in node.state()
        with pytest.raises(ContainerUnavailable) as refused:
            await node.log()
        assert refused.value.message.endswith("is waiting to start: ContainerCreating")
        assert container.is_running
        await node.until_running()
        assert 0.9 < loop.time() - began < 3
        await node.delete(grace_seconds=1)


def _is_attachable(node: Node) -> bool:
    try:
        node.agent.container(NAMESPACE, "one", None)
    except ContainerUnavailable:
        return False
    return True


async def test_logs_can_be_cut_followed_and_dated(tmp_path: Path) -> None:
    script = "printf 'a\\r\\nb\\nc'; read x; echo d"
    async with open_node(tmp_path) as node:
        node.create(make_pod("one", "sh", "-c", script, stdin=True))
        container = await node.until_running()
        async with asyncio.TaskGroup() as group:
            following = group.create_task(node.log(follow=True))
            await node.until_logged(b"b")
            async with container.attach() as attachment:
                await attachment.write_stdin(b"\n")
        assert following.result() == b"a\nb\ncd\n"
        await node.until_ended()
        assert await node.log(tail_lines=1) == b"cd\n"
        assert await node.log(tail_lines=0) == b""
        assert await node.log(tail_lines=99) == b"a\nb\ncd\n"
        assert await node.log(limit_bytes=3) == b"a\nb"
        assert await node.log(since_time="2999-01-01T00:00:00Z") == b""
        assert await node.log(since_seconds=3600) == b"a\nb\ncd\n"
        dated = (await node.log(timestamps=True)).splitlines()
        assert [line.split(b" ")[1] for line in dated] == [b"a", b"b", b"cd"]
        with pytest.raises(ContainerUnavailable, match="not found"):
            await node.log(previous=True)
        with pytest.raises(ContainerUnavailable, match="container nope is not valid for pod one"):
            await node.log(container="nope")


async def test_two_pods_have_addresses_of_their_own_and_reuse_them_late(tmp_path: Path) -> None:
    async with open_node(tmp_path, address_range="127.33.0.0/30") as node:
        node.create(make_pod("one", "sleep", "300"))
        node.create(make_pod("two", "sleep", "300"))
        await node.until_running("one")
        await node.until_running("two")
        taken = {node.status("one")["podIP"], node.status("two")["podIP"]}
        assert taken == {"127.33.0.1", "127.33.0.2"}
        node.create(make_pod("three", "sleep", "300"))
        await node.until_waiting("ContainerCreating", "three")
        freed = node.status("one")["podIP"]
        await node.delete("one", grace_seconds=1)
        await node.until_running("three")
        assert node.status("three")["podIP"] == freed
