"""Which way a bundle goes is chosen when its session is created, and kept in the row."""

import random
import re

import httpx
import pytest

from sessions import store
from sessions.bundles import INLINE_MAX_BYTES
from sessions.models import Bundle, Session
from sessions.runtime import Runtime
from sessions.spec import SessionSpec
from sessions.states import Delivery
from telorunner.conf import Settings
from tests.builders import create_body, make_bundle, make_settings

pytestmark = pytest.mark.usefixtures("transactional_db")

# Random bytes hardly shrink: one more than fits inline, and one that just does.
LARGE = random.Random(1).randbytes(1_200_000)
FITTING = random.Random(1).randbytes(INLINE_MAX_BYTES - 2048)


@pytest.fixture
def config(request: pytest.FixtureRequest) -> Settings:
    return make_settings(bundle_delivery=request.param)


async def create(client: httpx.AsyncClient, contents: bytes) -> httpx.Response:
    bundle = make_bundle({"telo.yaml": "x: 1\n", "data": contents})
    return await client.post("/v1/sessions", json=create_body(bundle=bundle))


@pytest.mark.parametrize(
    ("config", "contents", "delivery"),
    [
        ("auto", b"", Delivery.INLINE),
        ("auto", FITTING, Delivery.INLINE),
        ("auto", LARGE, Delivery.FETCH),
        ("inline", FITTING, Delivery.INLINE),
        ("fetch", b"", Delivery.FETCH),
        ("fetch", LARGE, Delivery.FETCH),
    ],
    indirect=["config"],
)
async def test_the_choice_is_kept_in_the_row(
    client: httpx.AsyncClient, running: Runtime, contents: bytes, delivery: Delivery
) -> None:
    answer = await create(client, contents)
    assert answer.status_code == 201, answer.text
    row = await Session.objects.aget(id=answer.json()["sessionId"])
    assert SessionSpec.from_json(row.id, row.mode, row.spec).delivery is delivery
    bundle = await Bundle.objects.aget(session=row)
    if delivery is Delivery.INLINE:
        assert not bundle.token_sealed
        return
    token = await store.load_token(row.id)
    assert re.fullmatch(r"[0-9a-f]{48}", token)
    assert await store.redeem(row.id, token) == bytes(bundle.archive)


@pytest.mark.parametrize("config", ["inline"], indirect=True)
async def test_what_does_not_fit_where_all_is_inline_is_refused_with_the_limit(
    client: httpx.AsyncClient, running: Runtime
) -> None:
    answer = await create(client, LARGE)
    assert answer.status_code == 413
    assert answer.json()["error"] == "bundle_too_large"
    assert f"{INLINE_MAX_BYTES:,} bytes" in answer.json()["message"]
    assert not await Session.objects.aexists()


@pytest.mark.parametrize("config", ["fetch"], indirect=True)
async def test_every_session_has_a_token_of_its_own(
    client: httpx.AsyncClient, running: Runtime
) -> None:
    ids = [(await create(client, b"")).json()["sessionId"] for _ in range(2)]
    first, second = [await store.load_token(session_id) for session_id in ids]
    assert first != second
    missed = await client.get(f"/internal/bundles/{ids[0]}", params={"token": second})
    assert missed.status_code == 404
    fetched = await client.get(f"/internal/bundles/{ids[0]}", params={"token": first})
    assert fetched.status_code == 200
    assert fetched.headers["access-control-allow-origin"] == "*"


def test_a_row_of_before_the_choice_is_inline() -> None:
    from tests.builders import make_spec

    data = make_spec().to_json()
    del data["delivery"]
    assert SessionSpec.from_json("x", "run", data).delivery is Delivery.INLINE
