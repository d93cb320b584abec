"""A watch of the local cluster as its time runs out, without a connection in between."""

import asyncio
from typing import Any

import orjson
import pytest

from telorunner.localcluster.negotiation import Form
from telorunner.localcluster.paths import Target
from telorunner.localcluster.queries import list_query
from telorunner.localcluster.resources import KINDS_BY_PLURAL
from telorunner.localcluster.store import Store
from telorunner.localcluster.watching import LAST_BOOKMARK_SECONDS, Watch

CONFIGMAP = {"metadata": {"name": "one", "namespace": "apps"}, "data": {}}


class Lines:
    """Takes what the watch writes."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    async def write(self, data: bytes) -> None:
        for line in data.splitlines():
            event = orjson.loads(line)
            self.events.append((event["type"], event["object"]))


@pytest.mark.looptime
async def test_no_bookmark_is_ahead_of_a_change_that_has_not_been_told() -> None:
    store = Store()
    query = list_query(
        "configmaps",
        {
            "resourceVersion": str(store.revision),
            "allowWatchBookmarks": "true",
            "timeoutSeconds": "3",
        },
    )
    watch = Watch(store, Target(KINDS_BY_PLURAL["configmaps"], "apps"), query, Form.OBJECT)
    lines: Any = Lines()
    async with asyncio.TaskGroup() as group:
        group.create_task(watch._run(lines))
        # The race: this is written in the turn of the loop in which the bookmark is due. A client
        # that went on from the bookmark would never hear of it.
        loop = asyncio.get_running_loop()
        loop.call_at(loop.time() + 3 - LAST_BOOKMARK_SECONDS, store.create, "configmaps", CONFIGMAP)
    assert [type_ for type_, _ in lines.events] == ["ADDED", "BOOKMARK"]
