"""An answer takes few turns of the loop, and liveness next to none, however busy the process is.

Where clients catch up by the hundred a turn is long, and an answer that takes many of them comes
after a client's patience; a process whose liveness does is killed for being busy.
"""

import asyncio
from typing import Any

import httpx
import pytest

# Django would hand a request to a thread and back for every middleware: some fifty turns.
MOST_TURNS_ALIVE = 3
MOST_TURNS = 25


async def count_turns(client: httpx.AsyncClient, path: str) -> int:
    """Return how many turns of the loop an answer takes."""
    loop: Any = asyncio.get_running_loop()
    turn, turns = loop._run_once, 0

    def counted() -> None:
        nonlocal turns
        turns += 1
        turn()

    loop._run_once = counted
    try:
        await client.get(path)
    finally:
        del loop._run_once
    return turns


@pytest.mark.parametrize(
    ("path", "most"),
    [
        ("/v1/health", MOST_TURNS_ALIVE),
        ("/livez", MOST_TURNS_ALIVE),
        ("/v1/capabilities", MOST_TURNS),
        ("/v1/unknown", MOST_TURNS),
    ],
)
async def test_an_answer_takes_few_turns_of_the_loop(
    client: httpx.AsyncClient, path: str, most: int
) -> None:
    await client.get(path)
    assert await count_turns(client, path) <= most


@pytest.mark.parametrize("path", ["/v1/health", "/livez"])
async def test_liveness_takes_no_other_method(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.post(path)
    assert answer.status_code == 405
    assert answer.json()["error"] == "method_not_allowed"
    assert answer.headers["allow"] == "GET, HEAD"
    assert (await client.head(path)).status_code == 200
