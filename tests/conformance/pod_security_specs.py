"""Pods that violate the Pod Security Standards, each in a way of its own.

All of them are valid: what is wrong with a pod is said before what is forbidden. Here is
also how they are asked for.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.conformance.client import Answer, Api, Object
from tests.conformance.objects import IMAGE, make_failure, make_name

LABEL = "pod-security.kubernetes.io"
HARDENED: Object = {
    "runAsNonRoot": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
_SYSCTLS = (
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "kernel.msgmax",
    "net.core.somaxconn",
)
_APPARMOR = "container.apparmor.security.beta.kubernetes.io"
_SECCOMP = "seccomp.security.alpha.kubernetes.io"


def bare(name: str, **fields: Any) -> Object:
    """Return a container that hardens nothing."""
    return {"name": name, "image": IMAGE, **fields}


def hard(name: str, **context: Any) -> Object:
    """Return a container that fits every level but for what its security context says."""
    return bare(name, securityContext={**HARDENED, **context})


def lacking(name: str, field: str) -> Object:
    """Return a container that fits every level but for one field that it leaves out."""
    context = {key: value for key, value in HARDENED.items() if key != field}
    return bare(name, securityContext=context)


def with_context(*containers: Object, **context: Any) -> Object:
    """Return the spec of a pod with a security context of its own."""
    return {"containers": list(containers), "securityContext": context}


def with_volumes(**sources: Object) -> Object:
    """Return the spec of a hardened pod with volumes."""
    volumes = [{"name": name, **source} for name, source in sources.items()]
    return {"containers": [hard("a")], "volumes": volumes}


def unconfined(field: str) -> Object:
    """Return a security context's part that asks for no confinement."""
    return {field: {"type": "Unconfined"}}


_NFS = {"nfs": {"server": "a", "path": "/"}}
_ISCSI = {
    "iscsi": {"targetPortal": "192.0.2.1", "iqn": "iqn.2001-04.com.example:storage", "lun": 1}
}
_HOST_PATH = {"hostPath": {"path": "/"}}
_HOST_PROCESS = {"windowsOptions": {"hostProcess": True}}


def _port(number: int, host: int) -> Object:
    return {"containerPort": number, "hostPort": host}


SPECS: dict[str, Object] = {
    "hardened": {"containers": [hard("a")], "initContainers": [hard("i")]},
    "bare": {"containers": [bare("a"), bare("b")], "initContainers": [bare("i")]},
    "host-namespaces": {
        "hostNetwork": True,
        "hostPID": True,
        "hostIPC": True,
        "containers": [hard("a")],
    },
    "privileged": {
        "containers": [
            hard("a", privileged=True, allowPrivilegeEscalation=True),
            hard("b", privileged=True, allowPrivilegeEscalation=True),
        ]
    },
    "capabilities": {
        "containers": [
            hard("z", capabilities={"add": ["SYS_ADMIN", "NET_RAW", "NET_BIND_SERVICE"]}),
            hard("b", capabilities={"add": ["SYS_TIME", "CHOWN"], "drop": ["ALL"]}),
            hard("c", capabilities={"drop": ["NET_RAW"]}),
        ]
    },
    "one-port": {"containers": [hard("a") | {"ports": [_port(80, 80)]}]},
    "ports": {
        "containers": [
            hard("z") | {"ports": [_port(80, 80), _port(9, 9)]},
            hard("b") | {"ports": [_port(7, 7000)]},
        ],
        "initContainers": [hard("i") | {"ports": [_port(1, 8080)]}],
    },
    "host-path": with_volumes(x=_HOST_PATH, y=_HOST_PATH, z=_NFS, e={"emptyDir": {}}),
    "volume": with_volumes(x=_NFS),
    "volumes": with_volumes(b=_NFS, a=_ISCSI, c=_NFS),
    "seccomp": with_context(
        hard("a", **unconfined("seccompProfile")),
        hard("b", **unconfined("seccompProfile")),
        **unconfined("seccompProfile"),
    ),
    "seccomp-pod": with_context(hard("a"), hard("b"), **unconfined("seccompProfile")),
    "seccomp-missing": {"containers": [hard("a"), lacking("b", "seccompProfile")]},
    "seccomp-both": {
        "containers": [
            hard("a", **unconfined("seccompProfile")),
            lacking("b", "seccompProfile"),
        ]
    },
    "root-allowed": with_context(
        hard("a", runAsNonRoot=False), hard("b", runAsNonRoot=False), runAsNonRoot=False
    ),
    "root-allowed-pod": with_context(hard("a"), runAsNonRoot=False),
    "root-unsaid": {"containers": [hard("a"), lacking("b", "runAsNonRoot")]},
    "root-both": {"containers": [hard("a", runAsNonRoot=False), lacking("b", "runAsNonRoot")]},
    "root": with_context(hard("a", runAsUser=0), hard("b", runAsUser=0), hard("c"), runAsUser=0),
    "escalation": {"containers": [hard("a"), lacking("b", "allowPrivilegeEscalation")]},
    "proc": {
        "hostUsers": False,
        "containers": [hard("a", procMount="Unmasked"), hard("b", procMount="Unmasked")],
    },
    "selinux": with_context(
        hard("a", seLinuxOptions={"type": "x", "user": "u", "role": "r"}),
        hard("b", seLinuxOptions={"type": "container_t", "level": "s0"}),
        hard("c", seLinuxOptions={"type": "y"}),
        seLinuxOptions={"type": "z"},
    ),
    "selinux-role": {
        "containers": [
            hard("a", seLinuxOptions={"role": "r"}),
            hard("b", seLinuxOptions={"type": "spc_t"}),
        ]
    },
    "selinux-types": {
        "containers": [
            hard("a", seLinuxOptions={"type": "container_kvm_t"}),
            hard("b", seLinuxOptions={"type": "container_engine_t"}),
        ]
    },
    "sysctls": with_context(hard("a"), sysctls=[{"name": name, "value": "1"} for name in _SYSCTLS]),
    "apparmor": with_context(
        hard("a", **unconfined("appArmorProfile")),
        hard("b", appArmorProfile={"type": "RuntimeDefault"}),
        hard("d", **unconfined("appArmorProfile")),
        **unconfined("appArmorProfile"),
    ),
    "apparmor-annotated": {"containers": [hard("b"), hard("a")]},
    "seccomp-annotated": {
        "containers": [lacking("a", "seccompProfile"), lacking("b", "seccompProfile")]
    },
    "windows": {"os": {"name": "windows"}, "containers": [bare("a")]},
    "host-process": with_context(
        hard("a", **_HOST_PROCESS), hard("b", **_HOST_PROCESS), **_HOST_PROCESS
    )
    | {"hostNetwork": True},
    "probes": {
        "containers": [
            hard("z")
            | {
                "livenessProbe": {"httpGet": {"port": 80, "host": "192.0.2.1"}},
                "readinessProbe": {"tcpSocket": {"port": 80, "host": "h"}},
                "startupProbe": {"httpGet": {"port": 80, "host": "127.0.0.1"}},
                "lifecycle": {"preStop": {"httpGet": {"port": 80, "host": "192.0.2.8"}}},
            },
            hard("b") | {"livenessProbe": {"httpGet": {"port": 80, "host": "192.0.2.1"}}},
            hard("c") | {"livenessProbe": {"httpGet": {"port": 80}}},
        ]
    },
    "one-probe": {
        "containers": [hard("a") | {"livenessProbe": {"tcpSocket": {"port": 80, "host": "::1"}}}]
    },
    "everything": {
        "hostNetwork": True,
        "hostPID": True,
        "securityContext": {
            "sysctls": [{"name": "kernel.msgmax", "value": "1"}],
            "seLinuxOptions": {"type": "z"},
            "runAsUser": 0,
            "runAsNonRoot": False,
            **_HOST_PROCESS,
            **unconfined("appArmorProfile"),
            **unconfined("seccompProfile"),
        },
        "volumes": [{"name": "x", **_HOST_PATH}],
        "containers": [
            bare(
                "a",
                securityContext={
                    "privileged": True,
                    "capabilities": {"add": ["SYS_ADMIN"]},
                    **_HOST_PROCESS,
                },
                ports=[_port(80, 80)],
                livenessProbe={"httpGet": {"port": 80, "host": "192.0.2.1"}},
            )
        ],
    },
}
ANNOTATIONS: dict[str, dict[str, str]] = {
    "apparmor-annotated": {f"{_APPARMOR}/a": "unconfined", f"{_APPARMOR}/b": "unconfined"},
    "seccomp-annotated": {
        f"{_SECCOMP}/pod": "unconfined",
        f"container.{_SECCOMP}/a": "unconfined",
        f"container.{_SECCOMP}/b": "runtime/default",
    },
}


def labels(**values: str) -> dict[str, str]:
    """Return the labels of a namespace: `enforce_version="v1.8"` and the like."""
    return {f"{LABEL}/{mode.replace('_', '-')}": value for mode, value in values.items()}


@asynccontextmanager
async def labelled_namespace(api: Api, given: dict[str, str]) -> AsyncIterator[str]:
    """Make a namespace with labels that takes pods; nobody waits for it to go."""
    name = make_name()
    accounts = f"/api/v1/namespaces/{name}/serviceaccounts"
    await api.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": given}})
    try:
        async with api.watch(accounts, fieldSelector="metadata.name=default") as watch:
            await watch.until("ADDED", "default")
        yield name
    finally:
        await api.request("DELETE", f"/api/v1/namespaces/{name}")


async def try_pod(api: Api, namespace: str, name: str) -> Answer:
    """Ask for one of the pods above, without creating it."""
    metadata = {"name": name, "annotations": ANNOTATIONS.get(name, {})}
    path = f"/api/v1/namespaces/{namespace}/pods"
    body = {"metadata": metadata, "spec": SPECS[name]}
    return await api.request("POST", path, body, query={"dryRun": "All"})


def refused_pod(name: str, why: str) -> Object:
    """Return the Status of a pod that is forbidden."""
    message = f'pods "{name}" is forbidden: {why}'
    return make_failure(403, "Forbidden", message, {"name": name, "kind": "pods"})
