"""Request bodies: strict types, and issues that name each value by its JSON Pointer."""

import base64
import time
from typing import Any

import orjson
import pytest

from sessions.actions.create import Wanted
from sessions.requests import parse_create, parse_probe
from sessions.spec import Port
from sessions.states import IoMode, Protocol
from telorunner.errors import InvalidRequest
from telorunner.values.env import MAX_VARIABLE_BYTES
from telorunner.values.pullpolicy import PullPolicy
from tests.builders import ENTRY, HELLO, IMAGE, create_body, make_bundle

APP = {"name": "web", "entryRelativePath": ENTRY}
FILE = {"relativePath": ENTRY, "contents": HELLO}


def issues(body: Any) -> dict[str, str]:
    with pytest.raises(InvalidRequest) as refused:
        parse_create(body)
    listed = refused.value.fields["issues"]
    # Whatever the client sent, the refusal can be sent back.
    orjson.dumps(refused.value.body())
    return {issue["path"]: issue["message"] for issue in listed}


def with_file(**changes: Any) -> dict[str, Any]:
    return create_body(bundle={"entryRelativePath": ENTRY, "files": [{**FILE, **changes}]})


def test_a_whole_body_is_understood() -> None:
    wanted = parse_create(
        create_body(
            bundle=make_bundle({ENTRY: "é\r\n", "b": b"\0\xff", "e": b""}),
            env={"A": "1", "_.-x": "", "emoji": "😀"},
            config={"image": IMAGE, "pullPolicy": "always", "registryUrl": " https://r "},
            ports=[{"port": 1, "protocol": "tcp"}, {"port": 65535, "protocol": "udp"}],
            inspect=True,
            limits={"cpu": "1", "memory": "8Mi", "ephemeralStorage": "1Gi", "ttlSeconds": 1},
            apps=[{**APP, "ports": [{"port": 8, "protocol": "tcp"}], "io": "streams"}],
        )
    )
    assert [(file.path, file.contents) for file in wanted.files] == [
        (ENTRY, "é\r\n".encode()),
        ("b", b"\0\xff"),
        ("e", b""),
    ]
    assert wanted.env == {"A": "1", "_.-x": "", "emoji": "😀"}
    assert (wanted.pull_policy, wanted.registry_url) == (PullPolicy.ALWAYS, "https://r")
    assert wanted.ports == (Port(1), Port(65535, Protocol.UDP))
    assert (wanted.limits.cpu_millis, wanted.limits.memory_bytes) == (1000, 8 * 2**20)
    assert (wanted.limits.ephemeral_storage_bytes, wanted.limits.ttl_seconds) == (2**30, 1)
    (app,) = wanted.apps
    assert (app.name, app.entry, app.ports, app.io) == ("web", ENTRY, (Port(8),), IoMode.STREAMS)
    assert "HELLO" not in repr(wanted)


def test_what_is_left_out_has_its_default() -> None:
    wanted = parse_create(create_body())
    assert isinstance(wanted, Wanted)
    assert (wanted.apps, wanted.ports, wanted.is_inspected, wanted.is_watch) == (
        (),
        (),
        False,
        False,
    )
    assert wanted.limits.cpu_millis is None
    assert (wanted.agent, wanted.registry_url) == ("", "")


@pytest.mark.parametrize("body", [None, [], "", 1, True, [{}]])
def test_a_body_that_is_no_object_is_named_by_the_empty_pointer(body: Any) -> None:
    assert issues(body) == {"": "must be an object"}


@pytest.mark.parametrize(
    ("overrides", "path"),
    [
        ({"bundle": None}, "/bundle"),
        ({"bundle": []}, "/bundle"),
        ({"bundle": {"files": []}}, "/bundle/entryRelativePath"),
        ({"bundle": {"entryRelativePath": ENTRY, "files": {}}}, "/bundle/files"),
        ({"bundle": {"entryRelativePath": 1, "files": []}}, "/bundle/entryRelativePath"),
        ({"bundle": {"entryRelativePath": ENTRY, "files": ["x"]}}, "/bundle/files/0"),
        ({"env": None}, "/env"),
        ({"env": []}, "/env"),
        ({"env": {"A": 1}}, "/env/A"),
        ({"env": {"A": None}}, "/env/A"),
        ({"env": {"A": ["x"]}}, "/env/A"),
        ({"config": None}, "/config"),
        ({"config": {"pullPolicy": "missing"}}, "/config/image"),
        ({"config": {"image": IMAGE}}, "/config/pullPolicy"),
        ({"config": {"image": "", "pullPolicy": "missing"}}, "/config/image"),
        ({"config": {"image": IMAGE, "pullPolicy": "Missing"}}, "/config/pullPolicy"),
        (
            {"config": {"image": IMAGE, "pullPolicy": "missing", "registryUrl": None}},
            "/config/registryUrl",
        ),
        (
            {"config": {"image": IMAGE, "pullPolicy": "missing", "registryUrl": "a\0"}},
            "/config/registryUrl",
        ),
        ({"ports": None}, "/ports"),
        ({"ports": [80]}, "/ports/0"),
        ({"ports": [{"port": "80", "protocol": "tcp"}]}, "/ports/0/port"),
        ({"ports": [{"port": 80.0, "protocol": "tcp"}]}, "/ports/0/port"),
        ({"ports": [{"port": True, "protocol": "tcp"}]}, "/ports/0/port"),
        ({"ports": [{"port": 0, "protocol": "tcp"}]}, "/ports/0/port"),
        ({"ports": [{"port": 65536, "protocol": "tcp"}]}, "/ports/0/port"),
        ({"ports": [{"port": -1, "protocol": "tcp"}]}, "/ports/0/port"),
        ({"ports": [{"port": 80, "protocol": "TCP"}]}, "/ports/0/protocol"),
        ({"ports": [{"port": 80}]}, "/ports/0/protocol"),
        ({"ports": [{"port": 80, "protocol": "tcp"}] * 2}, "/ports/1"),
        ({"ports": [{"port": n, "protocol": "tcp"} for n in range(1, 66)]}, "/ports"),
        ({"inspect": "yes"}, "/inspect"),
        ({"inspect": 1}, "/inspect"),
        ({"inspect": None}, "/inspect"),
        ({"limits": []}, "/limits"),
        ({"limits": {"gpu": "1"}}, "/limits/gpu"),
        ({"limits": {"cpu": 1}}, "/limits/cpu"),
        ({"limits": {"cpu": ""}}, "/limits/cpu"),
        ({"limits": {"cpu": "0"}}, "/limits/cpu"),
        ({"limits": {"cpu": "1n"}}, "/limits/cpu"),
        ({"limits": {"cpu": "-1"}}, "/limits/cpu"),
        ({"limits": {"memory": "100m"}}, "/limits/memory"),
        ({"limits": {"memory": "0"}}, "/limits/memory"),
        ({"limits": {"memory": "0.5"}}, "/limits/memory"),
        ({"limits": {"memory": "2GB"}}, "/limits/memory"),
        ({"limits": {"ephemeralStorage": "lots"}}, "/limits/ephemeralStorage"),
        ({"limits": {"ttlSeconds": 0}}, "/limits/ttlSeconds"),
        ({"limits": {"ttlSeconds": -5}}, "/limits/ttlSeconds"),
        ({"limits": {"ttlSeconds": 0.5}}, "/limits/ttlSeconds"),
        ({"limits": {"ttlSeconds": 60.0}}, "/limits/ttlSeconds"),
        ({"limits": {"ttlSeconds": "60"}}, "/limits/ttlSeconds"),
        ({"limits": {"ttlSeconds": True}}, "/limits/ttlSeconds"),
        ({"limits": {"ttlSeconds": None}}, "/limits/ttlSeconds"),
        ({"mode": "debug"}, "/mode"),
        ({"mode": None}, "/mode"),
        ({"agent": ""}, "/agent"),
        ({"agent": None}, "/agent"),
        ({"apps": None}, "/apps"),
        ({"apps": []}, "/apps"),
        ({"apps": [APP, {**APP, "name": "b"}]}, "/apps"),
        ({"apps": [{"name": "web"}]}, "/apps/0/entryRelativePath"),
        ({"apps": [{**APP, "io": "pipes"}]}, "/apps/0/io"),
        ({"apps": [{**APP, "name": 1}]}, "/apps/0/name"),
        ({"apps": [{**APP, "ports": [{"port": 1, "protocol": "tcp"}] * 2}]}, "/apps/0/ports/1"),
        ({"resourses": {}}, "/resourses"),
        ({"app": "x"}, "/app"),
        ({"a/b~c": 1}, "/a~1b~0c"),
    ],
)
def test_a_wrong_value_is_named(overrides: dict[str, Any], path: str) -> None:
    assert path in issues(create_body(**overrides))


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"contents": 123}, "/bundle/files/0/contents"),
        ({"contents": None}, "/bundle/files/0/contents"),
        ({"relativePath": None}, "/bundle/files/0/relativePath"),
        ({"encoding": "hex"}, "/bundle/files/0/encoding"),
        ({"encoding": None}, "/bundle/files/0/encoding"),
        ({"mode": "0644"}, "/bundle/files/0/mode"),
        ({"contents": "a\0b"}, "/bundle/files/0/contents"),
        *(
            ({"contents": contents, "encoding": "base64"}, "/bundle/files/0/contents")
            for contents in ("a", "YQ", "YQ=", "YQ===", "YQ==\n", " YQ==", "Y-_=", "é", "YQ==YQ==")
        ),
    ],
)
def test_a_wrong_file_is_named(changes: dict[str, Any], path: str) -> None:
    assert path in issues(with_file(**changes))


HALF = "a\ud800b"


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (with_file(relativePath=HALF), "/bundle/files/0/relativePath"),
        (with_file(contents=HALF), "/bundle/files/0/contents"),
        (create_body(bundle={**make_bundle(), "entryRelativePath": HALF}),
         "/bundle/entryRelativePath"),
        (create_body(env={"A": HALF}), "/env/A"),
        (create_body(env={HALF: "x"}), "/env/a\ufffd\ufffd\ufffdb"),
        (create_body(config={"image": HALF, "pullPolicy": "missing"}), "/config/image"),
        (create_body(mode="watch", agent=HALF), "/agent"),
        (create_body(apps=[{**APP, "name": HALF}]), "/apps/0/name"),
    ],
)  # fmt: skip
def test_half_a_surrogate_pair_is_named(body: dict[str, Any], path: str) -> None:
    assert path in issues(body)


def test_half_a_surrogate_pair_in_an_unknown_key_is_refused() -> None:
    assert issues(create_body(**{HALF: 1}))


class TestEnv:
    @pytest.mark.parametrize(
        "name", ["", "A=B", "1A", "a b", "A\0", "é", "A\n", "\u0661", "a" * 257, "x" * 70_000]
    )
    def test_a_name_that_exec_or_the_cluster_refuses_is_named(self, name: str) -> None:
        (path,) = issues(create_body(env={"GOOD": "x", name: "s3cret"}))
        assert path.startswith("/env/")
        assert len(path) < 1000

    @pytest.mark.parametrize("name", ["A", "_", "-", ".", "a.b-c_D1", "a" * 256])
    def test_other_names_are_taken(self, name: str) -> None:
        assert parse_create(create_body(env={name: "x"})).env == {name: "x"}

    @pytest.mark.parametrize("value", ["a\0b", "v" * 200_000, "é" * 65_536])
    def test_a_value_that_exec_refuses_is_named_and_not_told(self, value: str) -> None:
        (message,) = issues(create_body(env={"THE_KEY": value})).values()
        assert "THE_KEY" in message
        assert value[:3] not in message

    def test_the_limit_of_a_variable_is_exact(self) -> None:
        value = "v" * (MAX_VARIABLE_BYTES - 1)
        assert parse_create(create_body(env={"A": value}))
        assert "/env/A" in issues(create_body(env={"A": value + "v"}))

    def test_the_largest_variable_can_be_executed(self) -> None:
        import subprocess

        value = "v" * (MAX_VARIABLE_BYTES - 1)
        subprocess.run(["/bin/true"], env={"A": value}, check=True)
        with pytest.raises(OSError, match="too long"):
            subprocess.run(["/bin/true"], env={"A": value + "v"}, check=True)

    def test_all_of_it_is_at_most_a_mebibyte(self) -> None:
        env = {f"A{n}": "v" * (131_072 - 100) for n in range(8)}
        assert parse_create(create_body(env=env))
        refused = issues(create_body(env={**env, "B": "x" * 1000}))
        assert "1 MiB" in refused["/env"]

    @pytest.mark.parametrize(
        "env",
        [
            # Doubled for the kubelet; escaped in JSON; a name each, which is kept twice.
            {f"A{n}": "$" * 100_000 for n in range(8)},
            {f"A{n}": "\1" * 100_000 for n in range(8)},
            {f"A{n:030}": "x" for n in range(10_000)},
        ],
    )
    def test_what_swells_beyond_a_pod_is_refused(self, env: dict[str, str]) -> None:
        assert "too large for a pod" in issues(create_body(env=env))["/env"]
        half = dict(list(env.items())[: len(env) // 2])
        assert parse_create(create_body(env=half)).env == half

    def test_values_never_show_in_what_is_logged(self) -> None:
        wanted = parse_create(create_body(env={"A": "s3cret"}))
        assert "s3cret" not in repr(wanted)


@pytest.mark.parametrize("text", ["1e999999", "1" * 100_000, "1e-999999"])
def test_huge_quantities_are_refused_at_once(text: str) -> None:
    began = time.perf_counter()
    assert "/limits/memory" in issues(create_body(limits={"memory": text}))
    assert time.perf_counter() - began < 0.2


def test_a_lifetime_of_any_size_is_taken_and_clamped_later() -> None:
    wanted = parse_create(create_body(limits={"ttlSeconds": 10**10}))
    assert wanted.limits.ttl_seconds == 10**10


def test_thousands_of_wrong_files_give_a_bounded_answer() -> None:
    many = [{"relativePath": 1, "contents": 2, "x": 3}] * 5000
    body = create_body(bundle={"entryRelativePath": ENTRY, "files": many})
    assert len(issues(body)) <= 100


def test_too_many_files_are_refused() -> None:
    many = [{"relativePath": f"f{n}", "contents": ""} for n in range(20_001)]
    body = create_body(bundle={"entryRelativePath": ENTRY, "files": many})
    assert "/bundle/files" in issues(body)


def test_five_megabytes_of_files_are_read_quickly() -> None:
    contents = base64.b64encode(bytes(1000)).decode()
    many = [
        {"relativePath": f"f{n}", "contents": contents, "encoding": "base64"} for n in range(4000)
    ]
    began = time.process_time()
    parse_create(create_body(bundle={"entryRelativePath": "f0", "files": many}))
    assert time.process_time() - began < 1.0


def test_a_probe_names_an_image_and_ignores_unknown_config() -> None:
    config = {"image": "any thing", "pullPolicy": "never", "leftOver": [1]}
    assert parse_probe({"config": config}) == "any thing"
    with pytest.raises(InvalidRequest):
        parse_probe({"config": config, "bundle": {}})
