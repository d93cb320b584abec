"""What the API fills into objects that leave it out. Pure: objects in, new objects out.

Only what clients and the node agent read is filled in; the token volume that a real cluster adds
to pods is not, since nothing in this cluster would answer to it.
"""

from typing import Any

from telorunner.localcluster.quantities import canonical_amounts

DEFAULT_GRACE_SECONDS = 30
# The priority classes that every cluster has; this one knows no others.
PRIORITIES = {"system-cluster-critical": 2000000000, "system-node-critical": 2000001000}
_TOLERATION_SECONDS = 300

_POD_DEFAULTS: dict[str, Any] = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": DEFAULT_GRACE_SECONDS,
    "dnsPolicy": "ClusterFirst",
    "securityContext": {},
    "schedulerName": "default-scheduler",
    "enableServiceLinks": True,
}
_PROBE_DEFAULTS = {
    "timeoutSeconds": 1,
    "periodSeconds": 10,
    "successThreshold": 1,
    "failureThreshold": 3,
}
# Modes of files that a volume brings, octal 644.
_DEFAULT_MODE = 0o644
_VOLUMES_WITH_MODE = {
    "configMap": "defaultMode",
    "secret": "defaultMode",
    "projected": "defaultMode",
    "downwardAPI": "defaultMode",
}


def default_pod(obj: dict[str, Any]) -> dict[str, Any]:
    """Return a pod with everything filled in that the API server fills in."""
    given = obj.get("spec") or {}
    spec: dict[str, Any] = {**_POD_DEFAULTS, **given}
    for group in ("initContainers", "containers"):
        if group in given:
            spec[group] = [_container(container) for container in given[group] or []]
    if given.get("volumes"):
        spec["volumes"] = [_volume(volume) for volume in given["volumes"]]
    account = given.get("serviceAccountName") or given.get("serviceAccount") or "default"
    spec |= {"serviceAccountName": account, "serviceAccount": account}
    spec["tolerations"] = _tolerations(given.get("tolerations") or [])
    spec.setdefault("priority", PRIORITIES.get(spec.get("priorityClassName", ""), 0))
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    return {**obj, "spec": spec}


def new_pod_status(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the status that a pod is created with."""
    return {"phase": "Pending", "qosClass": qos_class(spec)}


def qos_class(spec: dict[str, Any]) -> str:
    """Return the quality-of-service class that follows from a pod's resources.

    Source: https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/
    """
    asked = [
        container.get("resources") or {}
        for group in ("initContainers", "containers")
        for container in spec.get(group) or []
    ]
    if not any(resources.get("limits") or resources.get("requests") for resources in asked):
        return "BestEffort"
    is_guaranteed = all(
        (resources.get("limits") or {}).get(name) is not None
        and resources["limits"][name] == (resources.get("requests") or {}).get(name)
        for resources in asked
        for name in ("cpu", "memory")
    )
    return "Guaranteed" if is_guaranteed else "Burstable"


def default_pull_policy(image: str) -> str:
    """Return Always for an image without a tag or with `latest`, else IfNotPresent."""
    if "@" in image:
        return "IfNotPresent"
    _, colon, tag = image.rpartition("/")[2].partition(":")
    return "Always" if not colon or tag == "latest" else "IfNotPresent"


def default_quota(obj: dict[str, Any]) -> dict[str, Any]:
    """Return a ResourceQuota with its amounts in canonical form."""
    spec = obj.get("spec") or {}
    return {**obj, "spec": {**spec, "hard": canonical_amounts(spec.get("hard") or {})}}


def _container(given: dict[str, Any]) -> dict[str, Any]:
    container = {
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        **given,
        "resources": _resources(given.get("resources") or {}),
    }
    if given.get("image"):
        container.setdefault("imagePullPolicy", default_pull_policy(given["image"]))
    if given.get("ports"):
        container["ports"] = [
            {**port, "protocol": port.get("protocol", "TCP")} for port in given["ports"]
        ]
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if given.get(probe):
            container[probe] = {**_PROBE_DEFAULTS, **given[probe]}
    return container


def _resources(given: dict[str, Any]) -> dict[str, Any]:
    """Return limits and requests in canonical form; a limit is also what is requested."""
    limits = canonical_amounts(given.get("limits") or {})
    requests = {**limits, **canonical_amounts(given.get("requests") or {})}
    resources = {key: value for key, value in given.items() if key not in ("limits", "requests")}
    if limits:
        resources["limits"] = limits
    if requests:
        resources["requests"] = dict(sorted(requests.items()))
    return resources


def _volume(given: dict[str, Any]) -> dict[str, Any]:
    sources = [key for key in given if key != "name"]
    volume = dict(given) if sources else {**given, "emptyDir": {}}
    for source, field in _VOLUMES_WITH_MODE.items():
        if isinstance(volume.get(source), dict):
            volume[source] = {field: _DEFAULT_MODE, **volume[source]}
    return volume


def _tolerations(given: list[dict[str, Any]]) -> list[dict[str, Any]]:
    tolerations = list(given)
    for condition in ("not-ready", "unreachable"):
        key = f"node.kubernetes.io/{condition}"
        if not any(
            toleration.get("key", "") in ("", key)
            and toleration.get("effect", "") in ("", "NoExecute")
            for toleration in given
        ):
            tolerations.append(
                {
                    "key": key,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": _TOLERATION_SECONDS,
                }
            )
    return tolerations
