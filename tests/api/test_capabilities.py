"""GET /v1/capabilities: the contract's exact form, resolved at each request."""

from typing import Any

import httpx
import pytest

from tests.builders import make_settings

pytestmark = pytest.mark.usefixtures("transactional_db")


async def test_capabilities_have_exactly_the_contracts_form(client: httpx.AsyncClient) -> None:
    answer = await client.get("/v1/capabilities")
    assert answer.status_code == 200
    # No `apps`, `terms` or `agents` while there are none.
    assert answer.json() == {
        "displayName": "Telo Runner",
        "description": "Runs the Telo application in a cloud environment",
        "config": {
            "schema": {
                "type": "object",
                "required": ["image", "pullPolicy"],
                "properties": {
                    "image": {
                        "type": "string",
                        "title": "Image",
                        "description": "The container image that runs the application.",
                        "minLength": 1,
                        "default": "telorun/node:latest-slim",
                        "readOnly": True,
                    },
                    "pullPolicy": {
                        "type": "string",
                        "title": "Pull policy",
                        "description": (
                            "The Pod's imagePullPolicy: missing (IfNotPresent), always or never. "
                            "With never, a session fails (ErrImageNeverPull) on a node that has "
                            "not cached the image."
                        ),
                        "enum": ["missing", "always", "never"],
                        "default": "missing",
                    },
                },
            }
        },
        "features": {"io": ["tty", "streams"], "ports": False, "watch": False},
    }


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
