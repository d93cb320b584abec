"""A namespace of a real cluster as an operator prepares it: confined, limited, one narrow account.

Needs `kubectl` on PATH and `KUBECONFIG` with an administrator's credentials, which prepare and
look; the runner gets an account of its own that has the chart's rules and no others.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import yaml

from tests.serving import ROOT

ACCOUNT = "telorunner"
# What the chart sets where an operator says nothing else.
QUOTA = {"pods": "32", "limits.cpu": "16", "limits.memory": "16Gi"}
TOKEN_SECONDS = 7200
RULES = ROOT / "chart" / "files"


@dataclass(frozen=True)
class SessionNamespace:
    """A namespace of its own and how the runner reaches it.

    `kubeconfig` names the token by `token_file`, as a projected token is, so that a test can
    replace it under a running runner.
    """

    name: str
    kubeconfig: Path
    token_file: Path

    def new_token(self) -> str:
        """Issue another token of the runner's account."""
        return _account_token(self.name)


@contextmanager
def session_namespace(name: str, folder: Path) -> Iterator[SessionNamespace]:
    """Make a namespace with *restricted* Pod Security, a quota and the runner's account."""
    kubectl("create", "-f", "-", manifest=_namespace(name))
    try:
        for manifest in (_quota(name), *_account(name)):
            kubectl("create", "-f", "-", manifest=manifest)
        kubectl("wait", "-n", name, "--for=create", "serviceaccount/default", "--timeout=60s")
        token_file = folder / f"{name}.token"
        token_file.write_text(_account_token(name))
        kubeconfig = folder / f"{name}.kubeconfig"
        kubeconfig.write_bytes(orjson.dumps(_kubeconfig(name, token_file)))
        kubeconfig.chmod(0o600)
        yield SessionNamespace(name, kubeconfig, token_file)
    finally:
        cluster_wide = f"clusterrole/{_cluster_name(name)}"
        kubectl("delete", cluster_wide, f"clusterrolebinding/{_cluster_name(name)}")
        kubectl("delete", "namespace", name, "--wait=false", "--ignore-not-found")


def kubectl(*arguments: str, manifest: object = None) -> str:
    """Run the administrator's kubectl and return its output."""
    done = subprocess.run(
        ["kubectl", *arguments],
        input=None if manifest is None else orjson.dumps(manifest),
        stdout=subprocess.PIPE,
        check=True,
    )
    return done.stdout.decode()


def set_role(namespace: str, rules: list[dict[str, Any]]) -> None:
    """Let the runner's Role in a namespace have these rules and no others."""
    patch = orjson.dumps({"rules": rules}).decode()
    kubectl("patch", "role", ACCOUNT, "-n", namespace, "--type=merge", "-p", patch)


def set_cluster_role(namespace: str, rules: list[dict[str, Any]]) -> None:
    """Let the ClusterRole of the namespace's runner have these rules and no others."""
    patch = orjson.dumps({"rules": rules}).decode()
    name = _cluster_name(namespace)
    kubectl("patch", "clusterrole", name, "--type=merge", "-p", patch)


def role_rules() -> list[dict[str, Any]]:
    """Return the rules of the runner's Role in the session namespace, as the chart has them."""
    rules: list[dict[str, Any]] = yaml.safe_load((RULES / "session-role.yaml").read_text())
    return rules


def cluster_role_rules() -> list[dict[str, Any]]:
    """Return the rules of the runner's ClusterRole, as the chart has them."""
    rules: list[dict[str, Any]] = yaml.safe_load((RULES / "cluster-role.yaml").read_text())
    return rules


def _namespace(name: str) -> object:
    # `warn` tells of pods that are let in all the same, such as controllers' templates.
    level = "pod-security.kubernetes.io"
    labels = {f"{level}/{mode}": "restricted" for mode in ("enforce", "warn")}
    labels |= {f"{level}/{mode}-version": "latest" for mode in ("enforce", "warn")}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": labels},
    }


def _quota(namespace: str) -> object:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "sessions", "namespace": namespace},
        "spec": {"hard": QUOTA},
    }


def _account(namespace: str) -> list[object]:
    """Return the ServiceAccount with its two roles."""
    rbac = "rbac.authorization.k8s.io"
    here = {"name": ACCOUNT, "namespace": namespace}
    everywhere = {"name": _cluster_name(namespace)}
    subjects = [{"kind": "ServiceAccount", **here}]

    def bound(kind: str, name: str) -> object:
        return {"apiGroup": rbac, "kind": kind, "name": name}

    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": here},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "Role",
            "metadata": here,
            "rules": role_rules(),
        },
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": here,
            "subjects": subjects,
            "roleRef": bound("Role", ACCOUNT),
        },
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRole",
            "metadata": everywhere,
            "rules": cluster_role_rules(),
        },
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": everywhere,
            "subjects": subjects,
            "roleRef": bound("ClusterRole", everywhere["name"]),
        },
    ]


def _cluster_name(namespace: str) -> str:
    return f"{ACCOUNT}-{namespace}"


def _account_token(namespace: str) -> str:
    duration = f"{TOKEN_SECONDS}s"
    return kubectl("create", "token", ACCOUNT, "-n", namespace, "--duration", duration)


def _kubeconfig(namespace: str, token_file: Path) -> object:
    """Return the administrator's kubeconfig with the runner's account in it instead."""
    admin = yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text())
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": admin["clusters"],
        "users": [{"name": ACCOUNT, "user": {"tokenFile": str(token_file)}}],
        "contexts": [
            {
                "name": namespace,
                "context": {
                    "cluster": admin["clusters"][0]["name"],
                    "namespace": namespace,
                    "user": ACCOUNT,
                },
            }
        ],
        "current-context": namespace,
    }
