"""A client of Docker Hub's list of tags: bounded in time, size and number, and wary of the data.

It reads and keeps nothing else. What the address answers is foreign: messages name the address and
what is wrong, and repeat nothing of the answer.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any

import httpx
import orjson

from catalog.tags import Tag
from telorunner.errors import RunnerError
from telorunner.values.image import is_tag, parse_image

REQUEST_SECONDS = 10.0
PAGE_TAGS = 100
MAX_TAGS = 200
# Two full pages are enough; pages may be short, or even empty, before the end.
MAX_PAGES = 5
# A page of 100 tags of many platforms each is about half of it.
MAX_PAGE_BYTES = 2 * 2**20
MAX_RETRY_AFTER_SECONDS = 86_400.0
MAX_ETAG_LENGTH = 256
MAX_DETAIL_LENGTH = 120

_HEADERS = {
    "Accept": "application/json",
    # NB: what is packed could unpack to any size.
    "Accept-Encoding": "identity",
    "User-Agent": "telorunner",
}
# Docker Hub began in 2013: what is older, such as the year 1 that Go writes, is no date of a tag.
_EARLIEST = datetime(2013, 1, 1, tzinfo=UTC)


class HubUnavailable(RunnerError):
    """The list of tags cannot be fetched."""

    is_retryable = True

    def __init__(self, message: str = "", *, retry_after_seconds: float = 0.0) -> None:
        """Keep how long the address wants not to be asked again; 0: it did not say."""
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


@dataclass(frozen=True)
class Fetched:
    """The tags in Docker Hub's order, each name once, and the first page's ETag."""

    tags: tuple[Tag, ...]
    etag: str = ""


@dataclass(frozen=True)
class _Page:
    results: list[Any]
    following: str
    etag: str


async def fetch_tags(base_url: str, repository: str, *, etag: str = "") -> Fetched | None:
    """Fetch the newest tags of a repository; None: the list that had this ETag is still the one.

    One page that fails makes the whole fetch fail: half of a list would take the other half from
    the offer. A `next` that leads to another origin, or to where it has been, ends the list.

    The ETag is that of the first page alone, which has the newest tags and the number of all.

    Raises:
        HubUnavailable: There was no answer in time, or none that is a list of tags.

    Source: https://docs.docker.com/reference/api/hub/latest/ (list repository tags).
    """
    path = f"/v2/repositories/{parse_image(repository).repository}/tags"
    first = f"{base_url.rstrip('/')}{path}?page_size={PAGE_TAGS}"
    address, seen, found = first, set[str](), dict[str, Tag]()
    new_etag = ""
    with _translated(base_url):
        async with httpx.AsyncClient(headers=_HEADERS, timeout=REQUEST_SECONDS) as client:
            while address and address not in seen and len(seen) < MAX_PAGES:
                seen.add(address)
                async with asyncio.timeout(REQUEST_SECONDS):
                    page = await _fetch_page(
                        client, address, base_url, etag if address == first else ""
                    )
                if page is None:
                    return None
                if address == first:
                    new_etag = page.etag
                for tag in _tags(page.results):
                    found.setdefault(tag.name, tag)
                is_enough = len(found) >= MAX_TAGS
                address = "" if is_enough else _following(address, page.following)
    return Fetched(tuple(found.values())[:MAX_TAGS], new_etag)


async def _fetch_page(
    client: httpx.AsyncClient, address: str, base_url: str, etag: str
) -> _Page | None:
    headers = {"If-None-Match": etag} if etag else {}
    async with client.stream("GET", address, headers=headers) as response:
        if etag and response.status_code == HTTPStatus.NOT_MODIFIED:
            return None
        if response.status_code != HTTPStatus.OK:
            raise _refusal(response, base_url)
        body = await _read(response, base_url)
        etag = response.headers.get("ETag", "")
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError as exc:
        raise HubUnavailable(f"{base_url} answered with something that is no JSON.") from exc
    results = answer.get("results") if isinstance(answer, dict) else None
    if not isinstance(results, list):
        raise HubUnavailable(f"{base_url} answered with something that is no list of tags.")
    following = answer.get("next")
    is_usable = len(etag) <= MAX_ETAG_LENGTH and etag.isascii() and etag.isprintable()
    return _Page(
        results, following if isinstance(following, str) else "", etag if is_usable else ""
    )


async def _read(response: httpx.Response, base_url: str) -> bytes:
    if response.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise HubUnavailable(f"{base_url} answered in an encoding that was not asked for.")
    body = bytearray()
    async for piece in response.aiter_raw():
        body += piece
        if len(body) > MAX_PAGE_BYTES:
            raise HubUnavailable(f"{base_url} answered with more than {MAX_PAGE_BYTES} bytes.")
    return bytes(body)


def _refusal(response: httpx.Response, base_url: str) -> HubUnavailable:
    status = response.status_code
    seconds = retry_after_seconds(response.headers.get("Retry-After", ""), datetime.now(UTC))
    if response.has_redirect_location:
        return HubUnavailable(f"{base_url} sends elsewhere (HTTP {status}), which is not followed.")
    if status == HTTPStatus.NOT_FOUND:
        return HubUnavailable(f"{base_url} has no such repository, or it is private (HTTP 404).")
    wish = f" and wants not to be asked for {seconds:.0f} s" if seconds else ""
    message = f"{base_url} answered with HTTP {status}{wish}."
    return HubUnavailable(message, retry_after_seconds=seconds)


def retry_after_seconds(header: str, now: datetime) -> float:
    """Return the seconds that a Retry-After asks for, a day at most; 0: it cannot be read.

    Source: https://www.rfc-editor.org/rfc/rfc9110#section-10.2.3 (seconds, or a date).
    """
    text = header.strip()
    if text.isascii() and text.isdigit():
        # Longer ones are a day anyway, and int() refuses the longest.
        return min(float(text[:20]), MAX_RETRY_AFTER_SECONDS)
    try:
        until = parsedate_to_datetime(text)
        seconds = (until if until.tzinfo else until.replace(tzinfo=UTC)) - now
    except (ValueError, OverflowError):
        return 0.0
    return min(max(seconds.total_seconds(), 0.0), MAX_RETRY_AFTER_SECONDS)


def _tags(results: list[Any]) -> Iterator[Tag]:
    """Take what is a tag; whatever else stands there is left out."""
    for item in results:
        name = item.get("name") if isinstance(item, dict) else None
        if isinstance(name, str) and is_tag(name):
            yield Tag(name, _moment(item.get("last_updated")))


def _moment(text: object) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text if isinstance(text, str) else "")
        moment = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
    return moment if moment >= _EARLIEST else None


def _following(address: str, link: str) -> str:
    """Return the next page's address; empty: there is none on the same origin."""
    try:
        # Without its fragment, which would make the same page look like another.
        target = httpx.URL(address).join(link).copy_with(fragment=None)
        is_same = _origin(target) == _origin(httpx.URL(address)) and not target.userinfo
    except (httpx.InvalidURL, ValueError):
        # NB: what is wrong with a host's name, as in `http://xn--/`, is found where it is read.
        return ""
    return str(target) if link and is_same else ""


def _origin(address: httpx.URL) -> tuple[str, str, int | None]:
    return address.scheme, address.host, address.port


@contextmanager
def _translated(base_url: str) -> Iterator[None]:
    """Turn every failure on the way into one sentence."""
    try:
        yield
    except (TimeoutError, httpx.TimeoutException) as exc:
        raise HubUnavailable(
            f"{base_url} did not answer within {REQUEST_SECONDS:.0f} seconds."
        ) from exc
    except httpx.ConnectError as exc:
        detail = "".join(char for char in str(exc) if char.isprintable())[:MAX_DETAIL_LENGTH]
        raise HubUnavailable(f"{base_url} cannot be reached: {detail or 'no reason'}.") from exc
    except httpx.HTTPError as exc:
        # Its text may quote what was sent.
        raise HubUnavailable(
            f"{base_url} broke off, or its answer is no HTTP ({type(exc).__name__})."
        ) from exc
    except (httpx.InvalidURL, ValueError, ImportError, OSError) as exc:
        # A proxy that the environment names may have a password in its URL.
        raise HubUnavailable(
            f"{base_url} cannot be asked: a proxy or certificates that the environment names "
            "cannot be used."
        ) from exc
