"""A watch of the local cluster as its time runs out, without a connection in between."""

import asyncio
from typing import Any

import orjson

from telorunner.localcluster.paths import Target
from telorunner.localcluster.queries import list_query
from telorunner.localcluster.resources import KINDS_BY_PLURAL
from telorunner.localcluster.store import Store
from telorunner.localcluster.watching import Watch

CONFIGMAP = {"metadata": {"name": "one", "namespace": "apps"}, "data": {}}


class Lines:
    """Takes what the watch writes."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    async def write(self, data: bytes) -> None:
        for line in data.splitlines():
            event = orjson.loads(line)
            self.events.append((event["type"], event["object"]))


async def test_no_bookmark_is_ahead_of_a_change_that_has_not_been_told() -> None:
    store = Store()
    query = list_query(
        "configmaps",
        {
            "resourceVersion": str(store.revision),
            "allowWatchBookmarks": "true",
            "timeoutSeconds": "0",
        },
    )
    watch = Watch(store, Target(KINDS_BY_PLURAL["configmaps"], "apps"), query, as_table=False)
    lines: Any = Lines()
    async with asyncio.TaskGroup() as group:
        group.create_task(watch._run(lines))
        # The race: this is written after the watch began to wait, in the turn of the loop in which
        # its time runs out. A client that went on from the bookmark would never hear of it.
        asyncio.get_running_loop().call_soon(store.create, "configmaps", CONFIGMAP)
    assert [type_ for type_, _ in lines.events] == ["ADDED", "BOOKMARK"]
