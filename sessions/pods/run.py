"""The pod and the ConfigMap of a run session with inline delivery; pure.

The container starts a fixed shell text that unpacks the bundle, waits for its terminal and becomes
the `telo` command line. Everything of the session reaches it as arguments, never as shell text.
"""

import base64
import re
from typing import Any

from sessions.pods import hardening
from sessions.pods.script import START_SCRIPT, TERMINATION_LOG
from sessions.spec import App, RunPodSpec
from sessions.states import IoMode, PullPolicy
from telorunner.kube.objects import session_labels

SESSION_CONTAINER = "session"
INSPECT_PORT = 9230

ARCHIVE_KEY = "bundle.tgz"
BUNDLE_MOUNT = "/bundle"
APP_DIR = "/app"
WORK_DIR = "/work"
HOME_DIR = "/home/telo"
CACHE_DIR = "/telo-cache"

_PULL_POLICIES = {
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
            "containers": [_session_container(spec)],
            "volumes": [
                {"name": "bundle", "configMap": {"name": name}},
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


def _session_container(spec: RunPodSpec) -> dict[str, Any]:
    session = spec.session
    (app,) = session.apps
    container: dict[str, Any] = {
        "name": SESSION_CONTAINER,
        "image": session.image,
        "imagePullPolicy": _PULL_POLICIES[session.pull_policy],
        "command": ["sh", "-c", literal(START_SCRIPT)],
        "args": [literal(argument) for argument in _arguments(app, session.is_inspected)],
        "workingDir": WORK_DIR,
        "env": [
            {"name": name, "value": literal(value)} for name, value in _environment(spec).items()
        ],
        "stdin": True,
        "stdinOnce": False,
        "tty": app.io is IoMode.TTY,
        "resources": hardening.resources(session.limits),
        "securityContext": hardening.hardened_container_context(),
        "volumeMounts": [
            {"name": "bundle", "mountPath": BUNDLE_MOUNT, "readOnly": True},
            *({"name": name, "mountPath": path} for name, path in _SCRATCH.items()),
        ],
    }
    if app.ports:
        container["ports"] = [
            {"containerPort": port.port, "protocol": port.protocol.upper()} for port in app.ports
        ]
    return container


def _arguments(app: App, is_inspected: bool) -> list[str]:
    # NB: options stand before the path: kernels hand everything after it to the application.
    inspect = ["--inspect", f"0.0.0.0:{INSPECT_PORT}", "--no-open"] if is_inspected else []
    return [
        "telo-start",
        f"{BUNDLE_MOUNT}/{ARCHIVE_KEY}",
        APP_DIR,
        TERMINATION_LOG,
        "telo",
        "run",
        *inspect,
        f"{APP_DIR}/{app.entry}",
    ]


def _environment(spec: RunPodSpec) -> dict[str, str]:
    """Return the container's variables; the runner's own names win over the session's."""
    own = {"TELO_CACHE_DIR": CACHE_DIR, "HOME": HOME_DIR, "npm_config_cache": f"{HOME_DIR}/.npm"}
    if spec.session.apps[0].io is IoMode.TTY:
        own |= {"CLICOLOR_FORCE": "1", "FORCE_COLOR": "1"}
    return {name: value for name, value in spec.env.items() if name not in own} | own
