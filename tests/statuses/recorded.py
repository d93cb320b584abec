"""Recordings of pods on a real cluster as tests play them."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import orjson

HERE = Path(__file__).parent
RECORDED = HERE / "recorded"
# Statuses as the Kubernetes documentation defines them, of what may not be tried on a shared
# cluster. Kept in the same form.
HANDMADE = HERE / "handmade"


@dataclass(frozen=True)
class Recording:
    """The distinct statuses of one pod in order, each with the watch event that brought it."""

    name: str
    content: dict[str, Any]

    def __iter__(self) -> Iterator[tuple[float, str, dict[str, Any]]]:
        """Yield seconds since the first, event type and pod."""
        made = self.content["pod"]
        for step in self.content["steps"]:
            pod = {
                "metadata": {**made["metadata"], **step["metadata"]},
                "spec": {**made["spec"], "nodeName": step["nodeName"]},
                "status": step["status"],
            }
            yield step["atSeconds"], step["event"], pod

    @property
    def pods(self) -> list[dict[str, Any]]:
        """The pod as it was seen, step by step."""
        return [pod for _, _, pod in self]

    @property
    def is_gone(self) -> bool:
        """Whether the pod was deleted at the end."""
        return bool(self.content["steps"][-1]["event"] == "DELETED")


@cache
def load(path: Path) -> Recording:
    """Return a recording."""
    return Recording(path.stem, orjson.loads(path.read_bytes()))


def recordings() -> list[Recording]:
    """Return all recordings of pods."""
    paths = [*sorted(RECORDED.glob("*.json")), *sorted(HANDMADE.glob("*.json"))]
    return [found for found in map(load, paths) if "steps" in found.content]


def refusals() -> list[Recording]:
    """Return all recordings of requests that were refused."""
    return [
        found
        for found in map(load, sorted(RECORDED.glob("*.json")))
        if "httpStatus" in found.content
    ]
