"""The checks of the Pod Security Standard *baseline*, with the real API's wording. Pure.

Each returns what is forbidden and what to do about it, None where nothing is wrong. Since which
version it stands in which way is in `podsecurity`.

Source: https://kubernetes.io/docs/concepts/security/pod-security-standards/#baseline
"""

from collections.abc import Collection, Iterator
from typing import Any

from telorunner.localcluster.podcandidate import (
    Candidate,
    Check,
    Context,
    Finding,
    added_capabilities,
    named,
    no_more_capabilities,
    quoted,
    seccomp_type,
    setters_of,
    use,
)

_DEFAULT_CAPABILITIES = frozenset(
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
_APPARMOR_ANNOTATION = "container.apparmor.security.beta.kubernetes.io/"
_SECCOMP_ANNOTATIONS = (
    "seccomp.security.alpha.kubernetes.io/pod",
    "container.seccomp.security.alpha.kubernetes.io/",
)
_CONFINED = ("", "runtime/default", "docker/default")


def app_armor(candidate: Candidate) -> Finding | None:
    """Refuse unconfined AppArmor profiles; annotations mean the container that they name too."""
    values = sorted(
        f'{key}="{value}"'
        for key, value in candidate.annotations.items()
        if key.startswith(_APPARMOR_ANNOTATION) and not _is_confined(value)
    )

    def is_unconfined(context: Context) -> bool:
        return (context.get("appArmorProfile") or {}).get("type") == "Unconfined"

    is_pod_wrong = is_unconfined(candidate.context)
    annotated = () if is_pod_wrong else tuple(value.partition("=")[0] for value in values)
    wrong = [
        name
        for name, _, context in candidate.containers
        if is_unconfined(context)
        or (not context.get("appArmorProfile") and f"{_APPARMOR_ANNOTATION}{name}" in annotated)
    ]
    setters = ["pod"] if is_pod_wrong else []
    setters += [named("container", wrong)] if wrong else []
    if values:
        setters.append("annotations" if len(values) > 1 else "annotation")
    if not setters:
        return None
    if is_pod_wrong or wrong:
        values = ["Unconfined", *values]
    reason = f"forbidden AppArmor profile{'s' if len(values) > 1 else ''}"
    return (
        reason,
        f"{' and '.join(setters)} must not set AppArmor profile type to {quoted(values)}",
    )


def default_capabilities(candidate: Candidate) -> Finding | None:
    """Refuse capabilities that containers do not get by default."""
    added = added_capabilities(candidate, _DEFAULT_CAPABILITIES)
    return ("non-default capabilities", no_more_capabilities(added)) if added else None


def host_namespaces(candidate: Candidate) -> Finding | None:
    """Refuse the namespaces of the node."""
    names = ("hostNetwork", "hostPID", "hostIPC")
    used = [f"{name}=true" for name in names if candidate.spec.get(name)]
    return ("host namespaces", ", ".join(used)) if used else None


def host_paths(candidate: Candidate) -> Finding | None:
    """Refuse folders of the node."""
    volumes = candidate.spec.get("volumes") or []
    found = [volume["name"] for volume in volumes if "hostPath" in volume]
    return ("hostPath volumes", named("volume", found)) if found else None


def host_ports(candidate: Candidate) -> Finding | None:
    """Refuse ports of the node."""
    ports = {
        name: [str(port["hostPort"]) for port in container.get("ports") or [] if "hostPort" in port]
        for name, container, _ in candidate.containers
    }
    found = [name for name, used in ports.items() if used]
    if not found:
        return None
    numbers = sorted({port for used in ports.values() for port in used})
    word = "hostPorts" if len(numbers) > 1 else "hostPort"
    return "hostPort", f"{named('container', found)} {use(found)} {word} {', '.join(numbers)}"


def probe_hosts(candidate: Candidate) -> Finding | None:
    """Refuse probes and hooks that ask another host than the pod."""
    hosts = {name: set(_hosts(container)) for name, container, _ in candidate.containers}
    found = sorted(name for name, used in hosts.items() if used)
    if not found:
        return None
    used = named("probe or lifecycle host", sorted(set().union(*hosts.values())))
    return "probe or lifecycle host", f"{named('container', found)} {use(found)} {used}"


def _hosts(container: dict[str, Any]) -> Iterator[str]:
    probes = [container.get(f"{name}Probe") for name in ("liveness", "readiness", "startup")]
    hooks = container.get("lifecycle") or {}
    for handler in (*probes, hooks.get("postStart"), hooks.get("preStop")):
        for way in ("httpGet", "tcpSocket"):
            host = ((handler or {}).get(way) or {}).get("host")
            if host:
                yield host


def privileged(candidate: Candidate) -> Finding | None:
    """Refuse containers that may do everything on the node."""
    found = [name for name, _, context in candidate.containers if context.get("privileged")]
    advice = "must not set securityContext.privileged=true"
    return ("privileged", f"{named('container', found)} {advice}") if found else None


def proc_mounts(candidate: Candidate) -> Finding | None:
    """Refuse an open /proc."""
    mounts = {
        name: context["procMount"]
        for name, _, context in candidate.containers
        if context.get("procMount", "Default") != "Default"
    }
    if not mounts:
        return None
    advice = "must not set securityContext.procMount to"
    values = quoted(sorted(set(mounts.values())))
    return "procMount", f"{named('container', mounts)} {advice} {values}"


def se_linux(allowed: Collection[str]) -> Check:
    """Return the check that lets only some SELinux types pass, and neither user nor role."""

    def options(context: Context) -> dict[str, Any]:
        return context.get("seLinuxOptions") or {}

    def is_wrong(context: Context) -> bool:
        given = options(context)
        return bool(given.get("user") or given.get("role") or given.get("type", "") not in allowed)

    def check(candidate: Candidate) -> Finding | None:
        setters = setters_of(candidate, is_wrong)
        if not setters:
            return None
        contexts = [candidate.context, *(context for *_, context in candidate.containers)]
        types = {options(context).get("type", "") for context in contexts} - set(allowed)
        told = [named("type", sorted(types))] if types else []
        told += [
            f"{name} may not be set"
            for name in ("user", "role")
            if any(options(context).get(name) for context in contexts)
        ]
        advice = f"{setters} set forbidden securityContext.seLinuxOptions: {'; '.join(told)}"
        return "seLinuxOptions", advice

    return check


def annotated_seccomp(candidate: Candidate) -> Finding | None:
    """Refuse unconfined seccomp profiles in the annotations that were there before the field."""
    found = sorted(
        f'{key}="{value}"'
        for key, value in candidate.annotations.items()
        if key.startswith(_SECCOMP_ANNOTATIONS) and not _is_confined(value)
    )
    word = "forbidden annotation" + ("s" if len(found) > 1 else "")
    return ("seccompProfile", f"{word} {', '.join(found)}") if found else None


def unconfined_seccomp(candidate: Candidate) -> Finding | None:
    """Refuse unconfined seccomp profiles."""
    setters = setters_of(candidate, lambda context: seccomp_type(context) == "Unconfined")
    advice = 'must not set securityContext.seccompProfile.type to "Unconfined"'
    return ("seccompProfile", f"{setters} {advice}") if setters else None


def sysctls(allowed: Collection[str]) -> Check:
    """Return the check that lets only some kernel settings pass."""

    def check(candidate: Candidate) -> Finding | None:
        given = [one["name"] for one in candidate.context.get("sysctls") or []]
        found = [name for name in given if name not in allowed]
        return ("forbidden sysctls", ", ".join(found)) if found else None

    return check


def host_processes(candidate: Candidate) -> Finding | None:
    """Refuse Windows containers that run on the node itself."""
    setters = setters_of(
        candidate, lambda context: bool((context.get("windowsOptions") or {}).get("hostProcess"))
    )
    advice = "must not set securityContext.windowsOptions.hostProcess=true"
    return ("hostProcess", f"{setters} {advice}") if setters else None


def _is_confined(profile: str) -> bool:
    return profile in _CONFINED or profile.startswith("localhost/")
