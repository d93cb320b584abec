"""What a client reads when the cluster refuses: permissions taken away, quota, admission."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import orjson
import pytest

from tests.clients import Client
from tests.clusters import ClusterUnderTest
from tests.e2e.conftest import Serving
from tests.realcluster import ACCOUNT, kubectl, role_rules, set_role
from tests.serving import Platform

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

EFFECT_SECONDS = 30
# The bound of a stop, and what a busy machine takes for the rest.
STOPPED_SECONDS = 15 + 10
POD = "create: could not create the session pod"
CONFIG_MAP = "create: could not create the bundle's ConfigMap"
NOT_PERMITTED = (
    "the runner is not permitted to do this (Forbidden, HTTP 403). "
    "The cluster operator must check the runner's RBAC, and that the session namespace "
    "(RUNNER_SESSION_NAMESPACE) exists."
)
# What is in a runtime's pipe at the exit may be lost there, in the log too; and some of these runs
# have either only an attach or only the log.
HELLO = 'import time\nprint("first line")\nprint("last line", flush=True)\ntime.sleep(1)\n'
WAITS = 'print("ready", flush=True)\ninput()\n'
OUTPUT = b"first line\r\nlast line\r\n"
EXITED = {"kind": "exited", "code": 0}


@pytest.fixture(scope="module")
def platform(prepared: ClusterUnderTest) -> Iterator[Platform]:
    platform = Platform(prepared.data_dir, prepared.environment)
    platform.start()
    yield platform
    assert platform.stop() == 0


@pytest.fixture
async def client(platform: Platform, prepared: ClusterUnderTest) -> AsyncIterator[Client]:
    client = Client(platform.url, prepared.image)
    yield client
    await client.close()


def without(resource: str, verbs: set[str]) -> list[dict[str, Any]]:
    """Return the Role's rules less some verbs of one resource."""
    rules = role_rules()
    for rule in rules:
        if resource in rule["resources"]:
            assert verbs <= set(rule["verbs"])
            rule["verbs"] = [verb for verb in rule["verbs"] if verb not in verbs]
    return [rule for rule in rules if rule["verbs"]]


@contextmanager
def taken_away(namespace: str, resource: str, *verbs: str) -> Iterator[None]:
    """Take verbs from the runner's Role for the length of the context, effective at once."""
    account = f"system:serviceaccount:{namespace}:{ACCOUNT}"
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": account,
            "groups": [f"system:serviceaccounts:{namespace}"],
            "resourceAttributes": {
                "namespace": namespace,
                "verb": verbs[-1],
                "resource": resource.partition("/")[0],
                "subresource": resource.partition("/")[2],
            },
        },
    }

    def wait_until(is_allowed: bool) -> None:
        """Wait: the authorizer learns of a changed Role by a watch of its own."""
        wanted = "true" if is_allowed else "false"
        said = ("create", "-f", "-", "-o", "jsonpath={.status.allowed}")
        for _ in range(EFFECT_SECONDS * 5):
            if kubectl(*said, manifest=body) == wanted:
                return
        raise AssertionError(f"the Role has not changed to {wanted}")

    set_role(namespace, without(resource, set(verbs)))
    try:
        wait_until(is_allowed=False)
        yield
    finally:
        set_role(namespace, role_rules())
        wait_until(is_allowed=True)


async def nothing_left(cluster: ClusterUnderTest) -> None:
    async with asyncio.timeout(60):
        while left := await cluster.objects("pods") + await cluster.objects("configmaps"):
            assert left


async def line_with(printed: list[str], words: str) -> str:
    """Wait for a line of a process's output that has these words in it."""
    async with asyncio.timeout(EFFECT_SECONDS):
        while True:
            if found := [line for line in printed if words in line]:
                return found[0]
            await asyncio.sleep(0.05)


@pytest.mark.parametrize(("resource", "operation"), [("pods", POD), ("configmaps", CONFIG_MAP)])
async def test_what_may_not_be_made_is_told_and_nothing_stays(
    client: Client, prepared: ClusterUnderTest, resource: str, operation: str
) -> None:
    with taken_away(prepared.namespace, resource, "create"):
        session = await client.create(HELLO)
        message = f"{operation}: {NOT_PERMITTED}"
        assert await client.status(session) == {"kind": "failed", "message": message}
        await nothing_left(prepared)


@pytest.mark.parametrize(
    ("resource", "verb"),
    [
        ("pods", "get"),
        ("pods/log", "get"),
        ("configmaps", "get"),
        ("configmaps", "list"),
        ("configmaps", "patch"),
        ("configmaps", "delete"),
    ],
)
async def test_a_run_goes_well_without_what_only_mends_and_tidies(
    client: Client, prepared: ClusterUnderTest, resource: str, verb: str
) -> None:
    with taken_away(prepared.namespace, resource, verb):
        session = await client.create(HELLO)
        assert await client.status(session) == EXITED
        assert await client.replay(session) == OUTPUT
        # What may not be deleted goes with its owner.
        await nothing_left(prepared)


async def test_without_attach_the_terminal_says_so_and_the_output_comes_at_the_end(
    client: Client, prepared: ClusterUnderTest
) -> None:
    with taken_away(prepared.namespace, "pods/attach", "create", "get"):
        session = await client.create(HELLO)
        assert await client.status(session) == EXITED
        output = await client.replay(session)
    said = output.replace(OUTPUT, b"")
    assert len(said) == len(output) - len(OUTPUT)
    told = b"the terminal is not connected: The runner is not permitted to do this; trying again"
    assert told in said


async def test_without_attach_and_log_the_run_still_ends_as_it_did(
    client: Client, prepared: ClusterUnderTest
) -> None:
    with (
        taken_away(prepared.namespace, "pods/attach", "create", "get"),
    ):
        rules = [
            rule for rule in role_rules() if rule["resources"][0] not in {"pods/attach", "pods/log"}
        ]
        set_role(prepared.namespace, rules)
        session = await client.create("raise SystemExit(3)")
        status = await client.status(session)
        assert status["kind"] == "failed"
        assert "(exit code 3)" in status["message"]
        assert b"not permitted" in await client.replay(session)


async def test_a_pod_that_may_not_be_deleted_does_not_hold_a_stop_up(
    client: Client, prepared: ClusterUnderTest
) -> None:
    # The pods of those that have ended go after their last status.
    await nothing_left(prepared)
    with taken_away(prepared.namespace, "pods", "delete"):
        session = await client.create(WAITS)
        async with client.terminal(session) as terminal:
            await terminal.until(b"ready")
        asked_at = time.monotonic()
        assert (await client.http.delete(f"/v1/sessions/{session}")).status_code == 204
        assert await client.status(session) == {"kind": "stopped"}
        assert time.monotonic() - asked_at < STOPPED_SECONDS
        assert await prepared.objects("pods") == [f"telo-run-{session}"]
    # Permitted again, what was left is tidied away.
    await nothing_left(prepared)


@pytest.mark.parametrize("verbs", [("list",), ("list", "watch")])
async def test_a_runner_that_may_not_see_pods_is_not_ready_and_says_why(
    prepared: ClusterUnderTest, serve: Serving, verbs: tuple[str, ...]
) -> None:
    with taken_away(prepared.namespace, "pods", *verbs):
        async with serve() as client:
            answer = await client.http.get("/readyz")
            assert answer.status_code == 503
            assert answer.json()["checks"]["cluster"] == "stale"
            assert (await client.http.get("/livez")).status_code == 200
            # To the operator, the API's own words; a line is read when it comes.
            assert "pods is forbidden" in await line_with(
                client.printed, "The watch of pods has failed"
            )


async def test_a_runner_that_may_only_list_pods_sees_them_all_the_same(
    client: Client, prepared: ClusterUnderTest
) -> None:
    with taken_away(prepared.namespace, "pods", "watch"):
        session = await client.create(HELLO)
        assert await client.status(session) == EXITED
        assert await client.replay(session) == OUTPUT


class TestQuota:
    """A quota of one pod, which is in use."""

    @pytest.fixture(autouse=True)
    def quota(self, prepared: ClusterUnderTest) -> Iterator[None]:
        where = ("resourcequota", "sessions", "-n", prepared.namespace)

        def wait(field: str, value: str) -> None:
            wanted = f"--for=jsonpath={{.status.{field}.pods}}={value}"
            kubectl("wait", *where, wanted, "--timeout=60s")

        def limit(pods: str) -> None:
            patch = orjson.dumps({"spec": {"hard": {"pods": pods}}}).decode()
            kubectl("patch", *where, "--type=merge", "-p", patch)
            wait("hard", pods)

        # The pods of sessions that have ended go after their last status, and then from the quota.
        wait("used", "0")
        limit("1")
        yield
        limit("32")

    async def test_a_session_beyond_the_quota_is_told_so_and_leaves_nothing(
        self, client: Client, prepared: ClusterUnderTest
    ) -> None:
        first = await client.create(WAITS)
        await client.until_running(first)
        second = await client.create(HELLO)
        assert await client.status(second) == {
            "kind": "failed",
            "message": f"{POD}: the session namespace's resource quota is exhausted "
            "(Forbidden, HTTP 403).",
        }
        name = f"telo-run-{first}"
        async with asyncio.timeout(30):
            while await prepared.objects("configmaps") != [name]:
                pass
        assert await prepared.objects("pods") == [name]
        assert (await client.http.delete(f"/v1/sessions/{first}")).status_code == 204
        assert await client.status(first) == {"kind": "stopped"}
        # The pod is gone, and so is what it took of the quota.
        async with asyncio.timeout(60):
            while await client.status(await client.create(HELLO)) != EXITED:
                pass


@contextmanager
def policy(namespace: str, reason: str) -> Iterator[str]:
    """Let an admission policy refuse every pod of the namespace; yield its own words."""
    words = "nothing that a client may read"
    group = "admissionregistration.k8s.io/v1"
    rules = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["pods"],
    }
    chosen = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    manifests = [
        {
            "apiVersion": group,
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": namespace},
            "spec": {
                "matchConstraints": {"resourceRules": [rules], "namespaceSelector": chosen},
                "validations": [{"expression": "false", "message": words, "reason": reason}],
            },
        },
        {
            "apiVersion": group,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": namespace},
            "spec": {"policyName": namespace, "validationActions": ["Deny"]},
        },
    ]
    kinds = "validatingadmissionpolicy,validatingadmissionpolicybinding"
    try:
        for manifest in manifests:
            kubectl("create", "-f", "-", manifest=manifest)
        yield words
    finally:
        kubectl("delete", kinds, namespace)


@pytest.mark.parametrize(
    ("reason", "facts"),
    [("Forbidden", "Forbidden, HTTP 403"), ("Invalid", "Invalid, HTTP 422")],
)
async def test_a_refusing_policy_is_told_without_its_words(
    client: Client, prepared: ClusterUnderTest, platform: Platform, reason: str, facts: str
) -> None:
    assert platform.process is not None
    with policy(prepared.namespace, reason) as words:
        # A new policy takes effect within seconds.
        async with asyncio.timeout(60):
            while (status := await client.status(await client.create(HELLO))) == EXITED:
                pass
        assert status == {
            "kind": "failed",
            "message": f"{POD}: the Kubernetes API rejected the request ({facts}).",
        }
        assert await line_with(platform.process.output, words)
        await nothing_left(prepared)
    # One that is gone refuses for some seconds more, whatever test comes next.
    async with asyncio.timeout(60):
        while await client.status(await client.create(HELLO)) != EXITED:
            pass


async def test_a_runtime_class_that_is_not_there_is_told(serve: Serving) -> None:
    async with serve(RUNNER_RUNTIME_CLASS="not-there") as client:
        assert await client.status(await client.create(HELLO)) == {
            "kind": "failed",
            "message": f"{POD}: the Kubernetes API rejected the request (Forbidden, HTTP 403).",
        }
