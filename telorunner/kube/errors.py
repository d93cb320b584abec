"""Translates what the Kubernetes API answers, or fails to answer, into the `ClusterError` tree.

This is the one place that reads a Status object or a network exception. The Status message decides
which error it is and goes to the log; it never enters an error's own message, because those are
shown to clients.
"""

import re
from typing import Any

import orjson

from telorunner.errors import (
    AlreadyExists,
    ClusterError,
    ClusterUnavailable,
    Conflict,
    Forbidden,
    NamespaceNotFound,
    NotReady,
    ObjectNotFound,
    PodSecurityRefused,
    QuotaExceeded,
    ResourceExpired,
    Unauthorized,
)

# Enough of a foreign text to recognise it in the log, too little to flood it.
LOGGED_TEXT_CHARACTERS = 256
# An API server that is flooded asks for a few seconds; whoever asks for more is asked sooner.
LONGEST_RETRY_AFTER_SECONDS = 30.0

# A `reason` is one CamelCase word; anything else in its place is not repeated to clients.
# Source: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/status/
_REASON = re.compile(r"[A-Za-z]{1,64}")

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}

# Refusals with 403 that come from admission, not from RBAC: limit ranges, webhooks, admission
# policies, quotas that want a value, a namespace that is going away, a runtime class or a service
# account that is not there.
_ADMISSION = re.compile(
    r"admission webhook|denied request|denied the request|failed quota|usage per |"
    r"limit to request ratio|being terminated|pod rejected: |looking up service account "
)


# What an API server says of a namespace that something was to be made in.
_NO_NAMESPACE = re.compile(r'namespaces "[^"]*" not found')
# What it says where a kubelet does not know a pod that is there: it has not heard of it yet, or has
# forgotten it already.
_UNKNOWN_TO_KUBELET = "the server could not find the requested resource ("


def from_status(
    http_status: int,
    body: bytes | dict[str, Any] | None,
    operation: str = "",
    *,
    retry_after: str = "",
) -> ClusterError:
    """Return the error for an answer that is not 2xx.

    Args:
        http_status: The HTTP status, or the `code` of a Status that came as a watch event.
        body: A Status, as bytes or parsed. Anything else (HTML of a proxy, nothing) is allowed;
            None: it is not known.
        operation: What was asked for, such as `create pods`; chained for the log.
        retry_after: The value of the header of that name.
    """
    status = _parse(body)
    word = status.get("reason")
    is_word = isinstance(word, str) and _REASON.fullmatch(word)
    reason = str(word) if is_word else _REASONS.get(http_status, "")
    text = status.get("message")
    text = text if isinstance(text, str) else ""
    is_of_api = body is None or status.get("kind") == "Status"
    failure = _class_of(http_status, reason, text, is_of_api=is_of_api)(
        status=http_status, reason=reason, retry_after_seconds=_seconds(retry_after)
    )
    failure.__cause__ = _Answer(operation, http_status, text or _excerpt(body))
    return failure


def from_exception(exc: BaseException) -> ClusterError:
    """Return the error for a request that got no usable answer: network, TLS, time-out, HTML."""
    if isinstance(exc, ClusterError):
        return exc
    failure = ClusterUnavailable()
    failure.__cause__ = exc
    return failure


def describe(failure: ClusterError, operation: str) -> str:
    """Return the sentence that a client may read.

    Args:
        failure: What the cluster answered.
        operation: The operation and what it was for: `create: could not create the session pod`.
    """
    words, advice = _explain(failure)
    return f"{operation}: {words}.{advice}"


def cause(failure: ClusterError) -> str:
    """Return what was in the way, in words that may follow `because`."""
    words, _ = _explain(failure)
    return words


def _explain(failure: ClusterError) -> tuple[str, str]:
    """Return what was in the way, and what else is to be said of it as sentences of their own."""
    if failure.status is None:
        return "the Kubernetes API cannot be reached", ""
    words, advice = "the Kubernetes API rejected the request", ""
    if isinstance(failure, NamespaceNotFound):
        words = f"{words}: the session namespace does not exist"
        advice = " The cluster operator must create it, or correct RUNNER_SESSION_NAMESPACE."
    elif isinstance(failure, QuotaExceeded):
        words = "the session namespace's resource quota is exhausted"
    elif isinstance(failure, PodSecurityRefused):
        words = "the session namespace's Pod Security level refuses this pod"
    elif isinstance(failure, Forbidden):
        # A namespace that does not exist has no Role either: the API answers the same.
        words = "the runner is not permitted to do this"
        advice = (
            " The cluster operator must check the runner's RBAC, and that the session namespace "
            "(RUNNER_SESSION_NAMESPACE) exists."
        )
    elif isinstance(failure, Unauthorized):
        words = "the runner is not permitted to do this"
        advice = " The cluster operator must check the runner's RBAC."
    facts = f"HTTP {failure.status}"
    if failure.reason:
        facts = f"{failure.reason}, {facts}"
    return f"{words} ({facts})", advice


class NotKubernetesError(Exception):
    """Something that is not the Kubernetes API answered."""


class _Answer(Exception):
    """The raw answer, kept as the cause of an error so that the log has it and clients do not."""

    def __init__(self, operation: str, http_status: int, text: str) -> None:
        super().__init__(f"{operation or 'request'}: HTTP {http_status}: {cut(text)}")


def cut(text: str) -> str:
    """Return a foreign text short enough for the log, on one line."""
    return " ".join(text[:LOGGED_TEXT_CHARACTERS].split())


def _parse(body: bytes | dict[str, Any] | None) -> dict[str, Any]:
    if body is None or isinstance(body, dict):
        return body or {}
    try:
        status = orjson.loads(body)
    except ValueError:
        return {}
    return status if isinstance(status, dict) else {}


def _seconds(retry_after: str) -> float:
    """Return how long not to ask again; a date, which no API server sends, is taken for nothing."""
    # NB: `isdigit` alone takes digits that `int` does not.
    if not (retry_after.isascii() and retry_after.isdigit()):
        return 0.0
    return min(float(retry_after), LONGEST_RETRY_AFTER_SECONDS)


def _excerpt(body: bytes | dict[str, Any] | None) -> str:
    if body is None or isinstance(body, dict):
        return ""
    return body[: 4 * LOGGED_TEXT_CHARACTERS].decode("utf-8", "replace")


def _class_of(http_status: int, reason: str, text: str, *, is_of_api: bool) -> type[ClusterError]:
    if http_status == 403:
        return _class_of_refusal(text)
    if http_status == 404:
        if not is_of_api:
            # The page of a proxy or a gateway that has lost its way to the API: it says nothing of
            # the object, and a session that believed it would be ended.
            return ClusterUnavailable
        if text.startswith(_UNKNOWN_TO_KUBELET):
            return NotReady
        return NamespaceNotFound if _NO_NAMESPACE.fullmatch(text) else ObjectNotFound
    if http_status == 409:
        return AlreadyExists if reason == "AlreadyExists" else Conflict
    if http_status == 429 or http_status >= 500:
        # What is too large for etcd stays so, and each attempt counts against a quota.
        return ClusterError if "request is too large" in text else ClusterUnavailable
    return {401: Unauthorized, 410: ResourceExpired}.get(http_status, ClusterError)


def _class_of_refusal(text: str) -> type[ClusterError]:
    if "exceeded quota" in text:
        return QuotaExceeded
    if "violates PodSecurity" in text:
        return PodSecurityRefused
    return ClusterError if _ADMISSION.search(text) else Forbidden
