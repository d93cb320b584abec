"""Takes out of a recording what differs from one cluster, and from one run, to the next; pure."""

import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

# Every pod of a recording is made then, and is this session's.
CREATED_AT = datetime(2026, 1, 1, tzinfo=UTC)
POD_NAME = "telo-run-abcdefghijkl"

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_UID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_HASH = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
# Where a node keeps the kubelet's and containerd's files.
_NODE_PATH = re.compile(r"/[\w./-]*?/(kubelet|run/containerd)/")
_DROPPED = ("managedFields", "resourceVersion", "generation", "selfLink")


def strip(pod: dict[str, Any]) -> dict[str, Any]:
    """Return a pod without what counts its versions."""
    metadata = {name: value for name, value in pod["metadata"].items() if name not in _DROPPED}
    status = {name: value for name, value in pod["status"].items() if name != "observedGeneration"}
    conditions = status.get("conditions")
    if conditions is not None:
        dropped = ("observedGeneration", "lastProbeTime")
        status["conditions"] = [
            {name: value for name, value in entry.items() if name not in dropped}
            for entry in conditions
        ]
    return {"metadata": metadata, "spec": pod["spec"], "status": status}


def normalise(recording: dict[str, Any], names: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Return a recording with times, uids and hashes counted and the given names replaced."""
    text = orjson.dumps(recording).decode()
    for name, stand_in in names:
        text = text.replace(name, stand_in)
    text = _NODE_PATH.sub(r"/var/lib/\1/", text)
    created = recording["pod"]["metadata"]["creationTimestamp"]
    shift = CREATED_AT - datetime.fromisoformat(created)
    text = _TIME.sub(lambda found: _moved(found[0], shift), text)
    text = _counted(_UID, text, lambda number: f"00000000-0000-0000-0000-{number:012d}")
    text = _counted(_HASH, text, lambda number: f"{number:064x}")
    normal: dict[str, Any] = orjson.loads(text)
    return normal


def _moved(time: str, shift: timedelta) -> str:
    moved = datetime.fromisoformat(time) + shift
    return moved.strftime("%Y-%m-%dT%H:%M:%SZ")


def _counted(pattern: re.Pattern[str], text: str, name: Callable[[int], str]) -> str:
    seen: dict[str, str] = {}

    def replace(found: re.Match[str]) -> str:
        return seen.setdefault(found[0], name(len(seen) + 1))

    return pattern.sub(replace, text)
