import orjson
import pytest

from telorunner.errors import (
    ClusterError,
    ClusterUnavailable,
    Forbidden,
    NamespaceNotFound,
    NotReady,
    ObjectNotFound,
    PodSecurityRefused,
    QuotaExceeded,
    Unauthorized,
)
from telorunner.kube.errors import describe, from_exception, from_status

OPERATION = "create: could not create the session pod"
RBAC = (
    'pods is forbidden: User "system:serviceaccount:telo:runner" cannot create resource "pods" '
    'in API group "" in the namespace "sessions"'
)
QUOTA = "pods telo-run-1 is forbidden: exceeded quota: q, requested: pods=1, used: pods=1"
SECURITY = 'pods "a" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true'
WEBHOOK = 'admission webhook "policy.example" denied the request: no'
RUNTIME_CLASS = 'pods "a" is forbidden: pod rejected: RuntimeClass "gvisor" not found'
ACCOUNT = (
    'pods "a" is forbidden: error looking up service account sessions/default: '
    'serviceaccount "default" not found'
)


def status(code: int, reason: str, message: str) -> bytes:
    return orjson.dumps({"kind": "Status", "code": code, "reason": reason, "message": message})


@pytest.mark.parametrize(
    ("message", "expected", "sentence"),
    [
        (
            RBAC,
            Forbidden,
            f"{OPERATION}: the runner is not permitted to do this (Forbidden, HTTP 403). "
            "The cluster operator must check the runner's RBAC, and that the session namespace "
            "(RUNNER_SESSION_NAMESPACE) exists.",
        ),
        (
            QUOTA,
            QuotaExceeded,
            f"{OPERATION}: the session namespace's resource quota is exhausted "
            "(Forbidden, HTTP 403).",
        ),
        (
            SECURITY,
            PodSecurityRefused,
            f"{OPERATION}: the session namespace's Pod Security level refuses this pod "
            "(Forbidden, HTTP 403).",
        ),
        (
            WEBHOOK,
            ClusterError,
            f"{OPERATION}: the Kubernetes API rejected the request (Forbidden, HTTP 403).",
        ),
        *(
            (
                message,
                ClusterError,
                f"{OPERATION}: the Kubernetes API rejected the request (Forbidden, HTTP 403).",
            )
            for message in (RUNTIME_CLASS, ACCOUNT)
        ),
    ],
)
def test_the_causes_of_403_are_told_apart(
    message: str, expected: type[ClusterError], sentence: str
) -> None:
    failure = from_status(403, status(403, "Forbidden", message))
    assert type(failure) is expected
    assert describe(failure, OPERATION) == sentence


def test_a_namespace_that_does_not_exist_is_told_as_such() -> None:
    body = status(404, "NotFound", 'namespaces "sessions" not found')
    failure = from_status(404, body, "POST /api/v1/namespaces/sessions/pods")
    assert type(failure) is NamespaceNotFound
    assert describe(failure, OPERATION) == (
        f"{OPERATION}: the Kubernetes API rejected the request: the session namespace does not "
        "exist (NotFound, HTTP 404). The cluster operator must create it, or correct "
        "RUNNER_SESSION_NAMESPACE."
    )


def test_an_object_that_does_not_exist_is_no_missing_namespace() -> None:
    body = status(404, "NotFound", 'pods "namespaces" not found')
    assert type(from_status(404, body)) is ObjectNotFound


def test_a_pod_that_its_kubelet_does_not_know_yet_is_no_missing_pod() -> None:
    text = "the server could not find the requested resource ( pods/log telo-run-1)"
    failure = from_status(404, status(404, "NotFound", text))
    assert type(failure) is NotReady
    assert failure.is_retryable
    # What no API server serves has no such place.
    unserved = status(404, "NotFound", "the server could not find the requested resource")
    assert type(from_status(404, unserved)) is ObjectNotFound


@pytest.mark.parametrize(
    "body", [b"", b"404 page not found\n", b"<html>Not found</html>", b'{"error": "no route"}']
)
def test_a_404_that_is_not_the_apis_says_nothing_of_an_object(body: bytes) -> None:
    failure = from_status(404, body)
    assert type(failure) is ClusterUnavailable
    assert failure.is_retryable
    # A handshake tells its status only.
    assert type(from_status(404, None)) is ObjectNotFound


def test_what_is_too_large_for_etcd_is_not_tried_again() -> None:
    message = "etcdserver: request is too large"
    failure = from_status(500, status(500, "InternalError", message))
    assert type(failure) is ClusterError
    assert not failure.is_retryable


def test_refused_credentials_are_a_matter_of_rbac() -> None:
    failure = from_status(401, b"")
    assert isinstance(failure, Unauthorized)
    assert "not permitted to do this (Unauthorized, HTTP 401)" in describe(failure, OPERATION)


def test_no_answer_has_no_status_in_its_sentence() -> None:
    failure = from_exception(TimeoutError())
    assert describe(failure, OPERATION) == f"{OPERATION}: the Kubernetes API cannot be reached."


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("1", 1.0),
        ("", 0.0),
        ("86400", 30.0),
        ("-1", 0.0),
        ("1.5", 0.0),
        ("²", 0.0),
        ("Fri, 31 Dec 1999 23:59:59 GMT", 0.0),
    ],
)
def test_a_pause_that_is_asked_for_is_known_within_reason(header: str, seconds: float) -> None:
    body = status(429, "TooManyRequests", "slow down")
    assert from_status(429, body, retry_after=header).retry_after_seconds == seconds
    assert from_status(429, body).retry_after_seconds == 0.0


def test_an_answer_of_the_server_is_no_unreachable_server() -> None:
    failure = from_status(500, status(500, "InternalError", "etcd is unhappy"))
    assert isinstance(failure, ClusterUnavailable)
    assert describe(failure, OPERATION) == (
        f"{OPERATION}: the Kubernetes API rejected the request (InternalError, HTTP 500)."
    )


@pytest.mark.parametrize("message", [RBAC, QUOTA, SECURITY, WEBHOOK, "audit-id 12345"])
def test_the_status_message_reaches_the_log_and_no_client(message: str) -> None:
    failure = from_status(403, status(403, "Forbidden", message), "POST /api/v1/pods")
    shown = f"{failure} {failure.message} {failure.body()} {describe(failure, OPERATION)}"
    assert message[:20] not in shown
    assert message[:60] in str(failure.__cause__)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>Forbidden by proxy</html>",
        b"\xff\xfe",
        b"[1]",
        b"null",
        b'{"reason": 7, "message": [], "details": null}',
        b'{"reason": "Forbidden: user x of token y"}',
    ],
)
def test_any_body_is_understood_by_its_http_status(body: bytes) -> None:
    failure = from_status(403, body)
    assert isinstance(failure, Forbidden)
    assert failure.reason == "Forbidden"


def test_a_foreign_text_is_cut_for_the_log() -> None:
    failure = from_status(502, b"<html>\n" + b"x" * 100_000)
    assert len(str(failure.__cause__)) < 300
    assert "\n" not in str(failure.__cause__)
