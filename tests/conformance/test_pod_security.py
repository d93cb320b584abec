"""What Pod Security admission refuses and warns of, in the words of a real cluster."""

import pytest

from tests.conformance.amounts import CACHE_TRIES
from tests.conformance.client import Api
from tests.conformance.objects import check_refusal, make_failure
from tests.conformance.pod_security_specs import (
    LABEL,
    SPECS,
    labelled_namespace,
    labels,
    refused_pod,
    try_pod,
)

# What is said about each of the pods; those that are left out are let in.
EVERYWHERE: dict[str, str] = {
    "host-namespaces": ("host namespaces (hostNetwork=true, hostPID=true, hostIPC=true)"),
    "one-port": 'hostPort (container "a" uses hostPort 80)',
    "ports": ('hostPort (containers "i", "z", "b" use hostPorts 7000, 80, 8080, 9)'),
    "seccomp": (
        'seccompProfile (pod and containers "a", "b" must not set'
        ' securityContext.seccompProfile.type to "Unconfined")'
    ),
    "seccomp-pod": (
        'seccompProfile (pod must not set securityContext.seccompProfile.type to "Unconfined")'
    ),
    "seccomp-both": (
        'seccompProfile (container "a" must not set securityContext.seccompProfile.type to'
        ' "Unconfined")'
    ),
    "proc": (
        'procMount (containers "a", "b" must not set securityContext.procMount to "Unmasked")'
    ),
    "selinux": (
        'seLinuxOptions (pod and containers "a", "c" set forbidden'
        ' securityContext.seLinuxOptions: types "x", "y", "z"; user may not be set; role may not'
        " be set)"
    ),
    "selinux-role": (
        'seLinuxOptions (containers "a", "b" set forbidden securityContext.seLinuxOptions: type'
        ' "spc_t"; role may not be set)'
    ),
    "sysctls": "forbidden sysctls (kernel.msgmax, net.core.somaxconn)",
    "apparmor": (
        'forbidden AppArmor profile (pod and containers "a", "d" must not set AppArmor profile'
        ' type to "Unconfined")'
    ),
    "apparmor-annotated": (
        'forbidden AppArmor profiles (containers "b", "a" and annotations must not set AppArmor'
        ' profile type to "Unconfined",'
        ' "container.apparmor.security.beta.kubernetes.io/a="unconfined"",'
        ' "container.apparmor.security.beta.kubernetes.io/b="unconfined"")'
    ),
    "host-process": (
        'host namespaces (hostNetwork=true), hostProcess (pod and containers "a", "b" must not'
        " set securityContext.windowsOptions.hostProcess=true)"
    ),
    "probes": (
        'probe or lifecycle host (containers "b", "z" use probe or lifecycle hosts "127.0.0.1",'
        ' "192.0.2.1", "192.0.2.8", "h")'
    ),
    "one-probe": ('probe or lifecycle host (container "a" uses probe or lifecycle host "::1")'),
}
BASELINE: dict[str, str] = EVERYWHERE | {
    "privileged": ('privileged (containers "a", "b" must not set securityContext.privileged=true)'),
    "capabilities": (
        'non-default capabilities (containers "z", "b" must not include "NET_RAW", "SYS_ADMIN",'
        ' "SYS_TIME" in securityContext.capabilities.add)'
    ),
    "host-path": 'hostPath volumes (volumes "x", "y")',
    "everything": (
        'forbidden AppArmor profile (pod must not set AppArmor profile type to "Unconfined"),'
        ' non-default capabilities (container "a" must not include "SYS_ADMIN" in'
        " securityContext.capabilities.add), host namespaces (hostNetwork=true, hostPID=true),"
        ' hostPath volumes (volume "x"), hostPort (container "a" uses hostPort 80), probe or'
        ' lifecycle host (container "a" uses probe or lifecycle host "192.0.2.1"), privileged'
        ' (container "a" must not set securityContext.privileged=true), seLinuxOptions (pod set'
        ' forbidden securityContext.seLinuxOptions: type "z"), seccompProfile (pod must not set'
        ' securityContext.seccompProfile.type to "Unconfined"), forbidden sysctls'
        ' (kernel.msgmax), hostProcess (pod and container "a" must not set'
        " securityContext.windowsOptions.hostProcess=true)"
    ),
}
RESTRICTED: dict[str, str] = EVERYWHERE | {
    "bare": (
        'allowPrivilegeEscalation != false (containers "i", "a", "b" must set'
        " securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (containers"
        ' "i", "a", "b" must set securityContext.capabilities.drop=["ALL"]), runAsNonRoot != true'
        ' (pod or containers "i", "a", "b" must set securityContext.runAsNonRoot=true),'
        ' seccompProfile (pod or containers "i", "a", "b" must set'
        ' securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")'
    ),
    "privileged": (
        'privileged (containers "a", "b" must not set securityContext.privileged=true),'
        ' allowPrivilegeEscalation != false (containers "a", "b" must set'
        " securityContext.allowPrivilegeEscalation=false)"
    ),
    "capabilities": (
        'unrestricted capabilities (containers "z", "c" must set'
        ' securityContext.capabilities.drop=["ALL"]; containers "z", "b" must not include'
        ' "CHOWN", "NET_RAW", "SYS_ADMIN", "SYS_TIME" in securityContext.capabilities.add)'
    ),
    "host-path": (
        'restricted volume types (volumes "x", "y", "z" use restricted volume types "hostPath",'
        ' "nfs")'
    ),
    "volume": ('restricted volume types (volume "x" uses restricted volume type "nfs")'),
    "volumes": (
        'restricted volume types (volumes "b", "a", "c" use restricted volume types "iscsi", "nfs")'
    ),
    "seccomp-missing": (
        'seccompProfile (pod or container "b" must set securityContext.seccompProfile.type to'
        ' "RuntimeDefault" or "Localhost")'
    ),
    "root-allowed": (
        'runAsNonRoot != true (pod and containers "a", "b" must not set'
        " securityContext.runAsNonRoot=false)"
    ),
    "root-allowed-pod": (
        "runAsNonRoot != true (pod must not set securityContext.runAsNonRoot=false)"
    ),
    "root-unsaid": (
        'runAsNonRoot != true (pod or container "b" must set securityContext.runAsNonRoot=true)'
    ),
    "root-both": (
        'runAsNonRoot != true (container "a" must not set securityContext.runAsNonRoot=false)'
    ),
    "root": ('runAsUser=0 (pod and containers "a", "b" must not set runAsUser=0)'),
    "escalation": (
        'allowPrivilegeEscalation != false (container "b" must set'
        " securityContext.allowPrivilegeEscalation=false)"
    ),
    "seccomp-annotated": (
        'seccompProfile (pod or containers "a", "b" must set securityContext.seccompProfile.type'
        ' to "RuntimeDefault" or "Localhost")'
    ),
    "windows": (
        'runAsNonRoot != true (pod or container "a" must set securityContext.runAsNonRoot=true)'
    ),
    "everything": (
        'forbidden AppArmor profile (pod must not set AppArmor profile type to "Unconfined"),'
        ' host namespaces (hostNetwork=true, hostPID=true), hostPort (container "a" uses hostPort'
        ' 80), probe or lifecycle host (container "a" uses probe or lifecycle host "192.0.2.1"),'
        ' privileged (container "a" must not set securityContext.privileged=true), seLinuxOptions'
        ' (pod set forbidden securityContext.seLinuxOptions: type "z"), forbidden sysctls'
        ' (kernel.msgmax), hostProcess (pod and container "a" must not set'
        " securityContext.windowsOptions.hostProcess=true), allowPrivilegeEscalation != false"
        ' (container "a" must set securityContext.allowPrivilegeEscalation=false), unrestricted'
        ' capabilities (container "a" must set securityContext.capabilities.drop=["ALL"];'
        ' container "a" must not include "SYS_ADMIN" in securityContext.capabilities.add),'
        ' restricted volume types (volume "x" uses restricted volume type "hostPath"),'
        " runAsNonRoot != true (pod must not set securityContext.runAsNonRoot=false), runAsUser=0"
        " (pod must not set runAsUser=0), seccompProfile (pod must not set"
        ' securityContext.seccompProfile.type to "Unconfined")'
    ),
}


@pytest.mark.parametrize(
    ("level", "told"),
    [("privileged", {}), ("baseline", BASELINE), ("restricted", RESTRICTED)],
)
async def test_a_level_refuses_what_it_forbids_in_so_many_words(
    api: Api, level: str, told: dict[str, str]
) -> None:
    async with labelled_namespace(api, labels(enforce=level)) as namespace:
        for name in SPECS:
            answer = await try_pod(api, namespace, name)
            if name not in told:
                assert answer.status == 201, (name, answer.text)
                continue
            check_refusal(
                answer, refused_pod(name, f'violates PodSecurity "{level}:latest": {told[name]}')
            )


async def test_a_namespace_may_warn_of_what_it_lets_in(api: Api) -> None:
    given = labels(enforce="baseline", warn="restricted", warn_version="v1.20", audit="restricted")
    async with labelled_namespace(api, given) as namespace:
        answer = await try_pod(api, namespace, "seccomp-missing")
        assert (answer.status, answer.warnings) == (
            201,
            [
                '299 - "would violate PodSecurity \\"restricted:v1.20\\": seccompProfile (pod or'
                ' container \\"b\\" must set securityContext.seccompProfile.type to'
                ' \\"RuntimeDefault\\" or \\"Localhost\\")"'
            ],
        )
        assert (await try_pod(api, namespace, "hardened")).warnings == []


async def test_nobody_is_warned_of_what_is_refused(api: Api) -> None:
    async with labelled_namespace(api, labels(enforce="baseline", warn="restricted")) as namespace:
        answer = await try_pod(api, namespace, "privileged")
        assert (answer.status, answer.warnings) == (403, [])


async def test_an_audit_level_is_kept_from_clients(api: Api) -> None:
    async with labelled_namespace(api, labels(audit="restricted")) as namespace:
        answer = await try_pod(api, namespace, "everything")
        assert (answer.status, answer.warnings) == (201, [])


async def test_other_objects_are_let_in_everywhere(api: Api) -> None:
    async with labelled_namespace(api, labels(enforce="restricted")) as namespace:
        path = f"/api/v1/namespaces/{namespace}/configmaps"
        answer = await api.request("POST", path, {"metadata": {"name": "one"}})
        assert (answer.status, answer.warnings) == (201, [])


_MODES = ("enforce", "audit", "warn")


WRONG_LABELS: tuple[dict[str, str], ...] = (
    {"enforce": "foo"},
    {"enforce": "Restricted"},
    {"enforce": ""},
    {"enforce": "restricted", "enforce-version": "1.24"},
    {"enforce-version": "v1"},
    {"audit": "baseline", "warn": "y", "warn-version": "v2.1"},
    dict.fromkeys(_MODES, "x") | {f"{mode}-version": "v1.x" for mode in _MODES},
)


def _faults(given: dict[str, str]) -> list[dict[str, str]]:
    """Return what is told of labels, in the order of a real cluster."""
    causes = []
    for mode in _MODES:
        for name, why in (
            (mode, "must be one of privileged, baseline, restricted"),
            (f"{mode}-version", 'must be "latest" or "v1.x"'),
        ):
            value = given.get(name, "latest")
            if value not in ("latest", "baseline", "restricted"):
                cause = {
                    "reason": "FieldValueInvalid",
                    "message": f'Invalid value: "{value}": {why}',
                    "field": f"metadata.labels[{LABEL}/{name}]",
                }
                causes.append(cause)
    return causes


async def test_a_namespace_may_not_ask_for_what_there_is_not(api: Api, namespace: str) -> None:
    patch = "application/merge-patch+json"
    for given in WRONG_LABELS:
        causes = _faults(given)
        told = ", ".join(f"{cause['field']}: {cause['message']}" for cause in causes)
        told = told if len(causes) == 1 else f"[{told}]"
        metadata = {"labels": {f"{LABEL}/{name}": value for name, value in given.items()}}
        for method, path, name, kind in (
            ("POST", "/api/v1/namespaces", "telo-conf-bad", "application/json"),
            ("PATCH", f"/api/v1/namespaces/{namespace}", namespace, patch),
        ):
            answer = await api.request(
                method,
                path,
                {"metadata": {"name": name, **metadata}},
                content_type=kind,
                query={"dryRun": "All"},
            )
            details = {"name": name, "kind": "Namespace", "causes": causes}
            message = f'Namespace "{name}" is invalid: {told}'
            check_refusal(answer, make_failure(422, "Invalid", message, details))


async def test_whoever_makes_a_namespace_stricter_is_told_what_is_in_it_already(api: Api) -> None:
    patch = "application/merge-patch+json"
    async with labelled_namespace(api, labels(enforce="baseline")) as namespace:
        pods = f"/api/v1/namespaces/{namespace}/pods"
        path = f"/api/v1/namespaces/{namespace}"
        for name, shape in (("a", "hardened"), ("b", "bare"), ("c", "bare"), ("d", "root")):
            spec = SPECS[shape] | {"schedulerName": "none"}
            await api.ask("POST", pods, {"metadata": {"name": name}, "spec": spec})
        for changed, told in (
            (labels(enforce="privileged"), []),
            (labels(warn="restricted"), []),
            (
                labels(enforce="restricted"),
                [
                    f'existing pods in namespace \\"{namespace}\\" violate the new PodSecurity'
                    ' enforce level \\"restricted:latest\\"',
                    "b (and 1 other pod): allowPrivilegeEscalation != false, unrestricted"
                    " capabilities, runAsNonRoot != true, seccompProfile",
                    "d: runAsUser=0",
                ],
            ),
        ):
            body = {"metadata": {"labels": changed}}
            expected = [f'299 - "{one}"' for one in told]
            # Admission of a real API server sees pods in a cache that may be a moment behind.
            for _ in range(CACHE_TRIES if api.is_real else 1):
                query = {"dryRun": "All"}
                answer = await api.request("PATCH", path, body, content_type=patch, query=query)
                if answer.warnings == expected:
                    break
            assert answer.warnings == expected


async def test_labels_of_pod_security_that_nobody_knows_mean_nothing(api: Api) -> None:
    async with labelled_namespace(api, labels(other="x")) as namespace:
        assert (await try_pod(api, namespace, "everything")).status == 201
