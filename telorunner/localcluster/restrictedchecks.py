"""The checks that the Pod Security Standard *restricted* adds to *baseline*. Pure.

Each returns what is forbidden and what to do about it, None where nothing is wrong. Since which
version it stands in which way is in `podsecurity`.

Source: https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted
"""

from telorunner.localcluster.baselinechecks import unconfined_seccomp
from telorunner.localcluster.podcandidate import (
    Candidate,
    Finding,
    added_capabilities,
    named,
    no_more_capabilities,
    seccomp_type,
    setters_of,
    use,
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


def escalation(candidate: Candidate) -> Finding | None:
    """Demand that no process gains more privileges than its parent."""
    found = [
        name
        for name, _, context in candidate.containers
        if context.get("allowPrivilegeEscalation") is not False
    ]
    advice = "must set securityContext.allowPrivilegeEscalation=false"
    reason = "allowPrivilegeEscalation != false"
    return (reason, f"{named('container', found)} {advice}") if found else None


def no_capabilities(candidate: Candidate) -> Finding | None:
    """Demand that all capabilities are dropped and at most one comes back."""
    keeping = [
        name
        for name, _, context in candidate.containers
        if "ALL" not in ((context.get("capabilities") or {}).get("drop") or [])
    ]
    advice = []
    if keeping:
        what = 'must set securityContext.capabilities.drop=["ALL"]'
        advice.append(f"{named('container', keeping)} {what}")
    added = added_capabilities(candidate, ("NET_BIND_SERVICE",))
    if added:
        advice.append(no_more_capabilities(added))
    return ("unrestricted capabilities", "; ".join(advice)) if advice else None


def volume_types(candidate: Candidate) -> Finding | None:
    """Demand volumes that come from the cluster's own API or storage."""
    bad = {
        volume["name"]: source
        for volume in candidate.spec.get("volumes") or []
        for source in volume
        if source != "name" and source not in _RESTRICTED_VOLUMES
    }
    if not bad:
        return None
    types = named("restricted volume type", sorted(set(bad.values())))
    return "restricted volume types", f"{named('volume', bad)} {use(bad)} {types}"


def non_root(candidate: Candidate) -> Finding | None:
    """Demand that nothing runs as root, said in so many words."""
    reason = "runAsNonRoot != true"
    setters = setters_of(candidate, lambda context: context.get("runAsNonRoot") is False)
    if setters:
        return reason, f"{setters} must not set securityContext.runAsNonRoot=false"
    if candidate.context.get("runAsNonRoot"):
        return None
    found = [name for name, _, context in candidate.containers if not context.get("runAsNonRoot")]
    advice = "must set securityContext.runAsNonRoot=true"
    return (reason, f"pod or {named('container', found)} {advice}") if found else None


def root_user(candidate: Candidate) -> Finding | None:
    """Refuse the user id of root."""
    setters = setters_of(candidate, lambda context: context.get("runAsUser") == 0)
    return ("runAsUser=0", f"{setters} must not set runAsUser=0") if setters else None


def confined_seccomp(candidate: Candidate) -> Finding | None:
    """Demand a seccomp profile."""
    wrong = unconfined_seccomp(candidate)
    if wrong is not None or seccomp_type(candidate.context) in _SECCOMP_TYPES:
        return wrong
    found = [name for name, _, context in candidate.containers if not seccomp_type(context)]
    advice = 'must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"'
    return ("seccompProfile", f"pod or {named('container', found)} {advice}") if found else None
