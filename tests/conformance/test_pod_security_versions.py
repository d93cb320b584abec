"""What Pod Security admission refuses where a namespace pins it to an older version."""

import pytest

from tests.conformance.client import Api
from tests.conformance.objects import check_refusal
from tests.conformance.pod_security_specs import (
    labelled_namespace,
    labels,
    refused_pod,
    try_pod,
)

# By level and version what is said about some of the pods; None: they are let in.
VERSIONS: dict[tuple[str, str], dict[str, str | None]] = {
    ("restricted", "v1.0"): {
        "bare": (
            'runAsNonRoot != true (pod or containers "i", "a", "b" must set'
            " securityContext.runAsNonRoot=true)"
        ),
        "windows": (
            'runAsNonRoot != true (pod or container "a" must set securityContext.runAsNonRoot=true)'
        ),
        "seccomp": None,
        "root": None,
        "everything": (
            'forbidden AppArmor profile (pod must not set AppArmor profile type to "Unconfined"),'
            ' non-default capabilities (container "a" must not include "SYS_ADMIN" in'
            " securityContext.capabilities.add), host namespaces (hostNetwork=true,"
            ' hostPID=true), hostPort (container "a" uses hostPort 80), privileged (container "a"'
            " must not set securityContext.privileged=true), seLinuxOptions (pod set forbidden"
            ' securityContext.seLinuxOptions: type "z"), forbidden sysctls (kernel.msgmax),'
            ' hostProcess (pod and container "a" must not set'
            " securityContext.windowsOptions.hostProcess=true), restricted volume types (volume"
            ' "x" uses restricted volume type "hostPath"), runAsNonRoot != true (pod must not set'
            " securityContext.runAsNonRoot=false)"
        ),
    },
    ("restricted", "v1.7"): {
        "escalation": None,
        "bare": (
            'runAsNonRoot != true (pod or containers "i", "a", "b" must set'
            " securityContext.runAsNonRoot=true)"
        ),
    },
    ("restricted", "v1.8"): {
        "escalation": (
            'allowPrivilegeEscalation != false (container "b" must set'
            " securityContext.allowPrivilegeEscalation=false)"
        ),
        "bare": (
            'allowPrivilegeEscalation != false (containers "i", "a", "b" must set'
            " securityContext.allowPrivilegeEscalation=false), runAsNonRoot != true (pod or"
            ' containers "i", "a", "b" must set securityContext.runAsNonRoot=true)'
        ),
    },
    ("restricted", "v1.18"): {
        "seccomp": None,
        "seccomp-missing": None,
        "seccomp-annotated": (
            "seccompProfile (forbidden annotations"
            ' container.seccomp.security.alpha.kubernetes.io/a="unconfined",'
            ' seccomp.security.alpha.kubernetes.io/pod="unconfined")'
        ),
        "capabilities": (
            'non-default capabilities (containers "z", "b" must not include "NET_RAW",'
            ' "SYS_ADMIN", "SYS_TIME" in securityContext.capabilities.add)'
        ),
        "everything": (
            'forbidden AppArmor profile (pod must not set AppArmor profile type to "Unconfined"),'
            ' non-default capabilities (container "a" must not include "SYS_ADMIN" in'
            " securityContext.capabilities.add), host namespaces (hostNetwork=true,"
            ' hostPID=true), hostPort (container "a" uses hostPort 80), privileged (container "a"'
            " must not set securityContext.privileged=true), seLinuxOptions (pod set forbidden"
            ' securityContext.seLinuxOptions: type "z"), forbidden sysctls (kernel.msgmax),'
            ' hostProcess (pod and container "a" must not set'
            " securityContext.windowsOptions.hostProcess=true), allowPrivilegeEscalation != false"
            ' (container "a" must set securityContext.allowPrivilegeEscalation=false), restricted'
            ' volume types (volume "x" uses restricted volume type "hostPath"), runAsNonRoot !='
            " true (pod must not set securityContext.runAsNonRoot=false)"
        ),
    },
    ("restricted", "v1.19"): {
        "seccomp": (
            'seccompProfile (pod and containers "a", "b" must not set'
            ' securityContext.seccompProfile.type to "Unconfined")'
        ),
        "seccomp-missing": (
            'seccompProfile (pod or container "b" must set securityContext.seccompProfile.type to'
            ' "RuntimeDefault" or "Localhost")'
        ),
        "seccomp-annotated": (
            'seccompProfile (pod or containers "a", "b" must set'
            ' securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")'
        ),
    },
    ("restricted", "v1.21"): {
        "capabilities": (
            'non-default capabilities (containers "z", "b" must not include "NET_RAW",'
            ' "SYS_ADMIN", "SYS_TIME" in securityContext.capabilities.add)'
        ),
        "bare": (
            'allowPrivilegeEscalation != false (containers "i", "a", "b" must set'
            " securityContext.allowPrivilegeEscalation=false), runAsNonRoot != true (pod or"
            ' containers "i", "a", "b" must set securityContext.runAsNonRoot=true),'
            ' seccompProfile (pod or containers "i", "a", "b" must set'
            ' securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")'
        ),
        "everything": (
            'forbidden AppArmor profile (pod must not set AppArmor profile type to "Unconfined"),'
            ' non-default capabilities (container "a" must not include "SYS_ADMIN" in'
            " securityContext.capabilities.add), host namespaces (hostNetwork=true,"
            ' hostPID=true), hostPort (container "a" uses hostPort 80), privileged (container "a"'
            " must not set securityContext.privileged=true), seLinuxOptions (pod set forbidden"
            ' securityContext.seLinuxOptions: type "z"), forbidden sysctls (kernel.msgmax),'
            ' hostProcess (pod and container "a" must not set'
            " securityContext.windowsOptions.hostProcess=true), allowPrivilegeEscalation != false"
            ' (container "a" must set securityContext.allowPrivilegeEscalation=false), restricted'
            ' volume types (volume "x" uses restricted volume type "hostPath"), runAsNonRoot !='
            " true (pod must not set securityContext.runAsNonRoot=false), seccompProfile (pod"
            ' must not set securityContext.seccompProfile.type to "Unconfined")'
        ),
    },
    ("restricted", "v1.22"): {
        "capabilities": (
            'unrestricted capabilities (containers "z", "c" must set'
            ' securityContext.capabilities.drop=["ALL"]; containers "z", "b" must not include'
            ' "CHOWN", "NET_RAW", "SYS_ADMIN", "SYS_TIME" in securityContext.capabilities.add)'
        ),
        "bare": (
            'allowPrivilegeEscalation != false (containers "i", "a", "b" must set'
            " securityContext.allowPrivilegeEscalation=false), unrestricted capabilities"
            ' (containers "i", "a", "b" must set securityContext.capabilities.drop=["ALL"]),'
            ' runAsNonRoot != true (pod or containers "i", "a", "b" must set'
            ' securityContext.runAsNonRoot=true), seccompProfile (pod or containers "i", "a", "b"'
            ' must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")'
        ),
        "root": None,
    },
    ("restricted", "v1.23"): {
        "root": 'runAsUser=0 (pod and containers "a", "b" must not set runAsUser=0)',
        "everything": (
            'forbidden AppArmor profile (pod must not set AppArmor profile type to "Unconfined"),'
            ' host namespaces (hostNetwork=true, hostPID=true), hostPort (container "a" uses'
            ' hostPort 80), privileged (container "a" must not set'
            " securityContext.privileged=true), seLinuxOptions (pod set forbidden"
            ' securityContext.seLinuxOptions: type "z"), forbidden sysctls (kernel.msgmax),'
            ' hostProcess (pod and container "a" must not set'
            " securityContext.windowsOptions.hostProcess=true), allowPrivilegeEscalation != false"
            ' (container "a" must set securityContext.allowPrivilegeEscalation=false),'
            ' unrestricted capabilities (container "a" must set'
            ' securityContext.capabilities.drop=["ALL"]; container "a" must not include'
            ' "SYS_ADMIN" in securityContext.capabilities.add), restricted volume types (volume'
            ' "x" uses restricted volume type "hostPath"), runAsNonRoot != true (pod must not set'
            " securityContext.runAsNonRoot=false), runAsUser=0 (pod must not set runAsUser=0),"
            " seccompProfile (pod must not set securityContext.seccompProfile.type to"
            ' "Unconfined")'
        ),
    },
    ("restricted", "v1.24"): {
        "windows": (
            'allowPrivilegeEscalation != false (container "a" must set'
            " securityContext.allowPrivilegeEscalation=false), unrestricted capabilities"
            ' (container "a" must set securityContext.capabilities.drop=["ALL"]), runAsNonRoot !='
            ' true (pod or container "a" must set securityContext.runAsNonRoot=true),'
            ' seccompProfile (pod or container "a" must set securityContext.seccompProfile.type'
            ' to "RuntimeDefault" or "Localhost")'
        ),
    },
    ("restricted", "v1.25"): {
        "windows": (
            'runAsNonRoot != true (pod or container "a" must set securityContext.runAsNonRoot=true)'
        ),
    },
    ("baseline", "v1.18"): {
        "seccomp": None,
        "seccomp-annotated": (
            "seccompProfile (forbidden annotations"
            ' container.seccomp.security.alpha.kubernetes.io/a="unconfined",'
            ' seccomp.security.alpha.kubernetes.io/pod="unconfined")'
        ),
        "everything": (
            'forbidden AppArmor profile (pod must not set AppArmor profile type to "Unconfined"),'
            ' non-default capabilities (container "a" must not include "SYS_ADMIN" in'
            " securityContext.capabilities.add), host namespaces (hostNetwork=true,"
            ' hostPID=true), hostPath volumes (volume "x"), hostPort (container "a" uses hostPort'
            ' 80), privileged (container "a" must not set securityContext.privileged=true),'
            ' seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: type "z"),'
            ' forbidden sysctls (kernel.msgmax), hostProcess (pod and container "a" must not set'
            " securityContext.windowsOptions.hostProcess=true)"
        ),
    },
    ("baseline", "v1.19"): {
        "seccomp": (
            'seccompProfile (pod and containers "a", "b" must not set'
            ' securityContext.seccompProfile.type to "Unconfined")'
        ),
        "seccomp-annotated": None,
    },
    ("baseline", "v1.26"): {
        "sysctls": (
            "forbidden sysctls (net.ipv4.ip_local_reserved_ports, net.ipv4.tcp_keepalive_time,"
            " net.ipv4.tcp_fin_timeout, net.ipv4.tcp_keepalive_intvl,"
            " net.ipv4.tcp_keepalive_probes, net.ipv4.tcp_rmem, net.ipv4.tcp_wmem, kernel.msgmax,"
            " net.core.somaxconn)"
        ),
    },
    ("baseline", "v1.27"): {
        "sysctls": (
            "forbidden sysctls (net.ipv4.tcp_keepalive_time, net.ipv4.tcp_fin_timeout,"
            " net.ipv4.tcp_keepalive_intvl, net.ipv4.tcp_keepalive_probes, net.ipv4.tcp_rmem,"
            " net.ipv4.tcp_wmem, kernel.msgmax, net.core.somaxconn)"
        ),
    },
    ("baseline", "v1.28"): {
        "sysctls": (
            "forbidden sysctls (net.ipv4.tcp_keepalive_time, net.ipv4.tcp_fin_timeout,"
            " net.ipv4.tcp_keepalive_intvl, net.ipv4.tcp_keepalive_probes, net.ipv4.tcp_rmem,"
            " net.ipv4.tcp_wmem, kernel.msgmax, net.core.somaxconn)"
        ),
    },
    ("baseline", "v1.29"): {
        "sysctls": (
            "forbidden sysctls (net.ipv4.tcp_rmem, net.ipv4.tcp_wmem, kernel.msgmax,"
            " net.core.somaxconn)"
        ),
    },
    ("baseline", "v1.31"): {
        "sysctls": (
            "forbidden sysctls (net.ipv4.tcp_rmem, net.ipv4.tcp_wmem, kernel.msgmax,"
            " net.core.somaxconn)"
        ),
        "selinux-types": None,
    },
    ("baseline", "v1.32"): {
        "sysctls": "forbidden sysctls (kernel.msgmax, net.core.somaxconn)",
    },
    ("baseline", "v1.30"): {
        "selinux-types": (
            'seLinuxOptions (container "b" set forbidden securityContext.seLinuxOptions: type'
            ' "container_engine_t")'
        ),
    },
    ("baseline", "v1.33"): {
        "probes": None,
        "one-probe": None,
    },
    ("baseline", "v1.34"): {
        "one-probe": 'probe or lifecycle host (container "a" uses probe or lifecycle host "::1")',
        "everything": (
            'forbidden AppArmor profile (pod must not set AppArmor profile type to "Unconfined"),'
            ' non-default capabilities (container "a" must not include "SYS_ADMIN" in'
            " securityContext.capabilities.add), host namespaces (hostNetwork=true,"
            ' hostPID=true), hostPath volumes (volume "x"), hostPort (container "a" uses hostPort'
            ' 80), probe or lifecycle host (container "a" uses probe or lifecycle host'
            ' "192.0.2.1"), privileged (container "a" must not set'
            " securityContext.privileged=true), seLinuxOptions (pod set forbidden"
            ' securityContext.seLinuxOptions: type "z"), seccompProfile (pod must not set'
            ' securityContext.seccompProfile.type to "Unconfined"), forbidden sysctls'
            ' (kernel.msgmax), hostProcess (pod and container "a" must not set'
            " securityContext.windowsOptions.hostProcess=true)"
        ),
    },
    ("restricted", "v1.99"): {
        "one-probe": 'probe or lifecycle host (container "a" uses probe or lifecycle host "::1")',
        "bare": (
            'allowPrivilegeEscalation != false (containers "i", "a", "b" must set'
            " securityContext.allowPrivilegeEscalation=false), unrestricted capabilities"
            ' (containers "i", "a", "b" must set securityContext.capabilities.drop=["ALL"]),'
            ' runAsNonRoot != true (pod or containers "i", "a", "b" must set'
            ' securityContext.runAsNonRoot=true), seccompProfile (pod or containers "i", "a", "b"'
            ' must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")'
        ),
    },
}


@pytest.mark.parametrize(("level", "version"), VERSIONS)
async def test_a_version_refuses_what_it_forbade(api: Api, level: str, version: str) -> None:
    given = labels(enforce=level, enforce_version=version)
    async with labelled_namespace(api, given) as namespace:
        for name, told in VERSIONS[level, version].items():
            answer = await try_pod(api, namespace, name)
            if told is None:
                assert answer.status == 201, (name, answer.text)
                continue
            why = f'violates PodSecurity "{level}:{version}": {told}'
            check_refusal(answer, refused_pod(name, why))
