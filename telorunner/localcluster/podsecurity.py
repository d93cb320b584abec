"""Pod Security admission: what a namespace's labels demand and what a pod violates of it. Pure.

A level is made up of checks, each of which has changed with some versions; they stand in the order
in which a real cluster names them.

Source: https://kubernetes.io/docs/concepts/security/pod-security-admission/
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from telorunner.localcluster import baselinechecks, restrictedchecks
from telorunner.localcluster.podcandidate import Candidate, Check, Finding, except_on_windows
from telorunner.localcluster.validation import Fault, wrong

_LABEL = "pod-security.kubernetes.io/"
ENFORCE, AUDIT, WARN = "enforce", "audit", "warn"
_MODES = (ENFORCE, AUDIT, WARN)
_LEVELS = ("privileged", "baseline", "restricted")
_VERSION = r"v1\.(0|[1-9][0-9]*)"
_LATEST = "latest"

_SYSCTLS = (
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_syncookies",
)
_SYSCTLS_27 = (*_SYSCTLS, "net.ipv4.ip_local_reserved_ports")
_SYSCTLS_29 = (
    *_SYSCTLS_27,
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
)
_SYSCTLS_32 = (*_SYSCTLS_29, "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem")
_SE_LINUX_TYPES = ("", "container_t", "container_init_t", "container_kvm_t")


@dataclass(frozen=True)
class Demand:
    """A level and the version of its checks."""

    level: str
    version: str

    @property
    def minor(self) -> float:
        """Return the minor version, infinity for the latest."""
        found = re.fullmatch(_VERSION, self.version)
        return float(found[1]) if found else float("inf")

    def may_refuse_more_than(self, other: "Demand") -> bool:
        """Say whether pods that fulfil another demand may not fulfil this one."""
        if self == other or self.level == _LEVELS[0]:
            return False
        is_as_lax = _LEVELS.index(self.level) <= _LEVELS.index(other.level)
        return not (is_as_lax and self.version == other.version)

    def __str__(self) -> str:
        return f"{self.level}:{self.version}"


# By the minor version from which on it is made in that way.
_Versions = Mapping[int, Check]

_BASELINE: tuple[_Versions, ...] = (
    {0: baselinechecks.app_armor},
    {0: baselinechecks.default_capabilities},
    {0: baselinechecks.host_namespaces},
    {0: baselinechecks.host_paths},
    {0: baselinechecks.host_ports},
    {34: baselinechecks.probe_hosts},
    {0: baselinechecks.privileged},
    {0: baselinechecks.proc_mounts},
    {
        0: baselinechecks.se_linux(_SE_LINUX_TYPES),
        31: baselinechecks.se_linux((*_SE_LINUX_TYPES, "container_engine_t")),
    },
    {0: baselinechecks.annotated_seccomp, 19: baselinechecks.unconfined_seccomp},
    {
        0: baselinechecks.sysctls(_SYSCTLS),
        27: baselinechecks.sysctls(_SYSCTLS_27),
        29: baselinechecks.sysctls(_SYSCTLS_29),
        32: baselinechecks.sysctls(_SYSCTLS_32),
    },
    {0: baselinechecks.host_processes},
)
_RESTRICTED: tuple[_Versions, ...] = (
    {8: restrictedchecks.escalation, 25: except_on_windows(restrictedchecks.escalation)},
    {22: restrictedchecks.no_capabilities, 25: except_on_windows(restrictedchecks.no_capabilities)},
    {0: restrictedchecks.volume_types},
    {0: restrictedchecks.non_root},
    {23: restrictedchecks.root_user},
    {
        19: restrictedchecks.confined_seccomp,
        25: except_on_windows(restrictedchecks.confined_seccomp),
    },
)
# By the minor version from which on a stricter check takes the place of one of the baseline's.
_REPLACED: Mapping[Check, int] = {
    baselinechecks.default_capabilities: 22,
    baselinechecks.host_paths: 0,
    baselinechecks.unconfined_seccomp: 19,
}


def demand(labels: Mapping[str, str], mode: str) -> Demand:
    """Return what a namespace demands of its pods; `mode` is "enforce", "audit" or "warn"."""
    level = labels.get(f"{_LABEL}{mode}", _LEVELS[0])
    return Demand(level, labels.get(f"{_LABEL}{mode}-version", _LATEST))


def label_faults(labels: Mapping[str, str]) -> list[Fault]:
    """Return what is wrong with the labels by which a namespace demands a level."""
    faults = []
    for mode in _MODES:
        for name, is_known, why in (
            (mode, _is_level, f"must be one of {', '.join(_LEVELS)}"),
            (f"{mode}-version", _is_version, 'must be "latest" or "v1.x"'),
        ):
            value = labels.get(f"{_LABEL}{name}")
            if value is not None and not is_known(value):
                faults.append(wrong(f"metadata.labels[{_LABEL}{name}]", value, why))
    return faults


def _is_level(value: str) -> bool:
    return value in _LEVELS


def _is_version(value: str) -> bool:
    return value == _LATEST or re.fullmatch(_VERSION, value) is not None


def findings(asked: Demand, pod: dict[str, Any]) -> list[Finding]:
    """Return what a pod violates, in order: (what is forbidden, what to do about it)."""
    if asked.level == _LEVELS[0]:
        return []
    candidate = Candidate(pod["spec"], pod["metadata"].get("annotations") or {})
    found = (check(candidate) for check in _checks(asked))
    return [finding for finding in found if finding is not None]


def violations(asked: Demand, pod: dict[str, Any]) -> str | None:
    """Return the words that tell what a pod violates, None where it may run.

    They follow "violates" or "would violate".
    """
    found = findings(asked, pod)
    if not found:
        return None
    listed = ", ".join(f"{what} ({advice})" for what, advice in found)
    return f'PodSecurity "{asked}": {listed}'


def relabel_warnings(asked: Demand, namespace: str, pods: list[dict[str, Any]]) -> list[str]:
    """Return what is said to whoever makes a namespace demand more than its pods fulfil."""
    by_reason: dict[str, list[str]] = {}
    for pod in pods:
        reasons = ", ".join(what for what, _ in findings(asked, pod))
        if reasons:
            by_reason.setdefault(reasons, []).append(pod["metadata"]["name"])
    if not by_reason:
        return []
    first = f'existing pods in namespace "{namespace}" violate the new PodSecurity enforce level'
    told = (f"{_with_others(names)}: {reasons}" for reasons, names in by_reason.items())
    return [f'{first} "{asked}"', *sorted(told)]


def _with_others(names: list[str]) -> str:
    first, *others = sorted(names)
    if not others:
        return first
    return f"{first} (and {len(others)} other pod{'s' if len(others) > 1 else ''})"


def _checks(asked: Demand) -> Iterable[Check]:
    baseline = _made(_BASELINE, asked.minor)
    if asked.level == "baseline":
        return baseline
    kept = [check for check in baseline if check not in _REPLACED or asked.minor < _REPLACED[check]]
    return [*kept, *_made(_RESTRICTED, asked.minor)]


def _made(checks: Iterable[_Versions], minor: float) -> list[Check]:
    """Return the checks in the way in which a version makes them."""
    made = []
    for versions in checks:
        since = [version for version in versions if version <= minor]
        if since:
            made.append(versions[max(since)])
    return made
