"""Every page of the admin on three screens, light and dark: nothing cut, nothing too faint."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

import pytest
from playwright.async_api import expect

from tests.browser.desk import PHONE, Desk, open_desk
from tests.browser.office import LONG_APP, LONG_IMAGE, LONG_VARIABLE, OPERATOR, fill_catalog
from tests.browser.sight import cut_parts, faint_texts
from tests.clients import Client
from tests.clusters import LOCAL_IMAGE
from tests.serving import Platform

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

SESSIONS = "/admin/runner_sessions/session/"
LISTS = (
    "/admin/catalog/app/",
    "/admin/catalog/terms/",
    "/admin/catalog/baseimage/",
    "/admin/catalog/baseimagetag/",
    SESSIONS,
)
PAGES = (
    "/admin/",
    "/admin/catalog/app/add/",
    "/admin/catalog/terms/add/",
    "/admin/catalog/terms/withdraw/",
    f"{SESSIONS}?q=zzz",
)


@pytest.fixture(scope="module", name="full_platform")
def platform_with_long_names(platform: Platform) -> Platform:
    fill_catalog(platform.environment)
    return platform


@pytest.fixture(name="client")
async def client_of_the_platform(platform: Platform) -> AsyncIterator[Client]:
    client = Client(platform.url, LOCAL_IMAGE)
    yield client
    await client.close()


async def start_the_app(client: Client) -> str:
    """Start a session of the app; that its image cannot be pulled keeps it as it is."""
    terms = (await client.http.get("/v1/capabilities")).json()["terms"]["version"]
    headers = {"x-telo-accepted-terms": terms}
    made = await client.http.post(f"/v1/apps/{LONG_APP}/sessions", headers=headers)
    assert made.status_code == 201, made.text
    session: str = made.json()["sessionId"]
    return session


async def addresses(desk: Desk) -> list[str]:
    """Return the address of each kind of page, and of one row of each list."""
    found = [*PAGES, *LISTS]
    for path in LISTS:
        await desk.go(path)
        links = desk.page.locator("#result_list tbody th a")
        assert await links.count(), f"{path} is empty"
        found.append(str(await links.last.get_attribute("href")))
    return found


async def look(desk: Desk) -> list[str]:
    """Return what is wrong with the page that is shown."""
    await desk.expect_it_fits()
    wrong = [*await cut_parts(desk.page), *await faint_texts(desk.page)]
    return [f"{desk.page.url}: {one}" for one in wrong]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [(1280, 800), (1440, 900), PHONE])
async def test_every_page_can_be_read(
    full_platform: Platform,
    artifacts: Path,
    client: Client,
    size: tuple[int, int],
    scheme: Literal["light", "dark"],
) -> None:
    session = await start_the_app(client)
    wrong: list[str] = []
    async with open_desk(full_platform.url, artifacts, size, scheme) as desk:
        await desk.go("/admin/")
        wrong += await look(desk)
        await desk.log_in(OPERATOR)
        for path in await addresses(desk):
            await desk.go(path)
            await desk.see(path)
            wrong += await look(desk)
    await client.http.delete(f"/v1/sessions/{session}")
    assert not wrong, "\n".join(wrong)


async def test_a_form_that_was_refused_can_be_read(
    full_platform: Platform, artifacts: Path
) -> None:
    async with open_desk(full_platform.url, artifacts, (1280, 800), "dark") as desk:
        await desk.log_in(OPERATOR)
        await desk.go("/admin/catalog/app/add/")
        page = desk.page
        await page.fill("#id_name", "Not A Name")
        await page.fill("#id_image", LONG_IMAGE)
        await page.get_by_label("Name of a new variable").first.fill(LONG_VARIABLE)
        await desk.press("Save")
        await desk.expect_text(".errornote", "correct the errors")
        await desk.see("refused")
        assert await look(desk) == []
        # What needs something is marked, and no row beside it.
        rows = page.locator(".env-new")
        await expect(rows.first).to_have_class("env-new env-wrong")
        await expect(rows.last).to_have_class("env-new")


async def test_what_is_cut_or_faint_is_noticed(full_platform: Platform, artifacts: Path) -> None:
    async with open_desk(full_platform.url, artifacts) as desk:
        await desk.log_in(OPERATOR)
        await desk.go(LISTS[0])
        assert await look(desk) == []
        await desk.page.evaluate("document.querySelector('.results').style.width = '200px'")
        await desk.page.evaluate("document.querySelector('h1').style.color = '#bbb'")
        cut, faint = await cut_parts(desk.page), await faint_texts(desk.page)
        assert any("results" in one for one in cut), cut
        assert faint == ['1.9 to 1: H1 "Apps"']


async def test_filters_of_a_phone_are_folded_until_they_are_wanted(
    full_platform: Platform, artifacts: Path
) -> None:
    async with open_desk(full_platform.url, artifacts, PHONE) as desk:
        await desk.log_in(OPERATOR)
        await desk.go(LISTS[0])
        choice = desk.page.get_by_role("link", name="environment", exact=True)
        await expect(choice).to_be_hidden()
        await desk.page.get_by_role("heading", name="Filter").tap()
        await choice.tap()
        await desk.expect_text(".empty-list", "Nothing matches what you look for.")
        # What was opened stays open on the next page.
        await expect(choice).to_be_visible()
        await desk.see("filtered")
