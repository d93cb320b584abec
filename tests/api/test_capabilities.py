"""GET /v1/capabilities: the contract's exact form, resolved at each request."""

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from catalog import sealed
from catalog.models import App, BaseImage, BaseImageTag, Terms
from catalog.offer import read_offer
from routing.layer import Decision, RoutingSettings
from routing.router import open_router
from routing.routes import Layer
from sessions.actions import offers
from sessions.runtime import Runtime
from telorunner.conf import Settings
from telorunner.database.access import aread, awrite
from tests.builders import IMAGE, make_settings

pytestmark = pytest.mark.usefixtures("transactional_db")

SECRET = "hunter2-of-the-app"
IMAGE_FORM = {
    "type": "string",
    "title": "Image",
    "description": "The container image that runs the application.",
    "minLength": 1,
    "default": IMAGE,
}
PULL_POLICY_FORM = {
    "type": "string",
    "title": "Pull policy",
    "description": (
        "The Pod's imagePullPolicy: missing (IfNotPresent), always or never. With never, a session "
        "fails (ErrImageNeverPull) on a node that has not cached the image."
    ),
    "enum": ["missing", "always", "never"],
    "default": "missing",
}


def expected(image: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "displayName": "Telo Runner",
        "description": "Runs the Telo application in a cloud environment",
        "config": {
            "schema": {
                "type": "object",
                "required": ["image", "pullPolicy"],
                "properties": {
                    "image": {**IMAGE_FORM, **image},
                    "pullPolicy": PULL_POLICY_FORM,
                },
            }
        },
        "features": {"io": ["tty", "streams"], "ports": False, "watch": False},
        **more,
    }


async def ask(client: httpx.AsyncClient) -> dict[str, Any]:
    answer = await client.get("/v1/capabilities")
    assert answer.status_code == 200
    body: dict[str, Any] = answer.json()
    return body


def curate() -> None:
    """Write one of everything that is offered, and of everything that is not."""
    env = {"TOKEN": sealed.seal_value(SECRET)}
    App.objects.create(name="zebra", title="Zebra", image="z.example/secret/z:1", env=env)
    App.objects.create(name="helper", description="Helps.", image="h:1", port=7000, position=-1)
    App.objects.create(name="bare", image="b:1", position=5)
    App.objects.create(name="off", image="o:1", port=7001, enabled=False)
    Terms.objects.create(title="Old", body="Be good.", version="1")
    Terms.objects.create(title="Terms", body="# Be *good*.", version="2", is_current=True)
    BaseImage.objects.create(reference="own.example/b:2", position=2)
    BaseImage.objects.create(reference="own.example/a:1", position=3)
    BaseImage.objects.create(reference="own.example/off:1", enabled=False)
    tags = {"1.2.3": (0, False), "1.2.2": (1, True), "1.2.1": (2, False), "edge": (3, False)}
    for name, (position, is_hidden) in tags.items():
        BaseImageTag.objects.create(
            repository="telorun/node", name=name, position=position, hidden=is_hidden
        )


async def test_a_bare_catalog_offers_the_default_image_and_no_more(
    client: httpx.AsyncClient,
) -> None:
    # No `apps`, `terms` or `agents` while there are none.
    assert await ask(client) == expected({"enum": [IMAGE]})


async def test_capabilities_have_exactly_the_contracts_form(client: httpx.AsyncClient) -> None:
    await awrite(curate)
    body = await ask(client)
    assert body == expected(
        # The default, the operator's own in their order, then the tags that the rules leave.
        {
            "enum": [
                IMAGE,
                "own.example/b:2",
                "own.example/a:1",
                "telorun/node:1.2.3",
                "telorun/node:1.2.1",
            ]
        },
        terms={"version": "2", "title": "Terms", "body": "# Be *good*."},
        apps=[
            {"name": "helper", "description": "Helps."},
            {"name": "zebra", "title": "Zebra"},
            {"name": "bare"},
        ],
    )
    assert list(body) == ["displayName", "description", "config", "features", "terms", "apps"]
    # Neither images nor env of apps, names included.
    for hidden in (SECRET, "TOKEN", "z.example"):
        assert hidden not in json.dumps(body)


class TestALockedImage:
    """The picker is off: what operators and Docker Hub have is not offered."""

    @pytest.fixture
    def config(self) -> Settings:
        return make_settings(base_image_catalog_enabled=False)

    async def test_the_form_cannot_change_it(self, client: httpx.AsyncClient) -> None:
        await awrite(curate)
        body = await ask(client)
        image = body["config"]["schema"]["properties"]["image"]
        assert image == {**IMAGE_FORM, "readOnly": True}
        # The rest of the catalog is offered all the same.
        assert [app["name"] for app in body["apps"]] == ["helper", "zebra", "bare"]


async def test_agents_are_the_apps_with_a_port_where_watch_sessions_are_on(
    transactional_db: None,
) -> None:
    config = make_settings()
    offer = await aread(read_offer, config)
    assert offers.features(offer, has_routes=False, is_watch_enabled=True) == {
        "io": ["tty", "streams"],
        "ports": False,
        "watch": True,
    }
    await awrite(curate)
    offer = await aread(read_offer, config)
    found = offers.features(offer, has_routes=False, is_watch_enabled=True)
    assert found["agents"] == ["helper"]
    assert "agents" not in offers.features(offer, has_routes=False, is_watch_enabled=False)


async def test_ports_are_a_feature_where_something_publishes_them(
    client: httpx.AsyncClient, running: Runtime
) -> None:
    assert (await ask(client))["features"]["ports"] is False
    settings = RoutingSettings(base_domain="apps.test")
    decision = Decision(Layer.INGRESS, "")
    cluster: Any = SimpleNamespace(managed_by="runner")
    opened = open_router(cluster, settings, decision, secret=b"secret", listen_port=None)
    async with opened as running.router:
        assert (await ask(client))["features"]["ports"] is True


CHANGES: dict[str, Callable[[], object]] = {
    "an app is disabled": lambda: App.objects.filter(name="zebra").update(enabled=False),
    "an app is renamed": lambda: App(
        pk=App.objects.get(name="bare").pk, name="b", image="b"
    ).save(),
    "an app is deleted": lambda: App.objects.get(name="bare").delete(),
    "terms are withdrawn": lambda: Terms.objects.update(is_current=False),
    "a tag is hidden": lambda: BaseImageTag.objects.filter(name="1.2.1").update(hidden=True),
    "a tag is shown": lambda: BaseImageTag.objects.filter(name="1.2.2").update(hidden=False),
    "an image is moved": lambda: BaseImage.objects.filter(position=3).update(position=1),
    "an image is deleted": lambda: BaseImage.objects.filter(position=3).delete(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_capabilities_are_resolved_at_each_request(
    client: httpx.AsyncClient, change: Callable[[], object]
) -> None:
    await awrite(curate)
    before = await ask(client)
    assert await ask(client) == before
    await awrite(change)
    assert await ask(client) != before


async def test_another_configuration_is_seen_at_once(
    client: httpx.AsyncClient, settings: Any
) -> None:
    await ask(client)
    settings.RUNNER = make_settings(image="other/image:1", display_name="Mine")
    body = await ask(client)
    assert body["displayName"] == "Mine"
    image = body["config"]["schema"]["properties"]["image"]
    assert (image["default"], image["enum"]) == ("other/image:1", ["other/image:1"])


async def test_other_methods_are_not_allowed(client: httpx.AsyncClient) -> None:
    answer = await client.delete("/v1/capabilities")
    assert (answer.status_code, answer.json()["error"]) == (405, "method_not_allowed")
    assert answer.headers["allow"] == "GET, HEAD, OPTIONS"
