"""Ends containers that use more than their limits, as a node's kernel and kubelet do.

Memory is looked at once a second, because a limit of the process itself (RLIMIT_AS) would count
what an interpreter reserves and never touches; a container may exceed it in between. Ephemeral
storage is looked at less often, because that reads folders. The tasks of both belong to the agent.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from telorunner.localcluster.node.container import Container
from telorunner.localcluster.node.pod import PodRunner
from telorunner.localcluster.node.sweep import memory_bytes
from telorunner.localcluster.node.volumes import used_bytes
from telorunner.values.quantity import parse_quantity

MEMORY_SECONDS = 1.0
OOM_KILLED = "OOMKilled"

Runners = Callable[[], Iterable[PodRunner]]


def limit_of(container: dict[str, Any], resource: str) -> int | None:
    """Return a container's limit in the resource's base unit, None where it has none."""
    text = ((container.get("resources") or {}).get("limits") or {}).get(resource)
    try:
        return None if text is None else int(parse_quantity(str(text)))
    except ValueError:
        return None


async def watch_memory(runners: Runners) -> None:
    """Kill containers above their memory limit, until cancelled."""
    while True:
        await asyncio.sleep(MEMORY_SECONDS)
        limits = dict(_memory_limits(runners()))
        if not limits:
            continue
        used = memory_bytes(container.session for container in limits)
        for container, limit in limits.items():
            if used[container.session] > limit:
                container.kill(OOM_KILLED)


def _memory_limits(runners: Iterable[PodRunner]) -> Iterator[tuple[Container, int]]:
    for runner in runners:
        for run in runner.all_runs:
            limit = limit_of(dict(run.spec), "memory")
            if run.container is not None and run.container.is_running and limit is not None:
                yield run.container, limit


async def watch_storage(runners: Runners, period_seconds: float) -> None:
    """Evict pods that use more storage than they may, until cancelled."""
    while True:
        await asyncio.sleep(period_seconds)
        for runner in list(runners()):
            if any(run.is_running for run in runner.all_runs):
                message = await asyncio.to_thread(storage_excess, runner)
                if message:
                    runner.evict(message)


def storage_excess(runner: PodRunner) -> str:
    """Return the kubelet's words for the limit that a pod exceeds, or ""; reads its folders."""
    spec = runner.pod["spec"]
    total = 0
    for volume in spec.get("volumes", []):
        if "emptyDir" not in volume:
            continue
        used = used_bytes(runner.folder / "volumes" / volume["name"])
        total += used
        limit = volume["emptyDir"].get("sizeLimit")
        if limit is not None and used > parse_quantity(str(limit)):
            name = volume["name"]
            return f'Usage of EmptyDir volume "{name}" exceeds the limit "{limit}". '
    total += used_bytes(runner.folder / "containers")
    limits = [limit_of(one, "ephemeral-storage") for one in spec["containers"]]
    known = [limit for limit in limits if limit is not None]
    if len(known) == len(limits) and total > sum(known):
        texts = [one["resources"]["limits"]["ephemeral-storage"] for one in spec["containers"]]
        shown = texts[0] if len(texts) == 1 else str(sum(known))
        return f"Pod ephemeral local storage usage exceeds the total limit of containers {shown}. "
    return ""
