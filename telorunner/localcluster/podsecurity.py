"""The Pod Security Standards `baseline` and `restricted`, with the real API's wording. Pure.

Each check returns what is forbidden and what to do about it; they stand in the order in which a
real cluster names them. Windows pods and AppArmor, SELinux and /proc mounts are not looked at:
the local cluster has none of these.

Source: https://kubernetes.io/docs/concepts/security/pod-security-standards/
"""

from collections.abc import Callable, Iterable
from typing import Any

Finding = tuple[str, str]
Check = Callable[[dict[str, Any]], Finding | None]

_BASELINE_CAPABILITIES = frozenset(
    (
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    )
)
_RESTRICTED_VOLUMES = frozenset(
    (
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "image",
        "persistentVolumeClaim",
        "projected",
        "secret",
    )
)
_SECCOMP_TYPES = ("RuntimeDefault", "Localhost")


def violations(level: str, version: str, spec: dict[str, Any]) -> str | None:
    """Return the sentence that tells what a pod violates, None where it may run.

    `level` is privileged, baseline or restricted; one that is not known counts as restricted.
    """
    if level == "privileged":
        return None
    checks = _BASELINE if level == "baseline" else _RESTRICTED
    found = [finding for check in checks if (finding := check(spec)) is not None]
    if not found:
        return None
    listed = ", ".join(f"{what} ({advice})" for what, advice in found)
    return f'violates PodSecurity "{level}:{version}": {listed}'


def _containers(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]


def _context(container: dict[str, Any]) -> dict[str, Any]:
    return container.get("securityContext") or {}


def _named(word: str, names: Iterable[str]) -> str:
    quoted = [f'"{name}"' for name in names]
    return f"{word}{'s' if len(quoted) > 1 else ''} {', '.join(quoted)}"


def _offenders(
    spec: dict[str, Any], offends: Check | Callable[[dict[str, Any]], bool]
) -> list[str]:
    return [container["name"] for container in _containers(spec) if offends(container)]


def _host_namespaces(spec: dict[str, Any]) -> Finding | None:
    used = [f"{name}=true" for name in ("hostNetwork", "hostPID", "hostIPC") if spec.get(name)]
    return ("host namespaces", ", ".join(used)) if used else None


def _privileged(spec: dict[str, Any]) -> Finding | None:
    names = _offenders(spec, lambda container: bool(_context(container).get("privileged")))
    if not names:
        return None
    return (
        "privileged",
        f"{_named('container', names)} must not set securityContext.privileged=true",
    )


def _host_path(spec: dict[str, Any]) -> Finding | None:
    names = [volume["name"] for volume in spec.get("volumes") or [] if "hostPath" in volume]
    return ("hostPath volumes", _named("volume", names)) if names else None


def _host_ports(spec: dict[str, Any]) -> Finding | None:
    ports = {
        container["name"]: [
            port["hostPort"] for port in container.get("ports") or [] if port.get("hostPort")
        ]
        for container in _containers(spec)
    }
    names = [name for name, used in ports.items() if used]
    if not names:
        return None
    numbers = sorted({port for used in ports.values() for port in used})
    word = "hostPorts" if len(numbers) > 1 else "hostPort"
    return "hostPort", f"{_named('container', names)} uses {word} {', '.join(map(str, numbers))}"


def _baseline_capabilities(spec: dict[str, Any]) -> Finding | None:
    added = {
        container["name"]: set((_context(container).get("capabilities") or {}).get("add") or [])
        - _BASELINE_CAPABILITIES
        for container in _containers(spec)
    }
    names = [name for name, capabilities in added.items() if capabilities]
    if not names:
        return None
    listed = ", ".join(f'"{name}"' for name in sorted(set().union(*added.values())))
    who = _named("container", names)
    advice = f"{who} must not include {listed} in securityContext.capabilities.add"
    return "non-default capabilities", advice


def _unconfined(spec: dict[str, Any]) -> Finding | None:
    where = _settings(
        spec, "seccompProfile", lambda value: (value or {}).get("type") == "Unconfined"
    )
    if not where:
        return None
    advice = f'{where} must not set securityContext.seccompProfile.type to "Unconfined"'
    return "seccompProfile", advice


def _volume_types(spec: dict[str, Any]) -> Finding | None:
    bad = {
        volume["name"]: source
        for volume in spec.get("volumes") or []
        for source in volume
        if source != "name" and source not in _RESTRICTED_VOLUMES
    }
    if not bad:
        return None
    types = sorted(set(bad.values()))
    verb = "uses" if len(bad) == 1 else "use"
    word = "type" if len(types) == 1 else "types"
    listed = ", ".join(f'"{source}"' for source in types)
    advice = f"{_named('volume', bad)} {verb} restricted volume {word} {listed}"
    return "restricted volume types", advice


def _escalation(spec: dict[str, Any]) -> Finding | None:
    names = _offenders(
        spec, lambda container: _context(container).get("allowPrivilegeEscalation") is not False
    )
    if not names:
        return None
    advice = f"{_named('container', names)} must set securityContext.allowPrivilegeEscalation=false"
    return "allowPrivilegeEscalation != false", advice


def _restricted_capabilities(spec: dict[str, Any]) -> Finding | None:
    keeping, adding, added = [], [], set()
    for container in _containers(spec):
        capabilities = _context(container).get("capabilities") or {}
        if "ALL" not in (capabilities.get("drop") or []):
            keeping.append(container["name"])
        extra = set(capabilities.get("add") or []) - {"NET_BIND_SERVICE"}
        if extra:
            adding.append(container["name"])
            added |= extra
    advice = []
    if keeping:
        advice.append(
            f'{_named("container", keeping)} must set securityContext.capabilities.drop=["ALL"]'
        )
    if adding:
        listed = ", ".join(f'"{name}"' for name in sorted(added))
        who = _named("container", adding)
        advice.append(f"{who} must not include {listed} in securityContext.capabilities.add")
    return ("unrestricted capabilities", "; ".join(advice)) if advice else None


def _non_root(spec: dict[str, Any]) -> Finding | None:
    wrong = _settings(spec, "runAsNonRoot", lambda value: value is False)
    if wrong:
        return "runAsNonRoot != true", f"{wrong} must not set securityContext.runAsNonRoot=false"
    if _context(spec).get("runAsNonRoot"):
        return None
    names = _offenders(spec, lambda container: not _context(container).get("runAsNonRoot"))
    if not names:
        return None
    advice = f"pod or {_named('container', names)} must set securityContext.runAsNonRoot=true"
    return "runAsNonRoot != true", advice


def _root_user(spec: dict[str, Any]) -> Finding | None:
    where = _settings(spec, "runAsUser", lambda value: value == 0)
    return ("runAsUser=0", f"{where} must not set runAsUser=0") if where else None


def _seccomp(spec: dict[str, Any]) -> Finding | None:
    wrong = _settings(
        spec,
        "seccompProfile",
        lambda value: value is not None and value.get("type") not in _SECCOMP_TYPES,
    )
    if wrong:
        advice = 'must not set securityContext.seccompProfile.type to "Unconfined"'
        return "seccompProfile", f"{wrong} {advice}"
    advice = 'must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"'
    if (_context(spec).get("seccompProfile") or {}).get("type") in _SECCOMP_TYPES:
        return None
    names = _offenders(spec, lambda container: not _context(container).get("seccompProfile"))
    return ("seccompProfile", f"pod or {_named('container', names)} {advice}") if names else None


def _settings(spec: dict[str, Any], field: str, is_wrong: Callable[[Any], bool]) -> str:
    """Return who sets a security context field wrongly: "pod and container ...", "" for nobody."""
    parts = ["pod"] if is_wrong(_context(spec).get(field)) else []
    names = _offenders(spec, lambda container: is_wrong(_context(container).get(field)))
    if names:
        parts.append(_named("container", names))
    return " and ".join(parts)


_BASELINE: tuple[Check, ...] = (
    _baseline_capabilities,
    _host_namespaces,
    _host_path,
    _host_ports,
    _privileged,
    _unconfined,
)
_RESTRICTED: tuple[Check, ...] = (
    _host_namespaces,
    _host_ports,
    _privileged,
    _escalation,
    _restricted_capabilities,
    _volume_types,
    _non_root,
    _root_user,
    _seccomp,
)
