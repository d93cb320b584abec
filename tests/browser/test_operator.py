"""An operator's day in the admin, in a real browser: by mouse, on a phone and by keyboard."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Locator, Page, expect

from tests.browser.desk import PHONE, Desk, open_desk
from tests.browser.office import APP_IMAGE, OPERATOR, PASSWORD
from tests.clients import Client
from tests.clusters import LOCAL_IMAGE
from tests.evidence import new_mark
from tests.hub import FakeHub
from tests.serving import Platform

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

REFRESH_SECONDS = 30.0
TERMS = "# Be kind\n\nNobody *mines* here. <b>Not even you.</b>"
TAGS = "/admin/catalog/baseimagetag/"
SESSIONS = "/admin/runner_sessions/session/"
PAGES = (
    "/admin/",
    "/admin/catalog/app/",
    "/admin/catalog/app/add/",
    "/admin/catalog/terms/",
    "/admin/catalog/terms/add/",
    "/admin/catalog/baseimage/",
    "/admin/catalog/baseimage/add/",
    TAGS,
    SESSIONS,
)
MAX_TABS = 120


@pytest.fixture(name="client")
async def client_of_the_platform(platform: Platform) -> AsyncIterator[Client]:
    client = Client(platform.url, LOCAL_IMAGE)
    yield client
    await client.close()


async def offered_images(client: Client) -> list[str]:
    answer = (await client.http.get("/v1/capabilities")).json()
    images: list[str] = answer["config"]["schema"]["properties"]["image"]["enum"]
    return images


async def add_an_app(desk: Desk, secret: str) -> None:
    page = desk.page
    await page.get_by_role("link", name="Apps").first.click()
    await page.get_by_role("link", name="Add app").click()
    await page.fill("#id_name", "greeter")
    await page.fill("#id_title", "Greeter")
    await page.fill("#id_image", APP_IMAGE)
    await desk.press("Add another variable")
    await page.get_by_label("Name of a new variable").last.fill("GREETER")
    await page.get_by_label("Value of a new variable").last.fill(secret)
    await desk.see("an app is written")
    await desk.press("Save")
    await desk.expect_message("was added successfully")
    await desk.see("the app is listed")
    await row_of(page, "greeter").get_by_role("link").click()
    await expect(page.get_by_label("New value of GREETER")).to_have_value("")
    assert secret not in await page.content()
    await desk.see("the app has its variable")


async def publish_terms(desk: Desk) -> None:
    page = desk.page
    await desk.go("/admin/catalog/terms/add/")
    await page.fill("#id_body", TERMS)
    await desk.press("Preview")
    shown = page.locator(".terms-preview")
    await expect(shown.get_by_role("heading", name="Be kind")).to_be_visible()
    await expect(shown).to_contain_text("<b>Not even you.</b>")
    assert await shown.locator("em").inner_text() == "mines"
    await desk.see("terms are previewed")
    await desk.press("Publish")
    await desk.expect_message("is current")
    await desk.see("terms are published")


async def fetch_tags(desk: Desk, hub: FakeHub, new: str) -> None:
    hub.tags = [new, *hub.tags]
    await desk.go(TAGS)
    await desk.see("tags before")
    await desk.press("Refresh now")
    await desk.expect_message("fetched anew")
    async with asyncio.timeout(REFRESH_SECONDS):
        while await row_of(desk.page, new).count() == 0:
            await desk.page.reload()
    await desk.see("tags are fetched")


async def hide_tag(desk: Desk, name: str) -> None:
    await row_of(desk.page, name).get_by_role("checkbox").check()
    await desk.page.locator("select[name=action]").select_option(label="Hide selected tags")
    await desk.press("Go")
    await desk.expect_message("1 tag is hidden")
    await desk.see("a tag is hidden")


async def run_the_app(client: Client) -> str:
    path = "/v1/apps/greeter/sessions"
    refused = await client.http.post(path)
    assert refused.status_code == 428, refused.text
    terms = refused.json()["terms"]
    assert terms["body"] == TERMS
    accepted = {"x-telo-accepted-terms": terms["version"]}
    answer = await client.http.post(path, headers=accepted)
    assert answer.status_code == 201, answer.text
    session = str(answer.json()["sessionId"])
    await client.until_running(session)
    return session


async def stop_the_session(desk: Desk, session: str, secret: str) -> None:
    page = desk.page
    await desk.go(SESSIONS)
    row = row_of(page, session)
    await expect(row).to_contain_text("running")
    await expect(row).to_contain_text("greeter")
    await desk.see("a session runs")
    await row.get_by_role("link", name=session).click()
    await desk.expect_text("#content", "GREETER")
    assert secret not in await page.content()
    await desk.see("the session's page")
    await page.get_by_role("link", name="Stop").click()
    await desk.expect_text("#content", "This session will be asked to stop")
    await desk.see("is it meant")
    await desk.press("Stop session")
    await desk.expect_message("1 session was asked to stop")


def row_of(page: Page, text: str) -> Locator:
    return page.locator("#result_list tbody tr").filter(has=page.get_by_text(text, exact=True))


async def misbehave(platform: Platform, artifacts: Path) -> None:
    async with open_desk(platform.url, artifacts) as desk:
        await desk.go("/admin/login/")
        await desk.page.evaluate(
            "document.body.append(Object.assign(document.createElement('script'), {text: '1'}))"
        )
        await desk.page.goto("about:blank")
        async with desk.page.expect_event("requestfailed"):
            await desk.page.set_content('<img src="http://elsewhere.invalid/">')


async def test_what_is_wrong_at_a_desk_is_noticed(platform: Platform, artifacts: Path) -> None:
    with pytest.raises(AssertionError) as caught:
        await misbehave(platform, artifacts)
    told = str(caught.value)
    assert "Content Security Policy" in told
    assert "asked for http://elsewhere.invalid/" in told


async def test_an_operators_day(
    platform: Platform, hub: FakeHub, artifacts: Path, client: Client
) -> None:
    secret = new_mark("secret")
    async with open_desk(platform.url, artifacts) as desk:
        await desk.log_in(OPERATOR)
        await expect(desk.page.get_by_role("link", name="Users", exact=True)).to_have_count(0)
        await desk.see("the first page")
        await add_an_app(desk, secret)
        capabilities = (await client.http.get("/v1/capabilities")).json()
        assert capabilities["apps"] == [{"name": "greeter", "title": "Greeter"}]
        await publish_terms(desk)
        await fetch_tags(desk, hub, "1.4.0")
        assert "telorun/node:1.2.0" in await offered_images(client)
        await hide_tag(desk, "1.2.0")
        images = await offered_images(client)
        assert "telorun/node:1.4.0" in images
        assert "telorun/node:1.2.0" not in images
        session = await run_the_app(client)
        await stop_the_session(desk, session, secret)
        assert await client.status(session) == {"kind": "stopped"}
        await desk.page.reload()
        await desk.expect_text("#content", f"by {OPERATOR}")
        await desk.see("the session has stopped")
        await desk.go("/admin/catalog/terms/")
        await expect(
            row_of(desk.page, "Usage agreement").locator(".field-accepted_count")
        ).to_have_text("1")
        await desk.see("the terms were accepted")


async def test_a_phone_is_enough(platform: Platform, artifacts: Path) -> None:
    async with open_desk(platform.url, artifacts, PHONE) as desk:
        await desk.log_in(OPERATOR)
        for path in PAGES:
            await desk.go(path)
            await desk.see(path)
            await desk.expect_it_fits()
        await desk.go("/admin/")
        await desk.page.locator(".model-app").get_by_role("link", name="Add").tap()
        await desk.page.fill("#id_name", "pocket")
        await desk.page.fill("#id_image", APP_IMAGE)
        await desk.page.get_by_label("Name of a new variable").first.fill("POCKET")
        await desk.page.get_by_label("Value of a new variable").first.fill("small")
        await desk.see("an app is written")
        await desk.page.get_by_role("button", name="Save", exact=True).tap()
        await desk.expect_message("was added successfully")


async def tab_to(page: Page, selector: str) -> None:
    """Press Tab until an element has the focus; fail where the keyboard never gets there."""
    for _ in range(MAX_TABS):
        await page.keyboard.press("Tab")
        if await page.evaluate("wanted => document.activeElement.matches(wanted)", selector):
            return
    raise AssertionError(f"{selector} cannot be reached by Tab on {page.url}")


async def test_the_keyboard_is_enough(platform: Platform, artifacts: Path, client: Client) -> None:
    image = "registry.example/team/telo:1.2"
    async with open_desk(platform.url, artifacts) as desk:
        page = desk.page
        await desk.go("/admin/")
        await page.keyboard.type(OPERATOR)
        await page.keyboard.press("Tab")
        await page.keyboard.type(PASSWORD)
        await page.keyboard.press("Enter")
        await desk.expect_text("#user-tools", OPERATOR)
        await tab_to(page, "#content-main .model-baseimage a.addlink")
        await desk.see("the link has the focus")
        await page.keyboard.press("Enter")
        await expect(page.locator("#id_reference")).to_be_visible()
        await tab_to(page, "#id_reference")
        await page.keyboard.type("not an image")
        await page.keyboard.press("Enter")
        await desk.expect_text(".errornote", "correct the error")
        await tab_to(page, "#id_reference")
        await page.keyboard.press("Control+A")
        await page.keyboard.type(image)
        await tab_to(page, "input[name=_save]")
        await desk.see("the button has the focus")
        await page.keyboard.press("Enter")
        await desk.expect_message("was added successfully")
    assert image in await offered_images(client)
