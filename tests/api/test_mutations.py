"""Mutated requests and frames against the real server: an answer or a close, and never a failure.

What is drawn is the same in each run; TELORUNNER_TEST_MUTATIONS=<count> draws so many new ones for
each way in. The first examples warm a way up, and by its end there may be no more of anything.
"""

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as chosen
from hypothesis import strategies as st

from tests.api import frames, mutants
from tests.api.hostile import UNTOUCHED, World, check, open_world, request
from tests.api.reactor import running_reactor
from tests.builders import make_settings
from tests.held import resident_bytes

__all__ = ["running_reactor"]

# With the full counts each takes longer than a test usually may.
pytestmark = [pytest.mark.usefixtures("transactional_db"), pytest.mark.timeout(600)]

WARM_UP_EXAMPLES = 10
# The allocator keeps what requests of a megabyte needed; what is kept for good would be far more.
GROWTH_BYTES = 40_000_000
HARMLESS_CODES = {1000, 1002, 1003, 1007, 1009}

# What the server says by itself where it has no request to hand to the application.
NO_REQUEST = {
    "The request line or a header is too long.",
    "The request is not valid HTTP, or has too many headers.",
    "Invalid header value.",
}

Times = Callable[[int, int], int]


class Failures(logging.Handler):
    """Keeps what is logged as a failure of the server's own."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(logging.Formatter().format(record))


@pytest.fixture
def world(reactor: None, tmp_path: Path, settings: Any) -> Iterator[World]:
    """A server of the whole application, which has reported no failure by the end."""
    settings.RUNNER = make_settings(max_bundle_bytes=3_000_000)
    failures = Failures()
    logging.getLogger().addHandler(failures)
    try:
        with open_world(settings.RUNNER, tmp_path) as opened:
            yield opened
    finally:
        logging.getLogger().removeHandler(failures)
    assert not failures.records


def explore(
    world: World, strategy: st.SearchStrategy[Any], test: Callable[[Any], None], examples: int
) -> None:
    """Try so many examples; compare what there is of everything at both ends."""
    asked = os.environ.get("TELORUNNER_TEST_MUTATIONS")

    def draw(count: int) -> None:
        rules = chosen(
            max_examples=count,
            derandomize=not asked,
            database=None,
            deadline=None,
            # Shrinking would repeat a failure for minutes.
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        rules(given(strategy)(test))()

    draw(WARM_UP_EXAMPLES)
    before, memory = world.count(), resident_bytes(os.getpid())
    draw(int(asked or examples) - WARM_UP_EXAMPLES)
    world.settle(at_most=before)
    assert resident_bytes(os.getpid()) - memory < GROWTH_BYTES
    url = f"http://127.0.0.1:{world.server.port}/v1/sessions/{world.session_id}"
    after = httpx.get(url, trust_env=False)
    assert after.json()["status"]["kind"] == "running"


def test_mutated_bodies_are_taken_or_refused_in_json(world: World, times: Times) -> None:
    def send(drawn: tuple[tuple[bytes, bytes], bytes]) -> None:
        (target, body), of_type = drawn
        answers = world.talk(request(target, body, of_type=of_type))
        assert len(answers) == 1, (answers, body[:500], of_type)
        check(answers[0], body)
        assert answers[0].status in {200, 201, 400, 409, 413, 415}, answers
        if answers[0].json().get("message") not in NO_REQUEST:
            assert answers[0].headers["access-control-allow-origin"] == "*", answers

    strategy = st.tuples(mutants.bodies(), mutants.CONTENT_TYPES)
    explore(world, strategy, send, times(350, 35))


def test_odd_lines_and_headers_get_an_answer_or_a_close(world: World, times: Times) -> None:
    def send(head: bytes) -> None:
        for answer in world.talk(head):
            is_admin = b"/admin" in head and answer.status < 500
            if not is_admin:
                check(answer, head)

    explore(world, mutants.heads(world.session_id), send, times(300, 35))


def test_odd_framing_cannot_smuggle_a_request(world: World, times: Times) -> None:
    def send(pieces: list[bytes]) -> None:
        for answer in world.talk(*pieces):
            check(answer, b"".join(pieces))

    explore(world, mutants.framings(), send, times(150, 20))


def test_odd_frames_are_answered_by_a_close_that_says_why(world: World, times: Times) -> None:
    path = f"/v1/sessions/{world.session_id}/io"

    def send(drawn: list[bytes]) -> None:
        # What is in order is closed by the client in the end.
        sent = world.upgrade(path, *drawn, frames.frame(frames.CLOSE))
        for one in sent:
            assert one.opcode in {frames.TEXT, frames.BINARY, frames.CLOSE, frames.PONG}, one
        if sent and sent[-1].opcode == frames.CLOSE and sent[-1].payload:
            code = int.from_bytes(sent[-1].payload[:2], "big")
            assert code in HARMLESS_CODES or 3000 <= code < 5000, sent[-1]

    explore(world, st.lists(frames.FRAMES, max_size=4), send, times(200, 30))
    shown = world.upgrade(path)
    assert b"".join(one.payload[5:] for one in shown if one.opcode == frames.BINARY) == UNTOUCHED
