"""The pod of an app session: an image of the catalog's with its own entrypoint; pure.

It has no bundle, no init container and no volume: the image brings its application, its user and
its filesystem, and what confines it are the pod's limits and its security context.
"""

from typing import Any

from sessions.pods import hardening
from sessions.pods.run import (
    PULL_POLICIES,
    SESSION_CONTAINER,
    declared_ports,
    object_name,
    variables,
)
from sessions.spec import RunPodSpec
from telorunner.kube.objects import session_labels

# Which app it is, for whoever looks at the namespace; and that it is one, for the wording of what
# went wrong (`sessions.pods.wording`).
APP_LABEL = "telo.run/app"

# The runner's own; nobody else's value of it counts.
_COLOUR = {"CLICOLOR_FORCE": "1"}


def build_app_pod(spec: RunPodSpec) -> dict[str, Any]:
    """Return the manifest of an app session's pod."""
    session = spec.session
    labels = session_labels(spec.managed_by, session.session_id)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": object_name(session.session_id),
            "namespace": spec.namespace,
            "labels": {**labels, APP_LABEL: session.app_name},
        },
        "spec": {
            **hardening.pod_defaults(
                session.limits.ttl_seconds,
                image_pull_secret=spec.image_pull_secret,
                runtime_class=spec.runtime_class,
            ),
            "securityContext": hardening.operator_pod_context(allow_root=session.allow_root),
            "containers": [_container(spec)],
        },
    }


def _container(spec: RunPodSpec) -> dict[str, Any]:
    session = spec.session
    (app,) = session.apps
    return {
        "name": SESSION_CONTAINER,
        "image": session.image,
        "imagePullPolicy": PULL_POLICIES[session.pull_policy],
        "env": variables({**spec.env, **_COLOUR}),
        "stdin": True,
        "stdinOnce": False,
        "tty": True,
        "resources": hardening.resources(session.limits),
        "securityContext": hardening.operator_container_context(allow_root=session.allow_root),
        **declared_ports(app),
    }
