"""The runner's account: it can do what the runner does, all of it is used, and nothing more."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from telorunner.conf import ClusterKind
from telorunner.kube.client import Call, Cluster, ClusterSettings, open_cluster
from tests.clusters import MANAGED_BY, ClusterUnderTest
from tests.e2e.conftest import Served, Serving
from tests.e2e.recording import Recorder, open_recorder
from tests.realcluster import cluster_role_rules, kubectl, role_rules, set_role

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

Permission = tuple[str, str, str]

REVIEWS = "/apis/authorization.k8s.io/v1"
# What publishes sessions' ports uses, by layer, and the quota's page of the admin.
FOR_ROUTES = {
    "ingress": {"services", "endpointslices", "ingresses", "ingressclasses"},
    "gateway": {"services", "endpointslices", "httproutes"},
}
FOR_STAFF = {"resourcequotas"}
# What the Role grants, as it is promised to operators, and this version asks for nowhere.
NOT_USED = {
    ("discovery.k8s.io", "endpointslices", "get"): "they are read by lists, with their heartbeats",
    ("discovery.k8s.io", "endpointslices", "watch"): "the next heartbeat lists them anew",
}
# Newer releases ask for this verb where 1.34 asks for `get`.
FOR_NEWER_RELEASES = {("", "pods/attach", "create")}
# The reaper looks every 30 s, and spares a ConfigMap for 60 s.
REAPED_SECONDS = 100

WAITS = 'print("ready", flush=True)\ninput()\nprint("over")\n'
APP = {"name": "app", "entryRelativePath": "telo.yaml", "ports": []}


@pytest.fixture
async def account(prepared: ClusterUnderTest) -> AsyncIterator[Cluster]:
    """The API as the runner's account sees it."""
    settings = ClusterSettings(
        ClusterKind.KUBECONFIG, prepared.environment["KUBECONFIG"], prepared.namespace, MANAGED_BY
    )
    async with open_cluster(settings) as cluster:
        yield cluster


def permissions(rules: Iterable[dict[str, Any]]) -> set[Permission]:
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


async def granted(account: Cluster, namespace: str) -> set[Permission]:
    """Ask the API server what the account may do there, beyond asking about itself."""
    body = {"spec": {"namespace": namespace}}
    answer = await account.request(Call("POST", f"{REVIEWS}/selfsubjectrulesreviews", body=body))
    rules = permissions(answer["status"]["resourceRules"])
    return {rule for rule in rules if not rule[1].startswith("selfsubject")}


async def may(account: Cluster, verb: str, resource: str, namespace: str, group: str = "") -> bool:
    resource, _, part = resource.partition("/")
    attributes = {
        "namespace": namespace,
        "verb": verb,
        "group": group,
        "resource": resource,
        "subresource": part,
    }
    answer = await account.request(
        Call(
            "POST",
            f"{REVIEWS}/selfsubjectaccessreviews",
            body={"spec": {"resourceAttributes": attributes}},
        )
    )
    return bool(answer["status"]["allowed"])


async def test_the_account_has_the_charts_rules_and_no_others(account: Cluster) -> None:
    everywhere = permissions(cluster_role_rules())
    here = permissions(role_rules())
    assert await granted(account, account.namespace) == here | everywhere
    assert await granted(account, "default") == everywhere
    assert await granted(account, "kube-system") == everywhere


@pytest.mark.parametrize(
    ("resource", "verbs"),
    [
        ("secrets", ("get", "list", "watch", "create", "update", "delete")),
        ("pods", ("update", "patch", "deletecollection")),
        ("pods/exec", ("get", "create")),
        ("pods/portforward", ("get", "create")),
        ("pods/ephemeralcontainers", ("update", "patch")),
        ("pods/status", ("update", "patch")),
        ("configmaps", ("update", "watch", "deletecollection")),
        ("services", ("patch", "deletecollection")),
        ("serviceaccounts", ("get", "list", "impersonate")),
        ("serviceaccounts/token", ("create",)),
        ("resourcequotas", ("create", "update", "patch", "delete")),
        ("namespaces", ("list", "create", "update", "patch", "delete")),
        ("nodes", ("get", "list")),
        ("*", ("*",)),
    ],
)
async def test_what_the_runner_has_no_use_for_is_refused(
    account: Cluster, resource: str, verbs: tuple[str, ...]
) -> None:
    for verb in verbs:
        assert not await may(account, verb, resource, account.namespace), (verb, resource)


async def test_other_namespaces_are_closed_to_the_runner(account: Cluster) -> None:
    assert await may(account, "create", "pods", account.namespace)
    for resource in ("pods", "configmaps", "services", "secrets"):
        for verb in ("get", "list", "watch", "create", "delete"):
            assert not await may(account, verb, resource, "default"), (verb, resource)
    for verb in ("get", "list", "create", "update", "patch", "escalate", "bind"):
        assert not await may(account, verb, "roles", account.namespace, "rbac.authorization.k8s.io")


async def test_a_sessions_whole_life_uses_each_rule_and_meets_no_refusal(
    prepared: ClusterUnderTest, serve: Serving, tmp_path: Path
) -> None:
    namespace = prepared.namespace
    pull_secret = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
    # As the chart grants it: for the one Secret that is named.
    set_role(namespace, [*role_rules(), {**pull_secret, "resourceNames": ["pull"]}])
    # With a pod goes its ConfigMap, mostly before the runner comes to that; this one has no pod.
    kubectl("create", "-f", "-", manifest=orphaned_config_map(namespace))
    kubectl("create", "-f", "-", manifest=orphan(namespace))
    kubeconfig = Path(prepared.environment["KUBECONFIG"])
    try:
        async with open_recorder(kubeconfig, tmp_path) as recorder:
            variables = {
                "KUBECONFIG": str(recorder.kubeconfig),
                "RUNNER_IMAGE_PULL_SECRET": "pull",
                "RUNNER_RUNTIME_CLASS": "none",
            }
            async with serve(fetching=True, **variables) as client:
                await probed(client)
            # It lists what is missing, which would be refused to pods.
            for name in ("RUNNER_IMAGE_PULL_SECRET", "RUNNER_RUNTIME_CLASS"):
                del variables[name]
            async with serve(fetching=True, **variables) as client:
                session = await begun(client)
            async with serve(fetching=True, **variables) as client:
                await taken_over(client, session)
                await stopped(client)
            async with serve(fetching=True, **variables, RUNNER_BUNDLE_DELIVERY="fetch") as client:
                await fetched(client)
                # Before it stops: what it has not tidied by then is the next runner's.
                await nothing_left(prepared)
    finally:
        set_role(namespace, role_rules())
    check(recorder)


@pytest.mark.parametrize("layer", list(FOR_ROUTES))
async def test_public_routes_use_each_rule_for_them_and_meet_no_refusal(
    prepared: ClusterUnderTest, serve: Serving, tmp_path: Path, layer: str
) -> None:
    routes = "ingresses" if layer == "ingress" else "httproutes"
    if routes == "httproutes" and routes not in kubectl("get", "crd", "-o", "name"):
        pytest.skip("the real cluster does not serve the Gateway API")
    for manifest in orphaned_routes(layer, prepared.namespace):
        kubectl("create", "-f", "-", manifest=manifest)
    async with open_recorder(Path(prepared.environment["KUBECONFIG"]), tmp_path) as recorder:
        variables = {
            "KUBECONFIG": str(recorder.kubeconfig),
            "SESSION_ROUTING_MODE": layer,
            "SESSION_ROUTING_BASE_DOMAIN": "apps.telo.test",
            "SESSION_GATEWAY_NAME": "none" if layer == "gateway" else "",
            # Nobody answers there, but the runner keeps the way that a probe would take.
            "SESSION_ROUTE_PROBE_ADDRESS": "http://127.0.0.1:1",
            # Else it would be the recorder's, and no EndpointSlice may have one of loopback.
            "RUNNER_SELF_URL": "http://192.0.2.1",
        }
        async with serve(**variables) as client:
            session = await client.create(WAITS, ports=[{"port": 8080, "protocol": "tcp"}])
            async with asyncio.timeout(REAPED_SECONDS):
                while not any(  # noqa: ASYNC110 - lists of another process have no event
                    session in name for name in await prepared.objects(routes)
                ):
                    await asyncio.sleep(0.2)
        async with serve(**variables) as client:
            # It puts what is there in order, takes the orphans away, and its heart beats.
            with suppress(TimeoutError):
                async with asyncio.timeout(REAPED_SECONDS):
                    while of_routes(layer) - recorder.used:  # noqa: ASYNC110 - as above
                        await asyncio.sleep(0.5)
            assert of_routes(layer) - recorder.used == set()
            assert (await client.http.delete(f"/v1/sessions/{session}")).status_code == 204
            assert await client.status(session) == {"kind": "stopped"}
            await nothing_left(prepared, routes)
    assert recorder.forbidden == []
    assert recorder.warnings == []
    of_others = FOR_ROUTES["ingress"] ^ FOR_ROUTES["gateway"]
    used = {rule for rule in recorder.used if rule[1] in FOR_ROUTES[layer] | of_others}
    # Nothing of the table is used either: then its line goes.
    assert used == of_routes(layer)


def of_routes(layer: str) -> set[Permission]:
    """Return the permissions that are there for one layer, and used."""
    rules = permissions([*role_rules(), *cluster_role_rules()])
    assert rules >= NOT_USED.keys()
    return {rule for rule in rules - NOT_USED.keys() if rule[1] in FOR_ROUTES[layer]}


def check(recorder: Recorder) -> None:
    assert recorder.forbidden == []
    # Of Pod Security's `warn` level, deprecated versions, unknown fields.
    assert recorder.warnings == []
    rules = permissions([*role_rules(), *cluster_role_rules()])
    later = set.union(*FOR_ROUTES.values(), FOR_STAFF)
    wanted = {rule for rule in rules if rule[1] not in later} - FOR_NEWER_RELEASES
    assert recorder.used == wanted | {("", "secrets", "get")}


def orphaned(kind: str, namespace: str) -> dict[str, Any]:
    """Return an object of the runner's that no session claims."""
    return {
        "apiVersion": "v1",
        "kind": kind,
        "metadata": {
            "name": "telo-run-orphan",
            "namespace": namespace,
            "labels": {
                "app.kubernetes.io/managed-by": MANAGED_BY,
                "telo.run/session-id": "orphan",
            },
        },
    }


def orphaned_config_map(namespace: str) -> object:
    """Return a ConfigMap without a pod."""
    return {**orphaned("ConfigMap", namespace), "data": {"left": "behind"}}


def orphaned_routes(layer: str, namespace: str) -> list[object]:
    """Return what publishes a session that nobody knows."""
    ports = [{"name": "p8080", "port": 8080}]
    service = {**orphaned("Service", namespace), "spec": {"ports": ports}}
    if layer == "gateway":
        route = orphaned("HTTPRoute", namespace)
        return [service, {**route, "apiVersion": "gateway.networking.k8s.io/v1", "spec": {}}]
    backend = {"service": {"name": "telo-run-orphan", "port": {"number": 8080}}}
    spec = {"ingressClassName": "telo-none", "defaultBackend": backend}
    ingress = orphaned("Ingress", namespace)
    return [service, {**ingress, "apiVersion": "networking.k8s.io/v1", "spec": spec}]


def orphan(namespace: str) -> object:
    """Return a pod that no session claims."""
    return {
        **orphaned("Pod", namespace),
        "spec": {
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 1000,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "session",
                    "image": "telo.test/none:1",
                    "imagePullPolicy": "Never",
                    "resources": {"limits": {"cpu": "10m", "memory": "16Mi"}},
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "capabilities": {"drop": ["ALL"]},
                    },
                }
            ],
        },
    }


async def probed(client: Served) -> None:
    config = {"image": client.image, "pullPolicy": "missing"}
    answer = await client.http.post("/v1/probe", json={"config": config})
    paths = [issue["path"] for issue in answer.json()["issues"]]
    assert paths == ["/imagePullSecret", "/runtimeClass"]


async def begun(client: Served) -> str:
    """Run one session to its end and leave another to the next runner."""
    session = await client.create('print("hello")')
    assert await client.status(session) == {"kind": "exited", "code": 0}
    assert await client.replay(session) == b"hello\r\n"
    session = await client.create(WAITS)
    async with client.terminal(session) as terminal:
        await terminal.until(b"ready")
    return session


async def taken_over(client: Served, session: str) -> None:
    async with client.terminal(session) as terminal:
        await terminal.socket.send(b"go on\r")
        assert await terminal.drain() == 1000
    assert terminal.output.endswith(b"over\r\n")
    assert await client.status(session) == {"kind": "exited", "code": 0}


async def stopped(client: Served) -> None:
    session = await client.create(WAITS, apps=[{**APP, "io": "streams"}])
    async with client.terminal(session) as terminal:
        await terminal.until(b"ready")
        assert (await client.http.delete(f"/v1/sessions/{session}")).status_code == 204
        assert await terminal.drain() == 1000
    assert await client.status(session) == {"kind": "stopped"}


async def fetched(client: Served) -> None:
    session = await client.create('print("fetched")')
    assert await client.status(session) == {"kind": "exited", "code": 0}
    assert await client.replay(session) == b"fetched\r\n"
    refused = re.compile(r"Forbidden|HTTP 403|not permitted", re.IGNORECASE)
    assert not [line for line in client.printed if refused.search(line)]


async def nothing_left(cluster: ClusterUnderTest, *kinds: str) -> None:
    async with asyncio.timeout(REAPED_SECONDS):
        for kind in ("pods", "configmaps", *kinds):
            while left := await cluster.objects(kind):
                assert left
