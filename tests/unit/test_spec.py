import json
from typing import Any

import pytest

from sessions.spec import STARTING, STOPPED, App, Port, SessionSpec, Status, exited, failed
from sessions.states import Delivery, IoMode, Protocol, StatusKind
from telorunner.values.pullpolicy import PullPolicy
from tests.builders import make_spec

ENDPOINT = {"host": "", "port": 80, "protocol": "tcp"}


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (STARTING, {"kind": "starting"}),
        (STOPPED, {"kind": "stopped"}),
        (Status(StatusKind.RUNNING), {"kind": "running"}),
        (
            Status(StatusKind.RUNNING, endpoints=(ENDPOINT,)),
            {"kind": "running", "endpoints": [ENDPOINT]},
        ),
        (exited(0), {"kind": "exited", "code": 0}),
        (failed("why"), {"kind": "failed", "message": "why"}),
    ],
)
def test_optional_keys_are_left_out(status: Status, body: dict[str, Any]) -> None:
    assert status.to_json() == body


def test_a_spec_comes_back_from_its_row() -> None:
    spec = make_spec(
        session_id="a" * 12,
        pull_policy=PullPolicy.NEVER,
        is_inspected=True,
        apps=(
            App("web", "a/b.yaml", (Port(53), Port(53, Protocol.UDP)), IoMode.STREAMS),
            App("api", "c.yaml"),
        ),
    )
    stored = json.loads(json.dumps(spec.to_json()))
    assert SessionSpec.from_json("a" * 12, "run", stored) == spec


def test_a_spec_of_a_catalog_app_comes_back_from_its_row() -> None:
    spec = make_spec(
        session_id="a" * 12,
        apps=(App("app", "", (Port(80),)),),
        delivery=Delivery.NONE,
        app_name="code-helper",
        allow_root=True,
    )
    stored = json.loads(json.dumps(spec.to_json()))
    assert SessionSpec.from_json("a" * 12, "run", stored) == spec


def test_a_row_of_before_there_were_apps_can_be_read() -> None:
    stored = make_spec(session_id="a" * 12).to_json()
    assert not {"catalogApp", "allowRoot"} & set(stored)
    spec = SessionSpec.from_json("a" * 12, "run", stored)
    assert (spec.app_name, spec.allow_root) == ("", False)
