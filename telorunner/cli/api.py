"""The runner's plain requests: what it offers, create, stop; its errors as sentences.

Streams and sockets are ``stream``'s.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx

from telorunner.cli.failures import ClientFailure

CONNECT_SECONDS = 10.0
REQUEST_SECONDS = 60.0
TERMS_HEADER = "x-telo-accepted-terms"
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class RunnerApi:
    """One runner's ``/v1``; ``client`` is shared with the event stream."""

    def __init__(self, client: httpx.AsyncClient, url: str) -> None:
        self.client = client
        self.url = url

    async def default_image(self) -> str:
        """Return the image that the runner offers by default.

        Raises:
            ClientFailure: it does not say.
        """
        answer = await self._request("GET", "/v1/capabilities")
        try:
            image = answer["config"]["schema"]["properties"]["image"]["default"]
        except (KeyError, TypeError):
            image = None
        if not isinstance(image, str):
            raise ClientFailure("the runner names no default image: give one with --image")
        return image

    async def create(self, body: Mapping[str, Any], accepted_terms: str | None) -> str:
        """Start a session and return its id.

        Raises:
            ClientFailure: the runner refuses it, with its reasons.
        """
        headers = {TERMS_HEADER: accepted_terms} if accepted_terms is not None else {}
        answer = await self._request("POST", "/v1/sessions", json=body, headers=headers)
        session_id = answer.get("sessionId")
        if not isinstance(session_id, str) or not session_id.isalnum():
            raise ClientFailure(f"{self.url} is no runner: it names no session")
        return session_id

    async def stop(self, session_id: str) -> None:
        """Ask for the end of a session.

        Raises:
            ClientFailure: the runner did not take it.
        """
        await self._request("DELETE", f"/v1/sessions/{session_id}")

    async def _request(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        try:
            response = await self.client.request(method, path, **options)
        except httpx.HTTPError as exc:
            reason = str(exc) or type(exc).__name__
            raise ClientFailure(f"cannot reach the runner at {self.url}: {reason}") from exc
        answer = _json(response)
        if response.is_success and (answer is not None or not response.content):
            return answer or {}
        raise refusal(response.status_code, answer)


@asynccontextmanager
async def open_api(url: str) -> AsyncIterator[RunnerApi]:
    """Open a runner's API at a base URL.

    Raises:
        ClientFailure: it is no http or https URL.
    """
    base = url.rstrip("/")
    try:
        parts = urlsplit(base)
        # Whether the port is one is known only when it is read.
        is_usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        httpx.URL(base)
    except (ValueError, httpx.InvalidURL):
        is_usable = False
    if not is_usable:
        raise ClientFailure(f"{url} is no http or https URL")
    async with httpx.AsyncClient(
        base_url=base,
        timeout=httpx.Timeout(REQUEST_SECONDS, connect=CONNECT_SECONDS),
        # A proxy's own machine is not the one meant by a loopback address.
        trust_env=parts.hostname not in LOOPBACK,
    ) as client:
        yield RunnerApi(client, base)


def refusal(status: int, answer: Mapping[str, Any] | None) -> ClientFailure:
    """Return an error answer as the sentences that a user needs to mend it."""
    if answer is None or not isinstance(answer.get("message"), str):
        return ClientFailure(f"the runner answered HTTP {status}")
    lines = [answer["message"]]
    for issue in answer.get("issues") or ():
        if isinstance(issue, dict):
            lines.append(f"  {issue.get('path') or '/'}: {issue.get('message')}")
    terms = answer.get("terms")
    if status == 428 and isinstance(terms, dict):
        lines += ["", str(terms.get("title")), "", *str(terms.get("body")).splitlines(), ""]
        lines.append(f"To accept them, add --accept-terms {terms.get('version')}")
    return ClientFailure(*lines)


def _json(response: httpx.Response) -> dict[str, Any] | None:
    try:
        answer = response.json()
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None
