"""The variables of the catalog: what is refused, and in which words; a value is never repeated."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from telorunner import conf
from telorunner.conf import Settings
from telorunner.conf.catalog import SeededApp
from telorunner.errors import ConfigError

VARIABLES = sorted(str(field.validation_alias) for field in Settings.model_fields.values())
MARK = "marked-secret"
IMAGE = "registry.example/team/app:1.2"

AN_APP = {"image": IMAGE}
FORM = r'must be JSON such as \{"name": \{"image": "registry\.example/team/app:1\.2"\}\}$'

# What RUNNER_APPS says of one app, `app`, and the sentence behind the variable's name.
BAD_APPS: list[tuple[object, str]] = [
    (None, r"app: must be an object$"),
    ([MARK], r"app: must be an object$"),
    (MARK, r"app: must be an object$"),
    ({}, r"app\.image: is required$"),
    ({**AN_APP, "command": MARK}, r"app\.command: is no key of this object$"),
    # The field's own name is no key of the JSON.
    ({**AN_APP, "pull_policy": "always"}, r"app\.pull_policy: is no key of this object$"),
    ({**AN_APP, "two\nlines": 1}, r'app\."two\\nlines": is no key of this object$'),
    ({**AN_APP, "k" * 500: 1}, rf"app\.{'k' * 64}\.\.\.: is no key of this object$"),
    ({"image": 1}, r"app\.image: must be a string$"),
    ({"image": None}, r"app\.image: must be a string$"),
    ({"image": ""}, r"app\.image: not an image reference such as registry"),
    ({"image": f"registry/{MARK}/UPPER:1"}, r"app\.image: not an image reference"),
    ({"image": f"a/{MARK}:b:c"}, r"app\.image: not an image reference: its tag is malformed$"),
    ({"image": "a" * 513}, r"app\.image: an image reference has at most 512 characters$"),
    (
        {**AN_APP, "pullPolicy": f"If{MARK}"},
        r"app\.pullPolicy: must be 'missing', 'always' or 'never'$",
    ),
    (
        {**AN_APP, "pullPolicy": None},
        r"app\.pullPolicy: must be 'missing', 'always' or 'never'$",
    ),
    ({**AN_APP, "port": 0}, r"app\.port: must be at least 1$"),
    ({**AN_APP, "port": -1}, r"app\.port: must be at least 1$"),
    ({**AN_APP, "port": 65_536}, r"app\.port: must be at most 65535$"),
    ({**AN_APP, "port": 10**30}, r"app\.port: must be at most 65535$"),
    ({**AN_APP, "port": "80"}, r"app\.port: must be a whole number$"),
    ({**AN_APP, "port": True}, r"app\.port: must be a whole number$"),
    ({**AN_APP, "port": 80.0}, r"app\.port: must be a whole number$"),
    ({**AN_APP, "title": 1}, r"app\.title: must be a string$"),
    ({**AN_APP, "title": "t" * 201}, r"app\.title: must be at most 200 characters long$"),
    ({**AN_APP, "title": f"{MARK}\0"}, r"app\.title: holds a NUL$"),
    (
        {**AN_APP, "env": {f"A{i}": "" for i in range(401)}},
        r"app\.env: must have at most 400 variables$",
    ),
    ({**AN_APP, "description": f"{MARK}\0"}, r"app\.description: holds a NUL$"),
    (
        {**AN_APP, "description": MARK + "d" * 2000},
        r"app\.description: must be at most 2000 characters long$",
    ),
    (
        {**AN_APP, "description": "\ud800"},
        r"app\.description: must be text in UTF-8 that halves no",
    ),
    ({**AN_APP, "env": None}, r"app\.env: must be an object$"),
    ({**AN_APP, "env": [MARK]}, r"app\.env: must be an object$"),
    ({**AN_APP, "env": {"A": 1}}, r"app\.env\.A: must be a string$"),
    ({**AN_APP, "env": {"A": True}}, r"app\.env\.A: must be a string$"),
    ({**AN_APP, "env": {"A": None}}, r"app\.env\.A: must be a string$"),
    (
        {**AN_APP, "env": {"A": f"{MARK}\ud800"}},
        r"app\.env\.A: must be text in UTF-8 that halves no",
    ),
    ({**AN_APP, "env": {"A": f"{MARK}\0"}}, r"app\.env\.A: the value holds a NUL$"),
    ({**AN_APP, "env": {"A": MARK * 10_100}}, r"app\.env\.A: name and value together must be"),
    ({**AN_APP, "env": {"1A": MARK}}, r"app\.env\.1A: the name must match "),
    ({**AN_APP, "env": {"": MARK}}, r'app\.env\."": the name must match '),
    ({**AN_APP, "env": {"A=B": MARK}}, r'app\.env\."A=B": the name must match '),
    ({**AN_APP, "env": {"A\0": MARK}}, r'app\.env\."A\\u0000": the name must match '),
    ({**AN_APP, "env": {"\ud800": MARK}}, r'app\.env\."\\ud800": '),
    ({**AN_APP, "env": {"A" * 257: MARK}}, r"app\.env\.A{64}\.\.\.: the name has more than 256"),
]

# The whole of RUNNER_APPS, and the sentence behind the variable's name.
BAD_TABLES = [
    (MARK, FORM),
    ("{", FORM),
    (f'{{"app": {MARK}}}', FORM),
    ("null", FORM),
    ("1", FORM),
    ('"app"', FORM),
    ("[]", FORM),
    ("[" * 30_000, FORM),
    (f'{{"app": {{"image": "{IMAGE}", "port": {"9" * 5000}}}}}', FORM),
    ('{"Upper": {}}', r'"Upper": an app\'s name must be a lower-case DNS label of at most 63'),
    ('{"": {}}', r'"": an app\'s name must be a lower-case DNS label'),
    ('{"a.b": {}}', r'"a\.b": an app\'s name must be a lower-case DNS label'),
    ('{"-a": {}}', r'"-a": an app\'s name must be a lower-case DNS label'),
    (json.dumps({"a" * 64: {}}), r'"a{64}": an app\'s name must be a lower-case DNS label'),
    (json.dumps({"é": {}}), r'"\\u00e9": an app\'s name must be a lower-case DNS label'),
    ('{"app": {}, "app": {}}', r"app: is there twice$"),
    ('{"app": {"image": "a", "image": "b"}}', r"app\.image: is there twice$"),
    (
        f'{{"app": {{"image": "a", "env": {{"A": "{MARK}", "A": "{MARK}"}}}}}}',
        r"app\.env\.A: is there twice$",
    ),
]

BAD_VALUES = [
    ("RUNNER_APP_MAX_CPU", ["x", "-1"]),
    ("RUNNER_APP_MAX_MEMORY", ["2GB", "-1"]),
    ("RUNNER_APP_MAX_EPHEMERAL_STORAGE", ["2GB"]),
    ("RUNNER_APP_MAX_TTL_SECONDS", ["0", "2147483648", "1.5"]),
    ("RUNNER_TERMS_TITLE", ["t" * 201, "no-utf-8 \udcff"]),
    ("RUNNER_TERMS_BODY", ["no-utf-8 \udcff"]),
    (
        "RUNNER_TERMS_VERSION",
        ["a b", "a,b-and-more", "-a", "a-", ".", "a" * 65, "é", "two\nlines", "a/b"],
    ),
    ("RUNNER_BASE_IMAGE_CATALOG_ENABLED", ["perhaps", "2"]),
    (
        "RUNNER_BASE_IMAGE_REPO",
        [
            "telorun/node:1.2.3",
            "telorun/node@sha256:" + "0" * 64,
            "ghcr.io/telorun/node",
            "localhost:5000/telorun/node",
            "a/b/c/d/e/f/g",
            "telorun/" + "n" * 248,
            "Telorun/node",
            "telorun/",
            "../telorun/node",
            "telorun/node?x=1",
            "a/" + "b" * 254,
        ],
    ),
    ("RUNNER_BASE_IMAGE_PINNED_ONLY", ["perhaps"]),
    ("RUNNER_BASE_IMAGE_EXCLUDE_SHA", ["perhaps"]),
    ("RUNNER_BASE_IMAGE_EXCLUDE_PRERELEASE", ["perhaps"]),
    ("RUNNER_BASE_IMAGE_INCLUDE", ["(", "marked[a-", "*", "(" * 3000, r"\L<words-unknown>"]),
    ("RUNNER_BASE_IMAGE_EXCLUDE", ["(", "marked[a-", "+marked-word", "a{99999999999999999999}"]),
    ("RUNNER_BASE_IMAGE_LIMIT", ["-1", "201", "x", "1.0"]),
    ("RUNNER_BASE_IMAGE_REFRESH_SECONDS", ["0", "9", "x", "2592001", "1e3"]),
    (
        "RUNNER_BASE_IMAGE_API_URL",
        [
            "hub.docker.com",
            "ftp://hub.docker.com",
            "https://",
            "https://hub.docker.com/",
            "https://hub.docker.com/v2",
            "https://user:secret-word@hub.docker.com",
            "https://hub.docker.com?x=1",
            "https://hub.docker.com:0",
            "https://hub.docker.com:65536",
            "https://hub.docker.com:99999",
            "https://[::1",
            "https://a b",
        ],
    ),
]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """An environment without any of the runner's variables."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def refusal(environment: pytest.MonkeyPatch, variable: str, value: str) -> str:
    """Return the sentence with which a value is refused."""
    environment.setenv(variable, value)
    with pytest.raises(ConfigError) as caught:
        conf.load()
    return str(caught.value)


def assert_is_one_sentence_of_the_house(sentence: str) -> None:
    assert "\n" not in sentence
    assert sentence.isascii()
    assert MARK not in sentence
    for words in ("Input should", "input should", "Extra inputs", "Field required", "Value error"):
        assert words not in sentence


@pytest.mark.parametrize(("app", "expected"), BAD_APPS)
def test_a_bad_app_is_named_with_its_key_and_without_its_value(
    environment: pytest.MonkeyPatch, app: Any, expected: str
) -> None:
    # NB: os.environ takes no NUL and no surrogate, but their escapes in JSON.
    sentence = refusal(environment, "RUNNER_APPS", json.dumps({"other": AN_APP, "app": app}))
    assert re.match(f"RUNNER_APPS: {expected}", sentence), sentence
    assert_is_one_sentence_of_the_house(sentence)


@pytest.mark.parametrize(("table", "expected"), BAD_TABLES)
def test_a_bad_table_of_apps_is_refused(
    environment: pytest.MonkeyPatch, table: str, expected: str
) -> None:
    sentence = refusal(environment, "RUNNER_APPS", table)
    assert re.match(f"RUNNER_APPS: {expected}", sentence), sentence
    assert_is_one_sentence_of_the_house(sentence)


@pytest.mark.parametrize(
    ("variable", "value"), [(name, value) for name, values in BAD_VALUES for value in values]
)
def test_a_bad_value_names_the_variable_and_is_not_repeated(
    environment: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    sentence = refusal(environment, variable, value)
    assert sentence.startswith(f"{variable}: ")
    assert "\n" not in sentence
    if len(value) > 8:
        assert value not in sentence


def test_apps_are_read(environment: pytest.MonkeyPatch) -> None:
    table = {
        "second-1": {
            "image": IMAGE,
            "env": {"A": MARK, "_b.c-D": "", "TEXT": "1e3 {{ yes }}\n"},
            "pullPolicy": "always",
            "port": 65_535,
            "title": "Title é",
            "description": "Words.",
        },
        "a" * 63: {"image": "node", "port": 1},
    }
    environment.setenv("RUNNER_APPS", json.dumps(table))
    apps = conf.load().apps
    # The order is the one given, which is the catalog's.
    assert list(apps) == ["second-1", "a" * 63]
    assert apps["second-1"] == SeededApp(
        image=IMAGE,
        env={"A": MARK, "_b.c-D": "", "TEXT": "1e3 {{ yes }}\n"},
        pullPolicy="always",
        port=65_535,
        title="Title é",
        description="Words.",
    )
    plain = apps["a" * 63]
    assert (plain.env, plain.pull_policy, plain.port) == ({}, "missing", 1)
    assert (plain.title, plain.description) == ("", "")


def test_no_app_is_no_mistake(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("RUNNER_APPS", "{}")
    assert conf.load().apps == {}


def test_env_of_apps_and_the_terms_do_not_show(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("RUNNER_APPS", json.dumps({"app": {**AN_APP, "env": {"A": MARK}}}))
    environment.setenv("RUNNER_TERMS_BODY", f"{MARK} terms")
    settings = conf.load()
    assert settings.apps["app"].env == {"A": MARK}
    for shown in (repr(settings), str(settings), repr(settings.apps["app"])):
        assert MARK not in shown


def test_the_catalogs_defaults_are_the_documented_ones() -> None:
    settings = conf.load()
    assert settings.apps == {}
    assert (settings.app_max_cpu_millis, settings.app_max_memory_bytes) == (500, 512 * 2**20)
    assert (settings.app_max_ttl_seconds, settings.app_max_ephemeral_storage_bytes) == (
        21_600,
        2**30,
    )
    assert (settings.terms_file, settings.terms_body, settings.terms_version) == (None, "", "")
    assert settings.terms_title == "Usage agreement"
    assert settings.base_image_catalog_enabled
    assert settings.base_image_repo == "telorun/node"
    assert settings.base_image_pinned_only
    assert settings.base_image_exclude_sha
    assert settings.base_image_exclude_prerelease
    assert (settings.base_image_include, settings.base_image_exclude) == ("", "")
    assert (settings.base_image_limit, settings.base_image_refresh_seconds) == (20, 3600)
    assert settings.base_image_api_url == "https://hub.docker.com"


@pytest.mark.parametrize(
    ("variable", "field", "values"),
    [
        (
            "RUNNER_BASE_IMAGE_API_URL",
            "base_image_api_url",
            ["http://127.0.0.1:1", "https://[::1]:65535", "http://hub.example"],
        ),
        (
            "RUNNER_BASE_IMAGE_REPO",
            "base_image_repo",
            ["node", "library/node", "docker.io/telorun/node", "a/" + "b" * 253],
        ),
        ("RUNNER_BASE_IMAGE_INCLUDE", "base_image_include", ["node", "(a+)+$", r"1\..*-slim"]),
        ("RUNNER_TERMS_VERSION", "terms_version", ["1", "2026-11_b.C", "a" * 64]),
    ],
)
def test_values_at_the_edge_are_taken(
    environment: pytest.MonkeyPatch, variable: str, field: str, values: list[str]
) -> None:
    for value in values:
        environment.setenv(variable, value)
        assert getattr(conf.load(), field) == value


@pytest.mark.parametrize(
    ("variable", "field", "values"),
    [
        ("RUNNER_BASE_IMAGE_LIMIT", "base_image_limit", [0, 200]),
        ("RUNNER_BASE_IMAGE_REFRESH_SECONDS", "base_image_refresh_seconds", [10, 2_592_000]),
    ],
)
def test_numbers_at_the_edge_are_taken(
    environment: pytest.MonkeyPatch, variable: str, field: str, values: list[int]
) -> None:
    for value in values:
        environment.setenv(variable, str(value))
        assert getattr(conf.load(), field) == value


def test_reading_the_configuration_reads_no_file(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("RUNNER_TERMS_FILE", "/nowhere/terms.md")
    assert conf.load().terms_file == Path("/nowhere/terms.md")
