"""The issues of a refused body: complete, bounded, in words for clients, and cheap to find."""

import re
import time
from typing import Any

import pytest

from sessions.requests import parse_create, parse_probe
from sessions.requests.parsing import MAX_ISSUES
from telorunner.errors import InvalidRequest
from tests.builders import ENTRY, IMAGE, create_body, make_bundle

APP = {"name": "web", "entryRelativePath": ENTRY}
FILE = {"relativePath": ENTRY, "contents": ""}
CONFIG = {"image": IMAGE, "pullPolicy": "missing"}
# Names out of the code, and words of Python's types.
INTERNAL = re.compile(
    r"pydantic|python|[Ii]nput|unicode|dictionary|\bdict\b|\bint\b|\bstr\b|\bbool\b|\blist\b|tuple"
    r"|[a-z]_[a-z]|instance|CreateSession|BundleFile|AppDeclaration|Error"
)


def issues(body: Any) -> list[dict[str, str]]:
    with pytest.raises(InvalidRequest) as refused:
        parse_create(body)
    listed: list[dict[str, str]] = refused.value.fields["issues"]
    assert refused.value.message == "The request body is not valid."
    for issue in listed:
        assert set(issue) == {"path", "message"}
    return listed


def of_files(*files: Any) -> dict[str, Any]:
    return create_body(bundle={"entryRelativePath": ENTRY, "files": list(files)})


@pytest.mark.parametrize(
    ("body", "path", "message"),
    [
        (create_body(bundle=1), "/bundle", "must be an object"),
        (create_body(env=[]), "/env", "must be an object"),
        (create_body(ports={}), "/ports", "must be an array"),
        (of_files({**FILE, "contents": 1}), "/bundle/files/0/contents", "must be a string"),
        (of_files({**FILE, "contents": "\0"}), "/bundle/files/0/contents",
         "holds a NUL: send it as base64"),
        (of_files({**FILE, "contents": "!", "encoding": "base64"}), "/bundle/files/0/contents",
         "is not base64"),
        (of_files({**FILE, "encoding": "hex"}), "/bundle/files/0/encoding",
         "must be 'utf8' or 'base64'"),
        (of_files({"contents": ""}), "/bundle/files/0/relativePath", "is required"),
        (create_body(env={"A": None}), "/env/A", "A: must be a string"),
        (create_body(env={"A": "a\0"}), "/env/A", "A: the value holds a NUL"),
        (create_body(env={"A": "\ud800"}), "/env/A", "A: holds half of a surrogate pair"),
        (create_body(env={"a b": ""}), "/env/a b",
         "a b: the name must match [-._a-zA-Z][-._a-zA-Z0-9]*"),
        (create_body(env={"x" * 300: ""}), "/env/" + "x" * 256,
         "x" * 256 + ": the name has more than 256 characters"),
        (create_body(env={"A": "v" * 131_072}), "/env/A",
         "A: name and value together must be under 128 KiB"),
        (create_body(env={"~a/b": ""}), "/env/~0a~1b",
         "~a/b: the name must match [-._a-zA-Z][-._a-zA-Z0-9]*"),
        (create_body(config={**CONFIG, "image": ""}), "/config/image", "must not be empty"),
        (create_body(config={**CONFIG, "pullPolicy": "x"}), "/config/pullPolicy",
         "must be 'missing', 'always' or 'never'"),
        (create_body(config={**CONFIG, "registryUrl": "x" * 2049}), "/config/registryUrl",
         "must be at most 2048 characters long"),
        (create_body(ports=[{"port": 0, "protocol": "tcp"}]), "/ports/0/port",
         "must be at least 1"),
        (create_body(ports=[{"port": 65536, "protocol": "tcp"}]), "/ports/0/port",
         "must be at most 65535"),
        (create_body(ports=[{"port": 80.0, "protocol": "tcp"}]), "/ports/0/port",
         "must be a whole number"),
        (create_body(ports=[{"port": 80, "protocol": "sctp"}]), "/ports/0/protocol",
         "must be 'tcp' or 'udp'"),
        (create_body(ports=[{"port": 80, "protocol": "tcp"}] * 2), "/ports/1",
         "80/tcp is declared twice"),
        (create_body(ports=[1] * 65), "/ports", "must have at most 64 items"),
        (create_body(inspect="yes"), "/inspect", "must be true or false"),
        (create_body(limits={"ttlSeconds": 0}), "/limits/ttlSeconds", "must be at least 1"),
        (create_body(limits={"ttlSeconds": float("inf")}), "/limits/ttlSeconds",
         "must be a whole number"),
        (create_body(limits={"cpu": "1n"}), "/limits/cpu", "must be at least 1m of CPU"),
        (create_body(limits={"memory": "100m"}), "/limits/memory",
         "must be at least 4Mi (the suffix m means a thousandth)"),
        (create_body(limits={"ephemeralStorage": "2GB"}), "/limits/ephemeralStorage",
         "not a Kubernetes quantity such as 500m, 1.5 or 512Mi"),
        (create_body(mode="debug"), "/mode", "must be 'run' or 'watch'"),
        (create_body(apps=[{**APP, "io": "pipes"}]), "/apps/0/io", "must be 'tty' or 'streams'"),
        (create_body(apps=[]), "/apps", "a run session has exactly one app"),
        (create_body(resourses={}), "/resourses", "is no key of this object"),
        (create_body(**{"a/b~c": 1}), "/a~1b~0c", "is no key of this object"),
    ],
)  # fmt: skip
def test_an_issue_says_what_is_wrong_where(body: Any, path: str, message: str) -> None:
    assert issues(body) == [{"path": path, "message": message}]


def test_all_issues_are_told_at_once() -> None:
    body = create_body(
        bundle={"entryRelativePath": 1, "files": [{**FILE, "mode": 1}, FILE, {"contents": 1}]},
        env={"GOOD": "x", "1A": "s3cret", "B": 1},
        config={"image": 1, "leftOver": 1},
        ports=[{"port": 0, "protocol": "x"}],
        limits={"cpu": 1, "gpu": "1"},
        surplus=1,
    )
    assert {issue["path"] for issue in issues(body)} == {
        "/bundle/entryRelativePath",
        "/bundle/files/0/mode",
        "/bundle/files/2/relativePath",
        "/bundle/files/2/contents",
        "/env/1A",
        "/env/B",
        "/config/image",
        "/config/pullPolicy",
        "/ports/0/port",
        "/ports/0/protocol",
        "/limits/cpu",
        "/limits/gpu",
        "/surplus",
    }


WRONG: list[Any] = [
    None,
    True,
    1,
    1.5,
    float("inf"),
    "x",
    "\ud800",
    [],
    [1],
    {},
    {"a": 1},
    {"": {}},
]
KEYS = ("bundle", "env", "config", "ports", "inspect", "limits", "mode", "agent", "apps")


def test_no_issue_speaks_of_the_inside() -> None:
    for wrong in WRONG:
        for key in KEYS:
            try:
                parse_create(create_body(**{key: wrong}))
            except InvalidRequest as refused:
                for issue in refused.fields["issues"]:
                    assert INTERNAL.search(issue["message"]) is None, issue


def test_a_probe_is_told_its_issues_in_the_same_words() -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_probe({"config": {"image": 1, "pullPolicy": "x", "registryUrl": 1}, "more": 1})
    assert refused.value.fields["issues"] == [
        {"path": "/config/image", "message": "must be a string"},
        {"path": "/config/pullPolicy", "message": "must be 'missing', 'always' or 'never'"},
        {"path": "/config/registryUrl", "message": "must be a string"},
        {"path": "/more", "message": "is no key of this object"},
    ]


CROWDS = {
    "unknown keys": {**create_body(), **{f"x{n}": 1 for n in range(300_000)}},
    "unknown keys of files": of_files(*[{f"k{n}": 1 for n in range(50)}] * 15_000),
    "wrong files": of_files(*[1] * 1_000_000),
    "wrong values": create_body(env={f"a{n}": 1 for n in range(300_000)}),
    "wrong names": create_body(env={f" {n}": "" for n in range(300_000)}),
    "wrong ports": create_body(ports=[1] * 1_000_000),
    "wrong ports of apps": create_body(apps=[{**APP, "ports": [{}] * 64}] * 64),
    "unknown keys of ports of apps": create_body(
        apps=[{**APP, "ports": [{f"k{n}": 1 for n in range(90)}] * 64}] * 64
    ),
}


@pytest.mark.parametrize("body", CROWDS.values(), ids=CROWDS.keys())
def test_a_crowd_of_faults_costs_little_and_is_told_in_part(body: dict[str, Any]) -> None:
    began = time.process_time()
    listed = issues(body)
    assert time.process_time() - began < 1.0
    assert 1 <= len(listed) <= MAX_ISSUES


def test_config_may_hold_whatever_a_form_once_held() -> None:
    config = {**CONFIG, **{f"field{n}": {"any": [n]} for n in range(1000)}}
    assert parse_create(create_body(config=config)).image == IMAGE


def test_limits_that_ask_for_nothing_ask_for_nothing() -> None:
    limits = parse_create(create_body(limits={})).limits
    assert (limits.cpu_millis, limits.memory_bytes) == (None, None)
    assert (limits.ephemeral_storage_bytes, limits.ttl_seconds) == (None, None)


def test_only_what_is_sent_as_base64_is_decoded() -> None:
    files = make_bundle({ENTRY: "YQ==", "b": b"\0\xff", "c": "😀"})["files"]
    files[0]["encoding"] = "utf8"
    wanted = parse_create(of_files(*files))
    assert [file.contents for file in wanted.files] == [b"YQ==", b"\0\xff", "😀".encode()]
