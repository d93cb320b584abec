"""POST /v1/probe on a real cluster: what is missing is named, once the runner may see it."""

from typing import Any

import pytest

from tests.clusters import ClusterUnderTest
from tests.e2e.conftest import Served, Serving
from tests.realcluster import kubectl, role_rules, set_role

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

PULL_RULE = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
NO_SECRET = ("/imagePullSecret", 'The image pull secret "pull" does not exist.')


async def probe(client: Served) -> dict[str, Any]:
    config = {"image": client.image, "pullPolicy": "missing"}
    answer = await client.http.post("/v1/probe", json={"config": config})
    assert answer.status_code == 200
    return dict(answer.json())


def needs(*issues: tuple[str, str]) -> dict[str, Any]:
    listed = [{"path": path, "message": message} for path, message in issues]
    return {"status": "needs-setup", "issues": listed}


async def test_a_missing_namespace_is_named(serve: Serving) -> None:
    async with serve(RUNNER_SESSION_NAMESPACE="not-there") as client:
        missing = ("/namespace", 'The namespace "not-there" does not exist.')
        assert await probe(client) == needs(missing)


async def test_what_pods_are_configured_with_is_named_while_it_is_missing_and_then_used(
    serve: Serving, prepared: ClusterUnderTest
) -> None:
    namespace = prepared.namespace
    no_class = ("/runtimeClass", f'The runtime class "{namespace}" does not exist.')
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "pull", "namespace": namespace},
        "type": "kubernetes.io/dockerconfigjson",
        "stringData": {".dockerconfigjson": '{"auths": {}}'},
    }
    runtime_class = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": namespace},
        "handler": "runc",
    }
    variables = {"RUNNER_IMAGE_PULL_SECRET": "pull", "RUNNER_RUNTIME_CLASS": namespace}
    async with serve(**variables) as client:
        # Without the rule for that Secret nobody knows whether it is there.
        assert await probe(client) == needs(no_class)
        set_role(namespace, [*role_rules(), {**PULL_RULE, "resourceNames": ["pull"]}])
        assert await until(client, needs(NO_SECRET, no_class))
        kubectl("create", "-f", "-", manifest=secret)
        assert await probe(client) == needs(no_class)
        try:
            kubectl("create", "-f", "-", manifest=runtime_class)
            assert await probe(client) == {"status": "ready"}
            session = await client.create('print("in its class")')
            assert await client.status(session) == {"kind": "exited", "code": 0}
            assert await client.replay(session) == b"in its class\r\n"
        finally:
            kubectl("delete", "runtimeclass", namespace)


async def until(client: Served, wanted: dict[str, Any]) -> bool:
    """Ask until a changed Role has its effect, which takes a moment."""
    for _ in range(100):
        if await probe(client) == wanted:
            return True
    return False
