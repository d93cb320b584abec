"""A container's environment and command line, made as the kubelet makes them. Pure.

Nothing of the cluster's own environment gets in. Where a value comes from another object, the
caller hands in a way to look it up.
"""

import base64
import re
from collections.abc import Callable, Mapping
from typing import Any

from telorunner.localcluster.node.images import Image
from telorunner.localcluster.node.settings import HOST_IP

# Returns an object of the pod's namespace by resource ("configmaps", "secrets") and name.
Lookup = Callable[[str, str], dict[str, Any] | None]

_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")
_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['([^']*)'\]")


class ConfigTrouble(Exception):
    """A container cannot be made from its spec: the message of CreateContainerConfigError."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace `$(NAME)` by the variable's value and `$$` by `$`; unknown names stay as they are.

    Source: https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/
    """

    def replace(match: re.Match[str]) -> str:
        name = match[1]
        return "$" if name is None else variables.get(name, match[0])

    return _REFERENCE.sub(replace, text)


def build_argv(container: Mapping[str, Any], image: Image, env: Mapping[str, str]) -> list[str]:
    """Return the command line of a container; what the image says is never expanded.

    Source: https://kubernetes.io/docs/tasks/inject-data-application/define-command-argument-container/
    """
    command = [expand(text, env) for text in container.get("command") or []]
    args = [expand(text, env) for text in container.get("args") or []]
    if command:
        return [*command, *args]
    return [*image.entrypoint, *(args or image.cmd)]


def check_user(pod: Mapping[str, Any], container: Mapping[str, Any], image: Image) -> None:
    """Check that a container which must not run as root does not.

    Raises:
        ConfigTrouble: It would, or nothing says whom it would run as.

    Source: kubernetes/pkg/kubelet/kuberuntime/security_context_others.go, verifyRunAsNonRoot
    """
    own = container.get("securityContext") or {}
    context = {**(pod["spec"].get("securityContext") or {}), **own}
    if not context.get("runAsNonRoot"):
        return
    if context.get("runAsUser") == 0:
        what = "container's runAsUser breaks non-root policy"
    elif context.get("runAsUser") is None and image.is_of_root:
        what = "container has runAsNonRoot and image will run as root"
    else:
        return
    metadata = pod["metadata"]
    shown = f"{metadata['name']}_{metadata['namespace']}({metadata['uid']})"
    raise ConfigTrouble(f'{what} (pod: "{shown}", container: {container["name"]})')


def build_env(
    pod: Mapping[str, Any], container: Mapping[str, Any], pod_ip: str, lookup: Lookup
) -> dict[str, str]:
    """Return the variables that a container's spec names, with their references expanded.

    Raises:
        ConfigTrouble: A value's source is missing.
    """
    env: dict[str, str] = {}
    for source in container.get("envFrom", []):
        prefix = source.get("prefix", "")
        env.update({prefix + name: value for name, value in _whole_source(source, lookup).items()})
    for entry in container.get("env", []):
        if "valueFrom" not in entry:
            env[entry["name"]] = expand(entry.get("value", ""), env)
            continue
        value = _value_from(entry["valueFrom"], pod, pod_ip, lookup)
        if value is not None:
            env[entry["name"]] = value
    return env


def _whole_source(source: Mapping[str, Any], lookup: Lookup) -> dict[str, str]:
    for field, resource, noun in (
        ("configMapRef", "configmaps", "configmap"),
        ("secretRef", "secrets", "secret"),
    ):
        if field in source:
            found = lookup(resource, source[field]["name"])
            if found is None and not source[field].get("optional"):
                raise ConfigTrouble(f'{noun} "{source[field]["name"]}" not found')
            return {key: read_text(found, key) or "" for key in (found or {}).get("data") or {}}
    return {}


def _value_from(
    source: Mapping[str, Any], pod: Mapping[str, Any], pod_ip: str, lookup: Lookup
) -> str | None:
    if "fieldRef" in source:
        return field_value(pod, source["fieldRef"]["fieldPath"], pod_ip)
    for field, resource, noun, kind in (
        ("configMapKeyRef", "configmaps", "configmap", "ConfigMap"),
        ("secretKeyRef", "secrets", "secret", "Secret"),
    ):
        if field in source:
            reference = source[field]
            found = lookup(resource, reference["name"])
            value = None if found is None else read_text(found, reference["key"])
            if value is not None or reference.get("optional"):
                return value
            if found is None:
                raise ConfigTrouble(f'{noun} "{reference["name"]}" not found')
            where = f"{pod['metadata'].get('namespace', '')}/{reference['name']}"
            raise ConfigTrouble(f"couldn't find key {reference['key']} in {kind} {where}")
    raise ConfigTrouble(f"the local cluster has no values from {', '.join(source) or 'nothing'}")


def read_text(obj: Mapping[str, Any] | None, key: str) -> str | None:
    """Return one text value of a ConfigMap or Secret, or None where it has no such key."""
    value = ((obj or {}).get("data") or {}).get(key)
    if value is None or (obj or {}).get("kind") != "Secret":
        return value
    return base64.b64decode(value).decode("utf-8", "surrogateescape")


def field_value(pod: Mapping[str, Any], path: str, pod_ip: str) -> str:
    """Return a field of the pod as the downward API gives it.

    Raises:
        ConfigTrouble: There is no such field.
    """
    metadata, spec = pod["metadata"], pod["spec"]
    subscript = _SUBSCRIPT.fullmatch(path)
    if subscript is not None:
        return str((metadata.get(subscript[1]) or {}).get(subscript[2], ""))
    fields = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata.get("namespace", ""),
        "metadata.uid": metadata.get("uid", ""),
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName", "default"),
        "status.podIP": pod_ip,
        "status.podIPs": pod_ip,
        "status.hostIP": HOST_IP,
        "status.hostIPs": HOST_IP,
    }
    if path not in fields:
        raise ConfigTrouble(f"unsupported fieldPath: {path}")
    return str(fields[path])
