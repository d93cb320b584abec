"""Confirms that what a list lacks is gone: each object is asked for by its own name.

A list that lacks an object proves little. A broken proxy, or an API server that is confused about
its store, may answer 200 with fewer objects than there are, or with none; a session that believed
it would be ended for nothing. Only a 404 for the object itself is an end.
"""

import asyncio
from collections.abc import Callable, Collection
from typing import Any

from telorunner.errors import ClusterError
from telorunner.kube.client import Cluster
from telorunner.kube.objects import find

# After an outage many are asked for; a list that is false is found out by the first ones.
QUESTIONS_AT_ONCE = 8

Object = dict[str, Any]


class FalseListError(Exception):
    """A list lacked an object that exists."""


async def confirm(
    cluster: Cluster,
    resource: str,
    lacking: Collection[str],
    take: Callable[[str, Object | None], bool],
) -> Exception | None:
    """Ask for objects by name, a few at once; return what makes their list unusable, else None.

    That is the first question without an answer, or the first object that is there after all. The
    others are not asked for any more then: the next list says whether they need to be.

    Args:
        cluster: Where.
        resource: Such as `pods`.
        lacking: Names that were known, and which a list did not have.
        take: Gets each name and what was found, None for nothing; returns whether the list may
            have lacked it rightly.
    """
    waiting = iter(lacking)
    failures: list[Exception] = []

    async def ask() -> None:
        for name in waiting:
            if failures:
                return
            try:
                if not take(name, await find(cluster, resource, name)):
                    failures.append(FalseListError(f"a list of {resource} lacked some that exist"))
            except ClusterError as exc:
                failures.append(exc)

    async with asyncio.TaskGroup() as group:
        for number in range(min(QUESTIONS_AT_ONCE, len(lacking))):
            group.create_task(ask(), name=f"{resource}-confirm-{number}")
    return failures[0] if failures else None
