"""GET /v1/capabilities: the contract's exact form, resolved at each request."""

from typing import Any

import httpx
import pytest

from tests.builders import make_settings

pytestmark = pytest.mark.usefixtures("transactional_db")


async def test_capabilities_have_the_contracts_form(client: httpx.AsyncClient) -> None:
    answer = await client.get("/v1/capabilities")
    assert answer.status_code == 200
    body = answer.json()
    schema = body.pop("config")["schema"]
    assert body == {
        "displayName": "Telo Runner",
        "description": "Runs the Telo application in a cloud environment",
        "features": {"io": ["tty", "streams"], "ports": False, "watch": False},
    }
    assert set(schema) == {"type", "required", "properties"}
    assert schema["type"] == "object"
    assert schema["required"] == ["image", "pullPolicy"]


async def test_the_image_is_locked_to_the_default(client: httpx.AsyncClient) -> None:
    schema = (await client.get("/v1/capabilities")).json()["config"]["schema"]
    image = schema["properties"]["image"]
    assert image.pop("description")
    assert image == {
        "type": "string",
        "title": "Image",
        "minLength": 1,
        "default": "telorun/node:latest-slim",
        "readOnly": True,
    }


async def test_the_pull_policy_says_what_it_is(client: httpx.AsyncClient) -> None:
    schema = (await client.get("/v1/capabilities")).json()["config"]["schema"]
    policy = schema["properties"]["pullPolicy"]
    assert policy["enum"] == ["missing", "always", "never"]
    assert policy["default"] == "missing"
    assert "imagePullPolicy" in policy["description"]
    assert "ErrImageNeverPull" in policy["description"]


async def test_capabilities_are_resolved_at_each_request(
    client: httpx.AsyncClient, settings: Any
) -> None:
    settings.RUNNER = make_settings(image="other/image:1", display_name="Mine")
    body = (await client.get("/v1/capabilities")).json()
    assert body["displayName"] == "Mine"
    assert body["config"]["schema"]["properties"]["image"]["default"] == "other/image:1"


async def test_other_methods_are_not_allowed(client: httpx.AsyncClient) -> None:
    answer = await client.delete("/v1/capabilities")
    assert (answer.status_code, answer.json()["error"]) == (405, "method_not_allowed")
    assert answer.headers["allow"] == "GET, HEAD, OPTIONS"
