"""Records what a real cluster says of the cases' pods, into `recorded/`.

    KUBECONFIG=... .venv/bin/python -m tests.statuses.record [--out FOLDER] [CASE...]

It needs `kubectl` on PATH, an administrator's credentials and the images that the tests on a real
cluster use; it makes a namespace of its own and deletes it. Without names all cases are recorded,
which takes some minutes. Afterwards `git diff tests/statuses` shows what a newer Kubernetes says
otherwise, and `tests/unit/test_recorded_statuses.py` what clients would read.
"""

import argparse
import asyncio
import secrets
import string
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import orjson

from tests.statuses.cases import CASES, THE_NODE, Act, Case
from tests.statuses.pods import Manifest, build
from tests.statuses.recorded import RECORDED
from tests.statuses.refusals import REFUSALS, Refusal
from tests.statuses.stable import POD_NAME, normalise, strip

CASE_SECONDS = 150.0
ANSWER_SECONDS = 30.0
# How many pods there are at once.
AT_ONCE = 3


@dataclass
class World:
    """A namespace of a real cluster, by way of an administrator's `kubectl proxy`."""

    client: httpx.AsyncClient
    namespace: str
    node: str
    cluster: dict[str, str]

    @property
    def pods(self) -> str:
        """The path of the namespace's pods."""
        return f"/api/v1/namespaces/{self.namespace}/pods"


@dataclass
class Tape:
    """The distinct statuses of one pod, in order."""

    pod: Manifest
    steps: list[Manifest] = field(default_factory=list)
    started_at: float = 0.0

    def take(self, event: str, pod: Manifest) -> None:
        """Add what an event says, unless it says nothing new."""
        pod = strip(pod)
        step = {
            "event": event,
            "metadata": {
                name: pod["metadata"][name]
                for name in ("deletionTimestamp", "deletionGracePeriodSeconds")
                if name in pod["metadata"]
            },
            "nodeName": pod["spec"].get("nodeName", ""),
            "status": pod["status"],
        }
        last = self.steps[-1] if self.steps and event != "DELETED" else {}
        if all(last.get(name) == step[name] for name in step if name != "event"):
            return
        now = asyncio.get_running_loop().time()
        self.started_at = self.started_at or now
        self.steps.append({"atSeconds": round(now - self.started_at, 1), **step})


@dataclass(frozen=True)
class Watched:
    """A running watch, what may be started beside it, and when it ends."""

    lines: AsyncIterator[str]
    group: asyncio.TaskGroup
    bound: asyncio.Timeout


@asynccontextmanager
async def open_world() -> AsyncIterator[World]:
    """Make a namespace for the length of the context; *restricted*, as sessions' is."""
    proxy = await asyncio.create_subprocess_exec(
        "kubectl", "proxy", "--port=0", stdout=asyncio.subprocess.PIPE
    )
    assert proxy.stdout is not None
    try:
        address = (await proxy.stdout.readline()).decode().split()[-1]
        async with httpx.AsyncClient(
            base_url=f"http://{address}", timeout=ANSWER_SECONDS, trust_env=False
        ) as client:
            name = f"statuses-{secrets.token_hex(4)}"
            (node,) = (await _call(client, "GET", "/api/v1/nodes"))["items"][:1]
            info = node["status"]["nodeInfo"]
            cluster = {
                "kubernetes": info["kubeletVersion"],
                "runtime": info["containerRuntimeVersion"],
            }
            labels = {"pod-security.kubernetes.io/enforce": "restricted"}
            manifest = {"metadata": {"name": name, "labels": labels}}
            await _call(client, "POST", "/api/v1/namespaces", manifest)
            try:
                await _service_account(client, name)
                yield World(client, name, node["metadata"]["name"], cluster)
            finally:
                await _call(client, "DELETE", f"/api/v1/namespaces/{name}")
    finally:
        proxy.terminate()
        await proxy.wait()


async def record(world: World, case: Case) -> dict[str, Any]:
    """Make a case's pod and return what was seen of it up to the telling moment."""
    session_id = "".join(secrets.choice(string.ascii_lowercase) for _ in range(12))
    config_map, pod = build(case.asked, session_id, world.namespace)
    if case.change is not None:
        case.change(pod)
    if pod["spec"].get("nodeName") == THE_NODE:
        pod["spec"]["nodeName"] = world.node
    await _call(world.client, "POST", world.pods.replace("/pods", "/configmaps"), config_map)
    made = await _call(world.client, "POST", world.pods, pod)
    tape = Tape(strip(made))
    try:
        async with asyncio.timeout(CASE_SECONDS):
            await _follow(world, case, made, tape)
    finally:
        path = f"{world.pods}/{pod['metadata']['name']}"
        await world.client.request("DELETE", path, json={"gracePeriodSeconds": 0})
    return _finished(world, case, tape)


async def refuse(world: World, refusal: Refusal) -> dict[str, Any]:
    """Ask for what a case is refused and return the Status."""
    session_id = "".join(secrets.choice(string.ascii_lowercase) for _ in range(12))
    _, pod = build(refusal.asked, session_id, world.namespace)
    if refusal.change is not None:
        refusal.change(pod)
    for path, manifest in refusal.prepared:
        await _call(world.client, "POST", path.format(namespace=world.namespace), manifest)
    headers = {}
    if refusal.account:
        headers["Impersonate-User"] = refusal.account.format(namespace=world.namespace)
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            while True:
                answer = await world.client.post(world.pods, json=pod, headers=headers)
                if answer.is_error:
                    break
                # The controller has not counted yet.
                await _call(world.client, "DELETE", f"{world.pods}/{pod['metadata']['name']}")
                await asyncio.sleep(0.5)
    finally:
        for path, manifest in refusal.prepared:
            name = manifest["metadata"]["name"]
            await _call(world.client, "DELETE", f"{path.format(namespace=world.namespace)}/{name}")
    text = orjson.dumps(answer.json()).decode()
    for name, stand_in in ((pod["metadata"]["name"], POD_NAME), (world.namespace, "sessions")):
        text = text.replace(name, stand_in)
    return {
        "case": refusal.name,
        "about": refusal.about,
        "cluster": world.cluster,
        "httpStatus": answer.status_code,
        "status": orjson.loads(text),
    }


async def _follow(world: World, case: Case, made: Manifest, tape: Tape) -> None:
    """Take the pod's events, act once, and return at the moment that ends the recording."""
    query = {
        "watch": "true",
        "fieldSelector": f"metadata.name={made['metadata']['name']}",
        "resourceVersion": str(int(made["metadata"]["resourceVersion"]) - 1),
    }
    async with (
        world.client.stream("GET", world.pods, params=query, timeout=CASE_SECONDS) as answer,
        asyncio.TaskGroup() as group,
    ):
        with suppress(TimeoutError):
            async with asyncio.timeout(None) as bound:
                await _take_events(world, case, tape, Watched(answer.aiter_lines(), group, bound))


async def _take_events(world: World, case: Case, tape: Tape, watched: Watched) -> None:
    act = case.act
    async for line in watched.lines:
        event = orjson.loads(line)
        pod = event["object"]
        tape.take(event["type"], pod)
        if event["type"] == "DELETED":
            return
        if act is not None and act.when(pod):
            watched.group.create_task(_act(world, act, pod["metadata"]["name"]))
            act = None
        if case.until is not None and case.until(pod) and watched.bound.when() is None:
            now = asyncio.get_running_loop().time()
            watched.bound.reschedule(now + case.linger_seconds)


async def _act(world: World, act: Act, name: str) -> None:
    await asyncio.sleep(act.after_seconds)
    path = f"{world.pods}/{name}"
    if act.is_eviction:
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        await _call(world.client, "POST", f"{path}/eviction", eviction)
        return
    options = {} if act.grace_seconds is None else {"gracePeriodSeconds": act.grace_seconds}
    await _call(world.client, "DELETE", path, options)


def _finished(world: World, case: Case, tape: Tape) -> dict[str, Any]:
    name = tape.pod["metadata"]["name"]
    recording = {
        "case": case.name,
        "about": case.about,
        "cluster": world.cluster,
        "pod": {"metadata": tape.pod["metadata"], "spec": tape.pod["spec"]},
        "steps": tape.steps,
    }
    names = {name: POD_NAME, world.namespace: "sessions", world.node: "node-1"}
    for step in tape.steps:
        names |= dict.fromkeys(_addresses(step, "hostIP"), "192.0.2.1")
        names |= dict.fromkeys(_addresses(step, "podIP"), "10.0.0.1")
    # Longer names first: an address may be the beginning of another.
    ordered = sorted(names.items(), key=lambda pair: -len(pair[0]))
    return normalise(recording, [(f'"{old}"', f'"{new}"') for old, new in ordered if old] + ordered)


def _addresses(step: Manifest, name: str) -> list[str]:
    address = step["status"].get(name)
    return [address] if address else []


async def _service_account(client: httpx.AsyncClient, namespace: str) -> None:
    """Wait until the namespace admits pods."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    async with asyncio.timeout(ANSWER_SECONDS):
        while (await client.get(path)).is_error:  # noqa: ASYNC110 - another process makes it
            await asyncio.sleep(0.1)


async def _call(
    client: httpx.AsyncClient, method: str, path: str, body: object = None
) -> dict[str, Any]:
    answer = await client.request(method, path, json=body)
    if answer.is_error:
        raise RuntimeError(f"{method} {path}: {answer.status_code}: {answer.text}")
    answered: dict[str, Any] = answer.json()
    return answered


async def _record_all(names: list[str], folder: Path) -> None:
    slots = asyncio.Semaphore(AT_ONCE)

    async def to_file(case: Case) -> None:
        async with slots:
            try:
                recording = await record(world, case)
            except (TimeoutError, RuntimeError) as exc:
                print(f"{case.name}: not recorded: {exc!r}")  # noqa: T201 - it is a program
                return
        _write(folder / f"{case.name}.json", recording)

    async with open_world() as world:
        # One after the other: a quota or a limit range is the whole namespace's.
        for name in names:
            if name in REFUSALS:
                _write(folder / f"{name}.json", await refuse(world, REFUSALS[name]))
        async with asyncio.TaskGroup() as group:
            for name in names:
                if name in CASES:
                    group.create_task(to_file(CASES[name]), name=name)


def _write(path: Path, recording: dict[str, Any]) -> None:
    options = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
    path.write_bytes(orjson.dumps(recording, option=options))
    steps = len(recording.get("steps", ()))
    print(f"{path.stem}: {steps} steps")  # noqa: T201 - it is a program


def main() -> None:
    """Record what the command line names."""
    known = [*CASES, *REFUSALS]
    parser = argparse.ArgumentParser(description="Record real pod statuses.")
    parser.add_argument("--out", type=Path, default=RECORDED, metavar="FOLDER")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(known))
    chosen = parser.parse_args()
    unknown = set(chosen.cases) - set(known)
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    chosen.out.mkdir(parents=True, exist_ok=True)
    asyncio.run(_record_all(chosen.cases or known, chosen.out))


if __name__ == "__main__":
    main()
