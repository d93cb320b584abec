"""Foreign sentences, as clients may read them: what helps stays, what is the operator's goes."""

import time
from typing import Any

import pytest

from sessions.pods import failures, wording
from sessions.pods.wording import told
from tests.unit.pods import condition, pod, running, terminated, waiting

POD = pod(node="ip-10-1-2-3.internal", metadata={"namespace": "telo-sessions"})


@pytest.mark.parametrize(
    ("said", "read"),
    [
        (
            'failed to do request: Head "https://mirror.corp:5000/v2/x?token=s3cret": EOF',
            'failed to do request: Head "…": EOF',
        ),
        (
            "Get https://user:pass@auth.corp/token?scope=a&k=b: unauthorized",
            "Get … unauthorized",
        ),
        ("GET=https://mirror.corp/v2 and 1https://x/y", "GET=… and …"),
        ("dial tcp 10.0.0.7:5000: i/o timeout", "dial tcp …: i/o timeout"),
        ("dial tcp [fd00::7]:443: refused", "dial tcp …: refused"),
        ("lookup docker.io: no such host", "lookup docker.io: no such host"),
        (
            'image "ghcr.io/telo/node:1.2.3": not found',
            'image "ghcr.io/telo/node:1.2.3": not found',
        ),
        (
            'open /var/lib/kubelet/pods/1/volumes/x: no such file; exec "/app/main.sh"',
            'open …: no such file; exec "/app/main.sh"',
        ),
        (
            "Node ip-10-1-2-3.internal which was running pod x is unresponsive",
            "Node … which was running pod x is unresponsive",
        ),
        (
            "couldn't find key a in ConfigMap telo-sessions/settings",
            "couldn't find key a in ConfigMap settings",
        ),
        ('not found in namespace "telo-sessions"', "not found in namespace …"),
        (
            "0/3 nodes are available: 1 node(s) had untolerated taint {team: secret-project}, 2 "
            "Insufficient memory. preemption: 0/3 nodes are available: 3 No preemption victims.",
            "0/3 nodes are available: 1 node(s) had untolerated taint, 2 Insufficient memory.",
        ),
        (
            "1 node(s) had untolerated taint {node.kubernetes.io/disk-pressure: }",
            "1 node(s) had untolerated taint {node.kubernetes.io/disk-pressure: }",
        ),
        (
            "failed to create containerd task: failed to create shim task: OCI runtime create "
            'failed: runc create failed: unable to start container process: exec: "x": permission '
            "denied",
            'exec: "x": permission denied',
        ),
        ("one\n  two\tthree", "one two three"),
        ("", ""),
    ],
)
def test_what_is_internal_is_hidden_and_the_rest_stays(said: str, read: str) -> None:
    assert told(POD, said) == read


def test_a_foreign_sentence_is_cut_before_advice_follows() -> None:
    blocked = failures.block(pod("Pending", waiting("InvalidImageName", "x" * 2000)))
    assert blocked is not None
    assert blocked.message == (
        'container "session" cannot start: InvalidImageName: '
        + "x" * 500
        + "; check the image's name"
    )


@pytest.mark.parametrize("piece", ["a", " ", "\n", "1.", "/a", "[:", "taint {", "(pod: "])
def test_a_long_sentence_takes_no_time_whatever_it_is_made_of(piece: str) -> None:
    """Patterns that begin again at each character would take many seconds."""
    began_at = time.perf_counter()
    assert len(told(POD, piece * (100_000 // len(piece)))) <= 500
    assert time.perf_counter() - began_at < 1


def test_a_sentence_that_ends_with_a_stop_goes_on_with_advice() -> None:
    assert wording.advised("It is full. ", "ask for less") == "It is full; ask for less"
    assert wording.advised("It is full.", "") == "It is full."


def test_what_an_application_wrote_itself_is_passed_on() -> None:
    """It is its own output: addresses in it are none of the operator's."""
    said = "cannot connect to http://10.0.0.9:8080/health"
    ended = failures.outcome(pod("Failed", terminated(1, message=said)))
    assert ended is not None
    assert ended.message == f'container "session" failed: Error (exit code 1): {said}'


@pytest.mark.parametrize(
    "seen",
    [
        pod("Pending", waiting("CreateContainerConfigError", "see http://10.0.0.9/a?token=s3cret")),
        pod("Failed", terminated(128, "StartError", message="see http://10.0.0.9/a?token=s3cret")),
        pod("Failed", running(), reason="Evicted", message="see http://10.0.0.9/a?token=s3cret"),
        pod(
            "Failed",
            running(),
            conditions=[condition("DisruptionTarget", message="http://10.0.0.9/a?token=s3cret")],
        ),
    ],
    ids=["wait", "start", "eviction", "disruption"],
)
def test_a_url_in_any_foreign_sentence_is_hidden(seen: dict[str, Any]) -> None:
    ended, blocked = failures.outcome(seen), failures.block(seen)
    message = (ended or blocked or failures.Block("", is_hopeless=False)).message or ""
    assert "…" in message
    assert "s3cret" not in message
    assert "10.0.0.9" not in message
