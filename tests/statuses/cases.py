"""What can become of a session's pod, each as one change to the product's own manifest.

A case ends at its telling moment: where a client has to be told something. What may not be tried on
a cluster that others use (tainted nodes, preemption, lost nodes) is made by hand in `handmade/`.
"""

from collections.abc import Callable
from dataclasses import dataclass

from sessions.pods import reading
from sessions.pods.reading import Pod
from telorunner.values.pullpolicy import PullPolicy
from tests.statuses.pods import (
    BARE_IMAGE,
    PLAIN,
    SHELL_IMAGE,
    Asked,
    Manifest,
    environment,
    init_container,
    session_container,
    side_car,
)

Moment = Callable[[Pod], bool]
Change = Callable[[Manifest], object]


@dataclass(frozen=True)
class Act:
    """What is done to a pod once, some seconds after a moment: it is deleted or evicted.

    The time lets the program come to where it takes signals.
    """

    when: Moment
    is_eviction: bool = False
    grace_seconds: int | None = None
    after_seconds: float = 3.0


@dataclass(frozen=True)
class Case:
    """One pod and the moment up to which it is recorded; no moment: until it is gone.

    `linger_seconds` goes on recording after the moment, to show that nothing follows.
    """

    name: str
    about: str
    asked: Asked = PLAIN
    change: Change | None = None
    until: Moment | None = None
    act: Act | None = None
    linger_seconds: float = 0.0


def ended(pod: Pod) -> bool:
    return reading.phase(pod) in ("Succeeded", "Failed")


def waits(reason: str) -> Moment:
    return lambda pod: any(seen == reason for _, seen, _ in reading.waits(pod))


def runs(name: str = "session") -> Moment:
    return lambda pod: _is(pod, name, "running")


def own_ended(pod: Pod) -> bool:
    return _is(pod, "session", "terminated")


def unscheduled(pod: Pod) -> bool:
    return reading.condition(pod, "PodScheduled").get("reason") == "Unschedulable"


def _is(pod: Pod, name: str, kind: str) -> bool:
    statuses = [*reading.init_statuses(pod), *reading.main_statuses(pod)]
    return any(
        status.get("name") == name and reading.state(status, kind) is not None
        for status in statuses
    )


def _exits(code: int) -> Asked:
    return Asked(f"import sys; print('bye', flush=True); sys.exit({code})")


ALLOCATE = "kept = []\nwhile True:\n    kept.append(bytes(range(256)) * 4096)\n"
CHILD = (
    f"import subprocess, sys\n"
    f"subprocess.run([sys.executable, '-c', {ALLOCATE!r}])\nsys.exit(CODE)\n"
)
WAIT = "import time\ntime.sleep(600)\n"
# It ends well when it is asked to end.
POLITE = "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n" + WAIT
OVERUSE = "open('/work/big', 'wb').write(bytes(64 << 20))\n" + WAIT
BRIEF = "import time\ntime.sleep(2)\n"

FETCHED = Asked(is_fetched=True)
KEEPS_ON = "trap '' TERM; sleep 600 & wait; sleep 600"


def _set(**fields: object) -> Change:
    return lambda pod: session_container(pod).update(fields)


def _init(*command: str) -> Change:
    return lambda pod: init_container(pod).update(command=list(command), args=[])


def _spec(**fields: object) -> Change:
    return lambda pod: pod["spec"].update(fields)


def _too_much_cpu(pod: Manifest) -> None:
    cpu = {"cpu": "640", "memory": "48Mi"}
    session_container(pod)["resources"] = {"requests": cpu, "limits": cpu}


def _too_much_cpu_here(pod: Manifest) -> None:
    _too_much_cpu(pod)
    pod["spec"]["nodeName"] = THE_NODE


def _not_this_node(pod: Manifest) -> None:
    pod["spec"] |= {"nodeName": THE_NODE, "nodeSelector": {"telo.test/none": "here"}}


# The recorder puts the name of the cluster's node in its place.
THE_NODE = "the-node"


def _own_user(pod: Manifest) -> None:
    """Take the user out, as for images that operators offer."""
    for context in (pod["spec"]["securityContext"], session_container(pod)["securityContext"]):
        for name in ("runAsUser", "runAsGroup"):
            context.pop(name, None)


def _no_profile(pod: Manifest) -> None:
    profile = {"type": "Localhost", "localhostProfile": "telo-test/none.json"}
    session_container(pod)["securityContext"]["seccompProfile"] = profile


def _bad_mount(pod: Manifest) -> None:
    mounts = session_container(pod)["volumeMounts"]
    mounts.append({"name": "work", "mountPath": "/etc/passwd/inside"})


def _no_bundle(pod: Manifest) -> None:
    pod["spec"]["volumes"][0]["configMap"]["name"] = "telo-run-nobody"


def _small_volume(pod: Manifest) -> None:
    (work,) = (volume for volume in pod["spec"]["volumes"] if volume["name"] == "work")
    work["emptyDir"] = {"sizeLimit": "8Mi"}
    session_container(pod)["resources"]["limits"]["ephemeral-storage"] = "256Mi"


def _after(script: str) -> Change:
    return lambda pod: pod["spec"]["containers"].append(side_car(script))


def _before(script: str) -> Change:
    return lambda pod: pod["spec"]["containers"].insert(0, side_car(script))


def _native(script: str) -> Change:
    car = {**side_car(script), "restartPolicy": "Always"}
    return lambda pod: pod["spec"].update(initContainers=[car])


def _broken_car(pod: Manifest) -> None:
    car = {**side_car(""), "image": "telo.test/none:1", "imagePullPolicy": "Never"}
    pod["spec"]["containers"].append(car)


def _broken_native(pod: Manifest) -> None:
    car = {**side_car(""), "image": "telo.test/none:1", "imagePullPolicy": "Never"}
    pod["spec"]["initContainers"] = [{**car, "restartPolicy": "Always"}]


IMAGES = [
    Case(
        "image-pull",
        "the image is not in any registry",
        Asked(image="telo.test/none:1"),
        until=waits("ImagePullBackOff"),
    ),
    Case(
        "image-never-pulled",
        "pullPolicy never, and the node has no such image",
        Asked(image="telo.test/none:1", pull_policy=PullPolicy.NEVER),
        until=waits("ErrImageNeverPull"),
    ),
    Case(
        "image-name",
        "no image can have this name",
        Asked(image="Telo.Test/None:1"),
        until=waits("InvalidImageName"),
    ),
    Case("no-shell", "inline delivery, image without sh", Asked(image=BARE_IMAGE), until=ended),
    Case("no-telo", "inline delivery, image without telo", Asked(image=SHELL_IMAGE), until=ended),
    Case(
        "no-telo-fetched",
        "fetched bundle, image without telo",
        Asked(image=SHELL_IMAGE, is_fetched=True),
        _init("true"),
        until=ended,
    ),
]

CONFIGURATIONS = [
    Case(
        "root-image",
        "runAsNonRoot without a user, as for operators' images, and the image's user is root",
        Asked(image=SHELL_IMAGE),
        _own_user,
        until=waits("CreateContainerConfigError"),
    ),
    Case(
        "no-config-map-key",
        "a variable out of a ConfigMap that does not exist",
        change=_set(env=environment({"configMapKeyRef": {"name": "none", "key": "none"}})),
        until=waits("CreateContainerConfigError"),
    ),
    Case(
        "no-secret-key",
        "a variable out of a Secret that does not exist",
        change=_set(env=environment({"secretKeyRef": {"name": "none", "key": "none"}})),
        until=waits("CreateContainerConfigError"),
    ),
    Case(
        "no-seccomp-profile",
        "a seccomp profile that the node does not have",
        change=_no_profile,
        until=lambda pod: waits("CreateContainerError")(pod) or ended(pod),
    ),
    Case("bad-mount", "a volume is mounted below a file", change=_bad_mount, until=ended),
    Case(
        "no-bundle",
        "the bundle's ConfigMap does not exist: the kubelet waits, and the status does not say why",
        change=_no_bundle,
        until=lambda pod: waits("ContainerCreating")(pod),
        linger_seconds=4,
    ),
]

EXITS = [
    *(Case(f"exit-{code}", f"exit {code}", _exits(code), until=ended) for code in (0, 1, 3)),
    Case("exit-137", "137 that is no memory's fault", _exits(137), until=ended),
    Case("exit-143", "143, as a process ends by SIGTERM", _exits(143), until=ended),
    Case("memory", "more memory than the limit", Asked(ALLOCATE), until=ended),
    Case(
        "memory-of-a-child-1",
        "a child is killed for memory, its parent exits 1",
        Asked(CHILD.replace("CODE", "1")),
        until=ended,
    ),
    Case(
        "memory-of-a-child-0",
        "a child is killed for memory, its parent exits 0",
        Asked(CHILD.replace("CODE", "0")),
        until=ended,
    ),
]

INITS = [
    Case("init-refused", "the runner's address refuses connections", FETCHED, until=ended),
    Case(
        "init-no-shell",
        "RUNNER_INIT_IMAGE without sh",
        Asked(is_fetched=True, init_image=BARE_IMAGE),
        until=ended,
    ),
    Case(
        "init-memory",
        "unpacking needs more memory than the limit",
        FETCHED,
        _init("python3", "-c", ALLOCATE),
        until=ended,
    ),
    Case(
        "init-storage",
        "the unpacked bundle is larger than the ephemeral-storage limit",
        FETCHED,
        _init("python3", "-c", OVERUSE.replace("/work", "/app")),
        until=ended,
    ),
    Case(
        "init-image",
        "RUNNER_INIT_IMAGE is not in any registry",
        Asked(is_fetched=True, init_image="telo.test/none:1"),
        until=waits("ImagePullBackOff"),
    ),
]

STORAGE = [
    Case(
        "storage", "more ephemeral storage than the container's limit", Asked(OVERUSE), until=ended
    ),
    Case(
        "storage-of-a-volume",
        "more than an emptyDir's sizeLimit",
        Asked(OVERUSE),
        _small_volume,
        until=ended,
    ),
]

DEADLINES = [
    Case("deadline", "killed at the time limit", Asked(WAIT, ttl_seconds=4), until=ended),
    Case(
        "deadline-ends-well",
        "exits 0 when asked to end at the time limit",
        Asked(POLITE, ttl_seconds=8),
        until=ended,
    ),
    Case(
        "deadline-image",
        "the time limit comes while the image cannot be pulled",
        Asked(image="telo.test/none:1", ttl_seconds=4),
        until=ended,
    ),
    Case(
        "deadline-init",
        "the time limit comes while the bundle is delivered",
        Asked(is_fetched=True, ttl_seconds=4),
        _init("sleep", "600"),
        until=ended,
    ),
]

DELETIONS = [
    Case("deleted", "deleted while it runs", Asked(WAIT), act=Act(runs())),
    Case("deleted-ends-well", "deleted, and exits 0 when asked to", Asked(POLITE), act=Act(runs())),
    Case(
        "deleted-by-force", "deleted without grace", Asked(WAIT), act=Act(runs(), grace_seconds=0)
    ),
    Case(
        "deleted-unscheduled",
        "deleted before there was a node",
        change=_too_much_cpu,
        act=Act(unscheduled),
    ),
    Case(
        "deleted-image",
        "deleted while the image cannot be pulled",
        Asked(image="telo.test/none:1"),
        act=Act(waits("ErrImagePull")),
    ),
    Case("evicted", "evicted over the API", Asked(WAIT), act=Act(runs(), is_eviction=True)),
    Case(
        "evicted-ends-well",
        "evicted over the API, and exits 0 when asked to",
        Asked(POLITE),
        act=Act(runs(), is_eviction=True),
    ),
]

SCHEDULING = [
    Case("no-cpu", "more CPU than any node has", change=_too_much_cpu, until=unscheduled),
    Case(
        "no-node",
        "no node has the labels that are asked for",
        change=_spec(nodeSelector={"telo.test/none": "here"}),
        until=unscheduled,
    ),
    Case(
        "no-cpu-on-the-node",
        "the kubelet has no room for it",
        change=_too_much_cpu_here,
        until=ended,
    ),
    Case("not-this-node", "the kubelet finds it misplaced", change=_not_this_node, until=ended),
]

_BRIEF_3 = BRIEF + "raise SystemExit(3)\n"

SIDE_CARS = [
    Case(
        "car-after-ends",
        "a container behind the session's ends well first",
        Asked(BRIEF),
        _after("true"),
        until=ended,
    ),
    Case(
        "car-before-ends",
        "a container before the session's ends well first",
        Asked(_BRIEF_3),
        _before("true"),
        until=ended,
    ),
    Case(
        "car-after-fails",
        "a container behind the session's fails, the session ends well",
        Asked(BRIEF),
        _after("exit 1"),
        until=ended,
    ),
    Case(
        "car-before-fails",
        "a container before the session's fails, and so does the session",
        Asked(_BRIEF_3),
        _before("exit 1"),
        until=ended,
    ),
    Case(
        "car-after-stays",
        "a container behind the session's goes on when that has ended well",
        Asked(BRIEF),
        _after(KEEPS_ON),
        until=own_ended,
        linger_seconds=6,
    ),
    Case(
        "car-before-stays",
        "a container before the session's goes on when that has failed",
        Asked(_BRIEF_3),
        _before(KEEPS_ON),
        until=own_ended,
        linger_seconds=6,
    ),
    Case(
        "car-stays-at-deadline",
        "the time limit, the session exits 0 at once and a container beside it does not end",
        Asked(POLITE, ttl_seconds=8),
        _after(KEEPS_ON),
        until=ended,
    ),
    Case(
        "car-stays-after-storage",
        "evicted for storage, a container beside the session does not end",
        Asked(POLITE.replace("import time", "open('/work/big', 'wb').write(bytes(64 << 20))", 1)),
        _after(KEEPS_ON),
        until=ended,
    ),
    Case(
        "car-stays-when-deleted",
        "deleted, the session exits 0 at once and a container beside it does not end",
        Asked(POLITE),
        _after(KEEPS_ON),
        act=Act(runs()),
    ),
    Case(
        "car-stays-when-evicted",
        "evicted over the API, a container beside the session does not end",
        Asked(POLITE),
        _before(KEEPS_ON),
        act=Act(runs(), is_eviction=True),
    ),
    Case(
        "car-image",
        "a container beside the session's has no image: the session runs all the same",
        Asked(BRIEF),
        _broken_car,
        until=own_ended,
        linger_seconds=6,
    ),
    Case(
        "native-car",
        "a side-car of the native kind goes on until the session has ended well",
        Asked(BRIEF),
        _native(KEEPS_ON),
        until=ended,
    ),
    Case(
        "native-car-fails",
        "the session fails beside a side-car of the native kind",
        Asked(_BRIEF_3),
        _native("trap 'exit 9' TERM; sleep 600 & wait"),
        until=ended,
    ),
    Case(
        "native-car-image",
        "a side-car of the native kind has no image: the session never starts",
        Asked(BRIEF),
        _broken_native,
        until=waits("ErrImageNeverPull"),
        linger_seconds=3,
    ),
]

CASES = {
    case.name: case
    for case in (
        *IMAGES,
        *CONFIGURATIONS,
        *EXITS,
        *INITS,
        *STORAGE,
        *DEADLINES,
        *DELETIONS,
        *SCHEDULING,
        *SIDE_CARS,
    )
}
