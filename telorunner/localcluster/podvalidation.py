"""What makes a Pod invalid, in the words of the real API. Pure.

It covers what a client of this project can get wrong: names, images, mounts, ports, environment,
resources and policies. What the restricted Pod Security Standard refuses is in `podsecurity`.
"""

import re
from collections.abc import Iterator
from typing import Any

from telorunner.localcluster.quantities import NOT_A_QUANTITY, canonical
from telorunner.localcluster.statuses import kind_of
from telorunner.localcluster.validation import (
    Fault,
    duplicate,
    label_faults,
    not_allowed,
    required,
    undecodable,
    unsupported,
    wrong,
)
from telorunner.values.quantity import parse_quantity

_ENV_NAME = r"[ -<>-~]+"
_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_RESTART_POLICIES = ("Always", "OnFailure", "Never")
_MAX_INT32 = 2147483647
_MAY_CHANGE = ("activeDeadlineSeconds", "tolerations")
_IMMUTABLE = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions"
    " to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it"
    " was previously negative)"
)


def containers(spec: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (path, container) of the init containers and then the containers of a pod."""
    for group in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(group) or []):
            yield f"spec.{group}[{index}]", container


def check_shape(obj: dict[str, Any]) -> None:
    """Check that a pod's containers are objects and its quantities can be read.

    Raises:
        StoreError: 400, they cannot.
    """
    kind = kind_of("pods")
    spec = obj.get("spec")
    if not isinstance(spec, dict | None):
        raise undecodable(kind, "json: cannot unmarshal into Go struct field Pod.spec")
    for path, container in containers(spec or {}):
        if not isinstance(container, dict):
            raise undecodable(kind, f"json: cannot unmarshal into Go struct field Pod.{path}")
        resources = container.get("resources") or {}
        for amounts in (resources.get("limits") or {}, resources.get("requests") or {}):
            try:
                for amount in amounts.values():
                    canonical(str(amount))
            except ValueError as exc:
                raise undecodable(kind, NOT_A_QUANTITY) from exc


def pod_faults(obj: dict[str, Any]) -> list[Fault]:
    """Return what is wrong with a pod, after its defaults have been filled in."""
    spec = obj.get("spec") or {}
    faults = list(_volume_faults(spec))
    if not spec.get("containers"):
        faults.append(required("spec.containers"))
    volumes = {volume.get("name") for volume in spec.get("volumes") or []}
    names: set[str] = set()
    for path, container in containers(spec):
        faults += _name_faults(path, container, names)
        faults += _image_faults(path, container)
        faults += _port_faults(path, container)
        faults += _env_faults(path, container)
        faults += _mount_faults(path, container, volumes)
        policy = container.get("imagePullPolicy")
        if policy and policy not in _PULL_POLICIES:
            faults.append(unsupported(f"{path}.imagePullPolicy", policy, _PULL_POLICIES))
        faults += _resource_faults(path, container)
    return [*faults, *_spec_faults(spec)]


def pod_update_faults(old: dict[str, Any], new: dict[str, Any]) -> list[Fault]:
    """Return what a pod may not become: little of it may change."""
    if _comparable(old["spec"]) == _comparable(new["spec"]):
        return []
    return [not_allowed("spec", _IMMUTABLE)]


def _comparable(spec: dict[str, Any]) -> dict[str, Any]:
    comparable = {field: value for field, value in spec.items() if field not in _MAY_CHANGE}
    for group in ("initContainers", "containers"):
        comparable[group] = [{**container, "image": ""} for container in spec.get(group) or []]
    return comparable


def _spec_faults(spec: dict[str, Any]) -> Iterator[Fault]:
    policy = spec.get("restartPolicy", "Always")
    if policy not in _RESTART_POLICIES:
        yield unsupported("spec.restartPolicy", policy, _RESTART_POLICIES)
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= _MAX_INT32:
        why = f"must be between 1 and {_MAX_INT32}, inclusive"
        yield wrong("spec.activeDeadlineSeconds", deadline, why)


def _volume_faults(spec: dict[str, Any]) -> Iterator[Fault]:
    seen: set[str] = set()
    for index, volume in enumerate(spec.get("volumes") or []):
        yield from _name_faults(f"spec.volumes[{index}]", volume, seen)


def _name_faults(path: str, named: dict[str, Any], seen: set[str]) -> Iterator[Fault]:
    """Check the name of a container or a volume; `seen` has those before it."""
    field, name = f"{path}.name", named.get("name")
    if not name:
        yield required(field)
        return
    yield from label_faults(field, name)
    if name in seen:
        yield duplicate(field, name)
    seen.add(name)


def _image_faults(path: str, container: dict[str, Any]) -> Iterator[Fault]:
    image = container.get("image")
    if not image:
        yield required(f"{path}.image")
    elif image != image.strip():
        yield wrong(f"{path}.image", image, "must not have leading or trailing whitespace")


def _port_faults(path: str, container: dict[str, Any]) -> Iterator[Fault]:
    for index, port in enumerate(container.get("ports") or []):
        field, number = f"{path}.ports[{index}].containerPort", port.get("containerPort")
        if not number:
            yield required(field)
        elif not 1 <= number <= 65535:
            yield wrong(field, number, "must be between 1 and 65535, inclusive")


def _env_faults(path: str, container: dict[str, Any]) -> Iterator[Fault]:
    for index, variable in enumerate(container.get("env") or []):
        field, name = f"{path}.env[{index}].name", variable.get("name")
        if not name:
            yield required(field)
        elif not re.fullmatch(_ENV_NAME, name):
            why = (
                "a valid environment variable name must consist only of printable ASCII characters"
                " other than '='"
            )
            yield wrong(field, name, why)


def _mount_faults(
    path: str, container: dict[str, Any], volumes: set[str | None]
) -> Iterator[Fault]:
    seen: set[str] = set()
    for index, mount in enumerate(container.get("volumeMounts") or []):
        field = f"{path}.volumeMounts[{index}]"
        name, where = mount.get("name", ""), mount.get("mountPath", "")
        if name not in volumes:
            message = f'Not found: "{name}"'
            yield {"reason": "FieldValueNotFound", "message": message, "field": f"{field}.name"}
        if not where:
            yield required(f"{field}.mountPath")
        elif where in seen:
            yield wrong(f"{field}.mountPath", where, "must be unique")
        seen.add(where)


def _resource_faults(path: str, container: dict[str, Any]) -> Iterator[Fault]:
    resources = container.get("resources") or {}
    limits = resources.get("limits") or {}
    for name, amount in (resources.get("requests") or {}).items():
        if name in limits and parse_quantity(str(amount)) > parse_quantity(str(limits[name])):
            why = f"must be less than or equal to {name} limit of {limits[name]}"
            yield wrong(f"{path}.resources.requests", str(amount), why)
