"""Amounts that are none: refused at once, by the name of their field or variable."""

import itertools
import os
import subprocess
import sys
import time

import httpx
import pytest

from telorunner import conf
from telorunner.errors import ConfigError, InvalidJson
from tests.api.mutants import QUANTITIES, Token, encode
from tests.builders import create_body
from tests.serving import ROOT

pytestmark = pytest.mark.usefixtures("transactional_db")

# The promise, of the processor's time: others may be using the machine.
REFUSED_SECONDS = 0.1
FIELDS = ("cpu", "memory", "ephemeralStorage")
VARIABLES = ("RUNNER_MAX_CPU", "RUNNER_MAX_MEMORY", "RUNNER_MAX_EPHEMERAL_STORAGE")
NO_TEXTS = [
    "1e1000", "-1e1000", "1e-1000", "1e999999", "1", "0", "-1", "0.5", "9" * 400, "9" * 100_000,
    "true", "false", "null", "[]", '["1Gi"]', "{}", "18446744073709551616",
]  # fmt: skip
VALUES = [*(encode(text) for text in QUANTITIES), *NO_TEXTS]


async def post(client: httpx.AsyncClient, limits: dict[str, Token]) -> httpx.Response:
    body = encode(create_body(limits=limits)).encode()
    headers = {"content-type": "application/json"}
    return await client.post("/v1/sessions", content=body, headers=headers)


async def test_it_is_refused_by_the_name_of_its_field(client: httpx.AsyncClient) -> None:
    # The first request of a process loads what the others find loaded.
    await post(client, {"cpu": Token("1")})
    for value, field in itertools.product(VALUES, FIELDS):
        began = time.process_time()
        answer = await post(client, {field: Token(value)})
        assert time.process_time() - began < REFUSED_SECONDS, value[:50]
        assert answer.status_code == 400, value[:50]
        assert [issue["path"] for issue in answer.json()["issues"]] == [f"/limits/{field}"]
        assert value.strip('"') not in answer.text or len(value) < 12


async def test_what_is_not_even_json_is_refused_as_that(client: httpx.AsyncClient) -> None:
    for value in ("NaN", "Infinity", "-Infinity", "0x10", "1_000", "+1", "01"):
        answer = await post(client, {"cpu": Token(value)})
        assert answer.json()["error"] == InvalidJson.code, value


@pytest.mark.parametrize("variable", VARIABLES)
def test_an_operator_is_told_which_variable_it_is(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    # The environment cannot hold a NUL, and an empty value counts as unset.
    for value in (value for value in QUANTITIES if value and "\0" not in value):
        monkeypatch.setenv(variable, value)
        began = time.process_time()
        with pytest.raises(ConfigError, match=f"^{variable}: "):
            conf.load()
        assert time.process_time() - began < REFUSED_SECONDS


def test_serve_exits_2_and_names_the_variable() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), "serve"],
        env={"PATH": os.environ["PATH"], "RUNNER_MAX_MEMORY": "1e999999"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("telorunner: RUNNER_MAX_MEMORY: ")


async def test_a_number_that_no_double_holds_is_named_as_any_other(
    client: httpx.AsyncClient,
) -> None:
    for value in ("1e400", "9" * 400, "9" * 100_000, "1.5", "1e0", '"1"', "true", "0", "-1"):
        answer = await post(client, {"ttlSeconds": Token(value)})
        assert answer.status_code == 400
        assert [issue["path"] for issue in answer.json()["issues"]] == ["/limits/ttlSeconds"]
