"""One pod for every way to start, wait and end that a cluster tells of by itself."""

from typing import Any

from tests.conformance.client import Access, Object
from tests.conformance.pods import (
    ABSENT_IMAGE,
    Story,
    Until,
    has_left,
    make_container,
    make_group,
    make_shell_pod,
    record,
    waits_for,
)

# A container that runs as long is seen running, which a kubelet looks for once a second. A real
# one that starts thirty pods at once is late with it.
SEEN_SECONDS = {"local": 2, "real": 5}
# When the containers of those pods run for sure.
DEADLINE_SECONDS = {"local": 12, "real": 25}
MESSAGE_PATH = "/tmp/last-word"  # noqa: S108 - in a container
_MESSAGE = {
    "terminationMessagePath": MESSAGE_PATH,
    "env": [{"name": "WORD", "value": MESSAGE_PATH}],
}
_OBEY = "while :; do sleep 0.1; done"
# For whoever ends when asked to: on a busy machine it does so late.
_PATIENT = {"terminationGracePeriodSeconds": 20}
_EATER = ["dd", "if=/dev/zero", "of=/dev/null", "bs=64M", "count=1000000"]


def _is_unschedulable(pod: Object) -> bool:
    return bool(pod["status"].get("conditions"))


def _ends(seen: str, deadline_seconds: int) -> dict[str, Object]:
    limits = {"limits": {"cpu": "100m", "memory": "32Mi"}}
    few = {"limits": {"memory": "24Mi"}, "requests": {"cpu": "10m"}}
    return {
        "succeeds": make_shell_pod("succeeds", seen, resources=limits),
        "fails": make_shell_pod("fails", f'{seen}; echo told >"$WORD"; exit 3', **_MESSAGE),
        "fails-silently": make_shell_pod("fails-silently", "echo a; exit 3"),
        "falls-back": make_shell_pod(
            "falls-back",
            # What is in a runtime's pipe at the exit may be lost there.
            "echo out; sleep 1; echo err >&2; sleep 1; exit 4",
            terminationMessagePolicy="FallbackToLogsOnError",
        ),
        "says-more": make_shell_pod(
            "says-more",
            'echo log; printf word >"$WORD"; exit 4',
            terminationMessagePolicy="FallbackToLogsOnError",
            **_MESSAGE,
        ),
        "falls-back-not": make_shell_pod(
            "falls-back-not", "echo fine", terminationMessagePolicy="FallbackToLogsOnError"
        ),
        # The kernel kills what has used up its processor time, process 1 of a container too.
        "killed": make_shell_pod("killed", "ulimit -t 1; while :; do :; done"),
        "eats": make_shell_pod("eats", command=_EATER, resources=few),
        "no-command": make_shell_pod("no-command", command=["nope"]),
        "no-file": make_shell_pod("no-file", command=["/nope"]),
        "no-program": make_shell_pod("no-program", command=["/etc/passwd"]),
        "a-folder": make_shell_pod("a-folder", command=["/etc"]),
        "no-folder": make_shell_pod("no-folder", "true", workingDir="/etc/passwd"),
        "new-folder": make_shell_pod("new-folder", "true", workingDir="/nowhere/deep"),
        "late": make_shell_pod(
            "late",
            f'trap "sleep 1; exit 5" TERM; {_OBEY}',
            spec={"activeDeadlineSeconds": deadline_seconds, **_PATIENT},
        ),
        "late-never": make_shell_pod(
            "late-never",
            "true",
            image=ABSENT_IMAGE,
            imagePullPolicy="Never",
            spec={"activeDeadlineSeconds": deadline_seconds},
        ),
    }


def _groups(seen: str) -> dict[str, Object]:
    side = make_container("side", f'trap "exit 9" TERM; {_OBEY}', restartPolicy="Always")
    return {
        "two": make_group(
            "two", make_container("b", f"{seen}; {seen}; {seen}; exit 1"), make_container("a", "")
        ),
        "init-fails": make_group(
            "init-fails",
            make_container("main", "true"),
            initContainers=[
                make_container("first", f"{seen}; exit 7"),
                make_container("second", "true"),
            ],
        ),
        "init-succeeds": make_group(
            "init-succeeds",
            make_container("main", seen),
            initContainers=[make_container("first", seen)],
        ),
        "sidecar": make_group(
            "sidecar",
            make_container("main", seen),
            initContainers=[side, make_container("first", seen)],
            **_PATIENT,
        ),
    }


def _waits() -> dict[str, tuple[Object, Until]]:
    config: Any = "CreateContainerConfigError"
    value = {"configMapKeyRef": {"name": "kube-root-ca.crt", "key": "k"}}
    gone = {"configMapKeyRef": {"name": "gone", "key": "k"}}
    no_root = {"runAsNonRoot": True}
    pods: dict[str, tuple[str, Object]] = {
        "absent": ("ImagePullBackOff", {"image": ABSENT_IMAGE}),
        "never": ("ErrImageNeverPull", {"image": ABSENT_IMAGE, "imagePullPolicy": "Never"}),
        "misnamed": ("InvalidImageName", {"image": "telo.test/UPPER:1"}),
        "malformed": ("InvalidImageName", {"image": "telo.test/a b:1"}),
        "no-config-map": (config, {"env": [{"name": "A", "valueFrom": gone}]}),
        "no-secret": (config, {"envFrom": [{"secretRef": {"name": "gone"}}]}),
        "no-key": (config, {"env": [{"name": "A", "valueFrom": value}]}),
        "root-image": (config, {"securityContext": no_root}),
        "root-user": (config, {"securityContext": {**no_root, "runAsUser": 0}}),
    }
    return {
        name: (make_shell_pod(name, "true", **fields), waits_for(reason))
        for name, (reason, fields) in pods.items()
    }


def _unschedulable() -> dict[str, Object]:
    much = {"cpu": "100000", "memory": "100Pi"}
    return {
        "too-big": make_shell_pod("too-big", "true", resources={"requests": {"cpu": "100000"}}),
        "too-big-twice": make_shell_pod("too-big-twice", "true", resources={"requests": much}),
        "nowhere": make_shell_pod("nowhere", "true", spec={"nodeSelector": {"telo.test/no": "a"}}),
    }


# The last event of some pods, by its reason or its message.
_LAST_EVENTS = {
    "succeeds": "Started",
    "no-command": "Failed",
    "late": "Killing",
    "sidecar": "Killing",
    "absent": "Error: ImagePullBackOff",
    "never": "Failed",
    "misnamed": "Failed",
    "no-config-map": "Failed",
    "too-big": "FailedScheduling",
    "unmounted": "FailedMount",
}


async def record_stories(access: Access) -> dict[str, Story]:
    """Run every pod and return what was told of each."""
    volumes = [{"name": "v", "configMap": {"name": "gone"}}]
    mounts = [{"name": "v", "mountPath": "/v"}]
    unmounted = make_shell_pod("unmounted", "true", volumeMounts=mounts, spec={"volumes": volumes})
    seen = f"sleep {SEEN_SECONDS[access.kind]}"
    # The slowest first.
    ended = {**_groups(seen), **_ends(seen, DEADLINE_SECONDS[access.kind])}
    return await record(
        access,
        {
            **{name: (pod, has_left) for name, pod in ended.items()},
            **_waits(),
            **{name: (pod, _is_unschedulable) for name, pod in _unschedulable().items()},
            "unmounted": (unmounted, waits_for("ContainerCreating")),
        },
        _LAST_EVENTS,
    )
