"""The client of Docker Hub against a hub that pages, refuses, lies, stalls and floods."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiohttp import web

from catalog import dockerhub
from catalog.dockerhub import Fetched, HubUnavailable, fetch_tags, retry_after_seconds
from catalog.tags import Tag
from tests import hub as hubs
from tests.hub import FakeHub, Handler, open_fake_hub, page, refuse, say

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TAGS = "http://{host}/v2/repositories/telorun/node/tags"


@pytest.fixture
async def hub() -> AsyncIterator[FakeHub]:
    async with open_fake_hub(["1.1.0", "1.0.0"]) as hub:
        yield hub


def versions(count: int) -> list[str]:
    return [f"1.0.{number}" for number in range(count)]


async def fetch(hub: FakeHub, *, etag: str = "") -> Fetched:
    fetched = await fetch_tags(hub.url, "telorun/node", etag=etag)
    assert fetched is not None
    return fetched


async def names(hub: FakeHub) -> list[str]:
    return [tag.name for tag in (await fetch(hub)).tags]


async def refused(hub: FakeHub) -> HubUnavailable:
    with pytest.raises(HubUnavailable) as caught:
        await fetch(hub)
    message = caught.value.message
    assert hub.url in message
    assert "nobody shall repeat" not in message
    assert message.endswith(".")
    assert len(message) < 300
    return caught.value


async def test_one_page_is_asked_for_as_docker_hub_wants_it(hub: FakeHub) -> None:
    fetched = await fetch(hub)
    assert fetched.tags == (
        Tag("1.1.0", hubs.NEWEST),
        Tag("1.0.0", hubs.NEWEST - timedelta(hours=1)),
    )
    assert fetched.etag
    asked = hub.requests[0]
    assert (asked.path, asked.query) == (
        "/v2/repositories/telorun/node/tags",
        {"page_size": "100"},
    )
    assert asked.headers["Accept-Encoding"] == "identity"
    assert "If-None-Match" not in asked.headers


@pytest.mark.parametrize(
    ("repository", "path"),
    [("node", "library/node"), ("docker.io/telorun/node", "telorun/node")],
)
async def test_a_repository_is_asked_for_by_its_full_name(
    hub: FakeHub, repository: str, path: str
) -> None:
    await fetch_tags(f"{hub.url}/", repository)
    assert hub.requests[0].path == f"/v2/repositories/{path}/tags"


async def test_pages_are_followed_up_to_200_tags(hub: FakeHub) -> None:
    hub.tags = versions(250)
    assert await names(hub) == versions(200)
    assert [asked.query.get("page") for asked in hub.requests] == [None, "2"]


async def test_longer_pages_than_asked_for_are_cut_at_200_tags(hub: FakeHub) -> None:
    tags = versions(240)
    hub.script(page(tags[:120], f"{TAGS}?page=2"), page(tags[120:], f"{TAGS}?page=3"))
    assert await names(hub) == tags[:200]
    assert hub.count == 2


async def test_short_pages_are_followed_up_to_a_bound(hub: FakeHub) -> None:
    hub.tags, hub.page_items = versions(100), 10
    assert await names(hub) == versions(50)
    assert hub.count == dockerhub.MAX_PAGES


async def test_an_unchanged_list_is_not_read_again(hub: FakeHub) -> None:
    etag = (await fetch(hub)).etag
    assert await fetch_tags(hub.url, "telorun/node", etag=etag) is None
    assert hub.requests[1].headers["If-None-Match"] == etag
    hub.tags = ["1.2.0"]
    assert (await fetch(hub, etag=etag)).tags[0].name == "1.2.0"


async def test_the_etag_is_the_first_pages_and_is_sent_for_it_alone(hub: FakeHub) -> None:
    first = page(["1.1.0"], f"{TAGS}?page=2", etag='"first"')
    hub.script(first, page(["1.0.0"], etag='"second"'))
    assert (await fetch(hub, etag='"old"')).etag == '"first"'
    assert [asked.headers.get("If-None-Match") for asked in hub.requests] == ['"old"', None]
    without = page(["1.1.0"], f"{TAGS}?page=2")
    hub.script(without, page(["1.0.0"], etag='"second"'))
    assert (await fetch(hub)).etag == ""


@pytest.mark.parametrize("etag", ["x" * 300, '"é"'])
async def test_an_etag_that_cannot_be_sent_back_is_dropped(hub: FakeHub, etag: str) -> None:
    hub.script(page(["1.1.0"], etag=etag))
    assert (await fetch(hub)).etag == ""


async def test_not_modified_without_being_asked_is_a_failure(hub: FakeHub) -> None:
    hub.script(say(b"", status=304))
    assert "HTTP 304" in (await refused(hub)).message


ENDING_LINKS = {
    "to itself": f"{TAGS}?page_size=100",
    "to itself, with a fragment": f"{TAGS}?page_size=100#2",
    "to another host": "http://elsewhere.example/v2/repositories/telorun/node/tags?page=2",
    "to another port": "http://127.0.0.1:1/v2/repositories/telorun/node/tags?page=2",
    "to another scheme": TAGS.replace("http:", "https:") + "?page=2",
    "to another host without a scheme": "//elsewhere.example/v2",
    "with credentials": TAGS.replace("{host}", "user:word@{host}") + "?page=2",
    "to a name that is none": "http://xn--/v2",
    "to a file": "file:///etc/passwd",
    "to no address": "http://[::1",
    "with a control character": "http://a\x00b/",
    "a number": 7,
    "a list": ["x"],
    "empty": "",
    "null": None,
}


@pytest.mark.parametrize("link", ENDING_LINKS.values(), ids=ENDING_LINKS)
async def test_a_next_that_leads_nowhere_else_ends_the_list(hub: FakeHub, link: Any) -> None:
    hub.script(page(["1.1.0"], link))
    assert await names(hub) == ["1.1.0"]
    assert hub.count == 1


async def test_a_relative_next_and_one_with_the_default_port_are_followed(hub: FakeHub) -> None:
    hub.script(page(["1.1.0"], "?page=2"), page(["1.0.0"], None))
    assert await names(hub) == ["1.1.0", "1.0.0"]
    follow = dockerhub._following
    assert follow("http://hub.example/a", "http://hub.example:80/b") == "http://hub.example/b"
    assert follow("http://hub.example/a", "http://HUB.example/b") == "http://hub.example/b"
    assert follow("http://hub.example/a", "http://hub.example:8080/b") == ""


async def test_pages_that_lead_to_each_other_are_read_once(hub: FakeHub) -> None:
    first, second = f"{TAGS}?page=1", f"{TAGS}?page=2"
    hub.script(page(["1.1.0"], second), page(["1.0.0"], first), page(["1.1.0"], second))
    assert await names(hub) == ["1.1.0", "1.0.0"]
    assert hub.count == 3


async def test_empty_pages_with_a_next_end_somewhere(hub: FakeHub) -> None:
    numbers = iter(range(1000))

    async def empty(request: web.Request) -> web.StreamResponse:
        return await page([], f"{TAGS}?page={next(numbers)}")(request)

    hub.always(empty)
    assert await names(hub) == []
    assert hub.count == dockerhub.MAX_PAGES


async def test_odd_items_are_left_out_and_odd_dates_are_none(hub: FakeHub) -> None:
    odd_dates: list[Any] = [
        None,
        "",
        "yesterday",
        7,
        [],
        "0001-01-01T00:00:00Z",
        "1999-01-01",
        "2024-13-01",
    ]
    odd_dates += ["9999-12-31T23:59:59-23:59", "2024-01-01T00:00:00+99:00"]
    hub.tags = [
        {"name": "1.0.0", "last_updated": "2024-05-01T12:34:56.123456Z"},
        {"name": "1.0.1", "last_updated": "2024-05-01T12:34:56.123456789+02:00"},
        {"name": "1.0.2", "last_updated": "2024-05-01T12:34:56"},
        {"name": "1.0.0", "last_updated": "2020-01-01T00:00:00Z"},
        {"name": "1.0.3"},
        {"last_updated": "2024-05-01T12:34:56Z"},
        *({"name": name} for name in (None, 7, ["1.0.4"], "", "a b", "x" * 129, "-1", "1\n", "é")),
        *(None, 7, "1.0.4x ", [], {}, True),
        *({"name": f"2.0.{n}", "last_updated": date} for n, date in enumerate(odd_dates)),
    ]
    noon = datetime(2024, 5, 1, 12, 34, 56, tzinfo=UTC)
    dated = [
        Tag("1.0.0", noon.replace(microsecond=123456)),
        Tag("1.0.1", noon.replace(hour=10, microsecond=123456)),
        Tag("1.0.2", noon),
        Tag("1.0.3"),
    ]
    undated = [Tag(f"2.0.{number}") for number in range(len(odd_dates))]
    fetched = [tag for tag in (await fetch(hub)).tags if tag.name != "1.0.4x "]
    assert fetched == [*dated, *undated]


REFUSALS = {
    "too many requests": (refuse(429, retry_after="60"), "HTTP 429 and wants not to be", 60),
    "too many, without a time": (refuse(429), "HTTP 429.", 0),
    "unavailable": (refuse(503, retry_after="7"), "HTTP 503", 7),
    "broken": (refuse(500), "HTTP 500.", 0),
    "no such repository": (refuse(404), "no such repository", 0),
    "unauthorized": (refuse(401), "HTTP 401", 0),
    "created": (refuse(201), "HTTP 201", 0),
    "a redirect": (hubs.redirect("http://elsewhere.example/"), "sends elsewhere (HTTP 302)", 0),
    "HTML": (hubs.html, "no JSON", 0),
    "no JSON": (say("{"), "no JSON", 0),
    "too deep": (say("[" * 100_000), "no JSON", 0),
    "no UTF-8": (say(b'{"results": ["\xff"]}'), "no JSON", 0),
    "a list": (say("[]"), "no list of tags", 0),
    "no results": (say('{"next": null}'), "no list of tags", 0),
    "results of another kind": (say('{"results": {}}'), "no list of tags", 0),
    "packed": (say(b"\x1f\x8b", content_encoding="gzip"), "an encoding", 0),
    "10 MB": (hubs.huge(), "more than 2097152 bytes", 0),
    "10 MB without a length": (hubs.huge(has_length=False), "more than 2097152 bytes", 0),
    "cut off": (hubs.cut, "broke off", 0),
    "closed": (hubs.drop, "broke off", 0),
}


@pytest.mark.parametrize(("answer", "words", "seconds"), REFUSALS.values(), ids=REFUSALS)
async def test_an_answer_that_is_no_list_is_one_sentence(
    hub: FakeHub, answer: Handler, words: str, seconds: float
) -> None:
    hub.script(answer)
    problem = await refused(hub)
    assert words in problem.message
    assert problem.retry_after_seconds == seconds
    assert await names(hub) == ["1.1.0", "1.0.0"]


async def test_a_page_of_almost_two_megabytes_is_read(hub: FakeHub) -> None:
    hub.script(hubs.huge(dockerhub.MAX_PAGE_BYTES))
    assert await names(hub) == ["1.2.3"]


@pytest.mark.parametrize(("answer", "words", "seconds"), REFUSALS.values(), ids=REFUSALS)
async def test_a_later_page_that_fails_makes_the_whole_fetch_fail(
    hub: FakeHub, answer: Handler, words: str, seconds: float
) -> None:
    hub.script(page(versions(100), f"{TAGS}?page=2"), answer)
    assert words in (await refused(hub)).message


@pytest.mark.looptime
@pytest.mark.parametrize("answer", [hubs.hang, hubs.trickle, hubs.slow(11, page(["1.1.0"]))])
async def test_a_request_takes_ten_seconds_at_most(
    hub: FakeHub, answer: Handler, looptime: float
) -> None:
    hub.script(answer)
    assert "within 10 seconds" in (await refused(hub)).message
    assert looptime == pytest.approx(10, abs=0.1)


@pytest.mark.looptime
async def test_the_time_is_each_pages_own(hub: FakeHub, looptime: float) -> None:
    first = hubs.slow(9, page(["1.1.0"], f"{TAGS}?page=2"))
    hub.script(first, hubs.slow(9, page(["1.0.0"])))
    assert await names(hub) == ["1.1.0", "1.0.0"]
    assert looptime == pytest.approx(18, abs=0.1)


async def test_an_address_where_nobody_listens_cannot_be_reached(hub: FakeHub) -> None:
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    hub.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()
    await server.wait_closed()
    assert "cannot be reached: " in (await refused(hub)).message


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("HTTP_PROXY", "nonsense://user:secret-word@proxy.example"),
        ("HTTP_PROXY", "socks5://user:secret-word@proxy.example"),
        ("SSL_CERT_FILE", "/nowhere/secret-word.pem"),
    ],
)
async def test_an_unusable_environment_is_a_sentence_without_its_values(
    hub: FakeHub, variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    message = (await refused(hub)).message
    assert "that the environment names" in message
    assert "secret-word" not in message


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("60", 60),
        (" 60 ", 60),
        ("0", 0),
        ("999999999", 86_400),
        ("9" * 5000, 86_400),
        ("Thu, 01 Jan 2026 00:01:00 GMT", 60),
        ("Wed, 31 Dec 2025 23:59:00 GMT", 0),
        ("Fri, 01 Jan 2027 00:00:00 GMT", 86_400),
        ("Thu, 01 Jan 2026 00:01:00", 60),
        ("Thu, 01 Jan 2026 00:01:00 -0000", 60),
        ("Fri, 31 Dec 9999 23:59:59 -2359", 86_400),
        ("-5", 0),
        ("1.5", 0),
        ("1e3", 0),
        ("soon", 0),
        ("", 0),
        ("\u0661", 0),
    ],
)
def test_retry_after_is_seconds_or_a_date_and_a_day_at_most(header: str, seconds: float) -> None:
    assert retry_after_seconds(header, NOW) == seconds
