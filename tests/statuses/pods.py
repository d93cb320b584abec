"""The cases' pods: what the product makes for a session, before each case changes one thing."""

import io
import os
import tarfile
from dataclasses import dataclass, replace
from typing import Any

from sessions.pods.run import build_bundle_config_map, build_run_pod
from sessions.spec import App, Limits, RunPodSpec, SessionSpec
from sessions.states import Delivery, IoMode, Mode
from telorunner.values.pullpolicy import PullPolicy

Manifest = dict[str, Any]

ENTRY = "main.py"
MANAGED_BY = "telorunner"
# Little, so that several cases fit on a small machine at once.
LIMITS = Limits(
    cpu_millis=150, memory_bytes=48 * 2**20, ephemeral_storage_bytes=32 * 2**20, ttl_seconds=300
)
# Nobody listens there: a pod that fetches its bundle from it is refused.
NOWHERE = "http://127.0.0.1:9/internal/bundles/abcdefghijkl?token=c0ffee"

KERNEL_IMAGE = os.environ.get("TELORUNNER_TEST_KERNEL_IMAGE", "telo.test/python-kernel:1")
INIT_IMAGE = os.environ.get("TELORUNNER_TEST_INIT_IMAGE", "telo.test/init:1")
# It has a shell and nothing else of what a session needs, and its user is root.
SHELL_IMAGE = os.environ.get("TELORUNNER_TEST_SHELL_IMAGE", "telo.test/busybox:1")
# It has no shell.
BARE_IMAGE = os.environ.get("TELORUNNER_TEST_BARE_IMAGE", "telo.test/pause:1")


@dataclass(frozen=True)
class Asked:
    """What a session of a case asks for."""

    program: str = ""
    image: str = KERNEL_IMAGE
    init_image: str = INIT_IMAGE
    pull_policy: PullPolicy = PullPolicy.MISSING
    is_fetched: bool = False
    ttl_seconds: int = LIMITS.ttl_seconds


PLAIN = Asked()


def build(asked: Asked, session_id: str, namespace: str) -> tuple[Manifest, Manifest]:
    """Return the manifests of the ConfigMap and of the pod."""
    spec = SessionSpec(
        session_id=session_id,
        mode=Mode.RUN,
        image=asked.image,
        pull_policy=asked.pull_policy,
        # Without a terminal nothing waits for one to be attached.
        apps=(App("app", ENTRY, io=IoMode.STREAMS),),
        limits=replace(LIMITS, ttl_seconds=asked.ttl_seconds),
        delivery=Delivery.FETCH if asked.is_fetched else Delivery.INLINE,
    )
    pod = build_run_pod(
        RunPodSpec(
            session=spec,
            namespace=namespace,
            managed_by=MANAGED_BY,
            env={},
            init_image=asked.init_image,
            bundle_url=NOWHERE if asked.is_fetched else "",
        )
    )
    archive = _archive(asked.program)
    return build_bundle_config_map(session_id, namespace, MANAGED_BY, archive), pod


def session_container(pod: Manifest) -> Manifest:
    """Return the session's container in a manifest."""
    containers: list[Manifest] = pod["spec"]["containers"]
    return next(container for container in containers if container["name"] == "session")


def init_container(pod: Manifest) -> Manifest:
    """Return the init container of a pod that fetches its bundle."""
    container: Manifest = pod["spec"]["initContainers"][0]
    return container


def side_car(script: str) -> Manifest:
    """Return a container as injectors add them, which runs a shell text."""
    return {
        "name": "proxy",
        "image": SHELL_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", script],
        "resources": {"limits": {"cpu": "50m", "memory": "16Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def environment(value_from: Manifest) -> list[Manifest]:
    """Return variables of which one is taken from elsewhere."""
    return [{"name": "SETTING", "valueFrom": value_from}]


def _archive(program: str) -> bytes:
    content = program.encode()
    kept = io.BytesIO()
    with tarfile.open(fileobj=kept, mode="w:gz") as archive:
        member = tarfile.TarInfo(ENTRY)
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return kept.getvalue()
