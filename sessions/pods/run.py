"""The pod of a run session, and the ConfigMap of its bundle with inline delivery; pure.

With inline delivery the container starts a fixed shell text that unpacks the bundle, waits for its
terminal and becomes the `telo` command line. With a fetched one an init container unpacks it, and
the container is the command line. Everything of the session reaches a shell as arguments or
variables, never as text.
"""

import base64
import re
from collections.abc import Mapping
from typing import Any

from sessions.pods import hardening
from sessions.pods.fetch import FETCH_CONTAINER, FETCH_SCRIPT, URL_VARIABLE
from sessions.pods.script import START_SCRIPT, TERMINATION_LOG
from sessions.spec import App, RunPodSpec
from sessions.states import Delivery, IoMode
from telorunner.kube.objects import session_labels
from telorunner.values.pullpolicy import PullPolicy

SESSION_CONTAINER = "session"
INSPECT_PORT = 9230

ARCHIVE_KEY = "bundle.tgz"
BUNDLE_MOUNT = "/bundle"
APP_DIR = "/app"
WORK_DIR = "/work"
HOME_DIR = "/home/telo"
CACHE_DIR = "/telo-cache"

PULL_POLICIES = {
    PullPolicy.ALWAYS: "Always",
    PullPolicy.NEVER: "Never",
    PullPolicy.MISSING: "IfNotPresent",
}

# The kubelet turns `$(NAME)` into a variable's value and `$$` into `$`; any other `$` is kept.
# Source: https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/
_EXPANDED = re.compile(r"\$(?=[$(])")


def object_name(session_id: str) -> str:
    """Return the name of a session's pod and of its ConfigMap."""
    return f"telo-run-{session_id}"


def literal(text: str) -> str:
    """Return the text that the kubelet turns into `text` when it expands variables in it."""
    return _EXPANDED.sub("$$", text)


def variables(env: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return a container's `env`: each value reaches the process as it is."""
    return [{"name": name, "value": literal(value)} for name, value in env.items()]


def declared_ports(app: App) -> dict[str, Any]:
    """Return the part of a container that declares an app's ports; empty: it has none."""
    ports = [{"containerPort": port.port, "protocol": port.protocol.upper()} for port in app.ports]
    return {"ports": ports} if ports else {}


def build_bundle_config_map(
    session_id: str, namespace: str, managed_by: str, archive: bytes
) -> dict[str, Any]:
    """Return the ConfigMap that carries a bundle's tar.gz into the pod."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": object_name(session_id),
            "namespace": namespace,
            "labels": session_labels(managed_by, session_id),
        },
        "immutable": True,
        "binaryData": {ARCHIVE_KEY: base64.b64encode(archive).decode()},
    }


def build_run_pod(spec: RunPodSpec) -> dict[str, Any]:
    """Return the manifest of a run session's pod."""
    session = spec.session
    name = object_name(session.session_id)
    is_fetched = session.delivery is Delivery.FETCH
    bundle = [] if is_fetched else [{"name": "bundle", "configMap": {"name": name}}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": spec.namespace,
            "labels": session_labels(spec.managed_by, session.session_id),
        },
        "spec": {
            **hardening.pod_defaults(
                session.limits.ttl_seconds,
                image_pull_secret=spec.image_pull_secret,
                runtime_class=spec.runtime_class,
            ),
            "securityContext": hardening.hardened_pod_context(),
            **({"initContainers": [_fetch_container(spec)]} if is_fetched else {}),
            "containers": [_session_container(spec)],
            "volumes": [
                *bundle,
                # The container's ephemeral-storage limit bounds what all of them may hold.
                *({"name": volume, "emptyDir": {}} for volume in _SCRATCH),
            ],
        },
    }


_SCRATCH = {
    "app": APP_DIR,
    "work": WORK_DIR,
    "home": HOME_DIR,
    "tmp": "/tmp",  # noqa: S108 - the pod's own emptyDir
    "telo-cache": CACHE_DIR,
}


def _fetch_container(spec: RunPodSpec) -> dict[str, Any]:
    mounts = {volume: _SCRATCH[volume] for volume in ("app", "tmp")}
    arguments = [FETCH_CONTAINER, f"{mounts['tmp']}/{ARCHIVE_KEY}", APP_DIR, TERMINATION_LOG]
    return {
        "name": FETCH_CONTAINER,
        "image": spec.init_image,
        "imagePullPolicy": PULL_POLICIES[PullPolicy.MISSING],
        "command": ["sh", "-c", literal(FETCH_SCRIPT)],
        "args": [literal(argument) for argument in arguments],
        "env": [{"name": URL_VARIABLE, "value": literal(spec.bundle_url)}],
        "resources": hardening.resources(spec.session.limits),
        "securityContext": hardening.hardened_container_context(),
        "volumeMounts": [{"name": name, "mountPath": path} for name, path in mounts.items()],
    }


def _session_container(spec: RunPodSpec) -> dict[str, Any]:
    session = spec.session
    (app,) = session.apps
    mounts: list[dict[str, Any]] = [
        {"name": name, "mountPath": path} for name, path in _SCRATCH.items()
    ]
    # NB: options stand before the path: kernels hand everything after it to the application.
    inspect = ["--inspect", f"0.0.0.0:{INSPECT_PORT}", "--no-open"] if session.is_inspected else []
    telo = [literal(word) for word in ("telo", "run", *inspect, f"{APP_DIR}/{app.entry}")]
    command: dict[str, Any] = {"command": telo}
    if session.delivery is Delivery.INLINE:
        start = ["telo-start", f"{BUNDLE_MOUNT}/{ARCHIVE_KEY}", APP_DIR, TERMINATION_LOG]
        command = {"command": ["sh", "-c", literal(START_SCRIPT)], "args": [*start, *telo]}
        mounts.insert(0, {"name": "bundle", "mountPath": BUNDLE_MOUNT, "readOnly": True})
    container: dict[str, Any] = {
        "name": SESSION_CONTAINER,
        "image": session.image,
        "imagePullPolicy": PULL_POLICIES[session.pull_policy],
        **command,
        "workingDir": WORK_DIR,
        "env": variables(_environment(spec)),
        "stdin": True,
        "stdinOnce": False,
        "tty": app.io is IoMode.TTY,
        "resources": hardening.resources(session.limits),
        "securityContext": hardening.hardened_container_context(),
        "volumeMounts": mounts,
        **declared_ports(app),
    }
    return container


def _environment(spec: RunPodSpec) -> dict[str, str]:
    """Return the container's variables; the runner's own names win over the session's."""
    own = {"TELO_CACHE_DIR": CACHE_DIR, "HOME": HOME_DIR, "npm_config_cache": f"{HOME_DIR}/.npm"}
    colour = {"CLICOLOR_FORCE": "1", "FORCE_COLOR": "1"}
    theirs = {name: value for name, value in spec.env.items() if name not in own | colour}
    # Streams are read by programs: there nobody forces colour, the client neither.
    return theirs | own | (colour if spec.session.apps[0].io is IoMode.TTY else {})
