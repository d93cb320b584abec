"""What holds a secret does not show it: every logger and every traceback may show a repr."""

import dataclasses
import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest

import catalog
import sessions
import telorunner
from sessions.requests import parse_create
from sessions.requests.bodies import CreateSession
from sessions.spec import RunPodSpec
from telorunner import conf
from tests.builders import ENTRY, create_body, make_bundle, make_new_session

MARK = "marked-secret"
# Names of fields that hold what nobody but the application may read.
SECRET_WORDS = ("env", "token", "registry", "sealed", "archive", "contents", "secret", "password")
# The host in an image's name, and the name of an object.
HARMLESS = {("ImageReference", "registry"), ("RunPodSpec", "image_pull_secret")}


def classes() -> Iterator[type[Any]]:
    """Yield every dataclass of the runner's own."""
    for package in (catalog, sessions, telorunner):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if any(part in module.name for part in (".management", ".migrations", ".localcluster")):
                continue
            for value in vars(importlib.import_module(module.name)).values():
                if isinstance(value, type) and dataclasses.is_dataclass(value):
                    yield value


def test_fields_that_are_called_like_a_secret_have_no_repr() -> None:
    shown = {
        (one.__name__, field.name)
        for one in classes()
        for field in dataclasses.fields(one)
        if field.repr and any(word in field.name.split("_") for word in SECRET_WORDS)
    }
    assert shown - HARMLESS == set()


def test_a_request_shows_neither_values_nor_contents() -> None:
    url = f"https://user:{MARK}@registry.example"
    body = create_body(env={"A": MARK}, bundle=make_bundle({ENTRY: MARK}))
    body["config"]["registryUrl"] = url
    wanted = parse_create(body)
    assert wanted.env == {"A": MARK}
    assert MARK not in repr(wanted)
    assert MARK not in repr(CreateSession.model_validate(body))


def test_what_is_written_down_and_what_a_pod_is_built_of_shows_none() -> None:
    raw = MARK.encode()
    new = make_new_session(env_sealed=raw, archive=raw, token_sealed=raw)
    assert MARK not in repr(new)
    pod = dataclasses.fields(RunPodSpec)
    assert not {field.name for field in pod if field.repr} & {"env", "bundle_url"}


def test_settings_show_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TELO_REGISTRY_URL", f"https://user:{MARK}@registry.example")
    monkeypatch.setenv("DATABASE_URL", f"postgresql://user:{MARK}@db/x")
    monkeypatch.setenv("DJANGO_SECRET_KEY", MARK)
    assert MARK not in repr(conf.load())
