"""An operator's desk: a browser on the admin, which takes note of whatever is wrong.

A request that leaves this machine, a script that raises, and whatever the console complains of, a
violation of the content security policy among it, are problems; any of them fails the test.
"""

import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from playwright.async_api import (
    BrowserContext,
    ConsoleMessage,
    Page,
    Route,
    async_playwright,
    expect,
)

from tests.browser.office import PASSWORD

CHROMIUM = shutil.which("chromium")
TIMEOUT_MS = 15_000
DESKTOP = (1280, 900)
PHONE = (390, 844)
# Names lead nowhere, so that not even the browser itself can reach anything but this machine.
ARGUMENTS = ["--no-sandbox", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]


@dataclass
class Desk:
    """A page of the admin, the folder for what it looks like, and what was wrong with it."""

    page: Page
    url: str
    artifacts: Path
    problems: list[str] = field(default_factory=list)
    _steps: int = 0

    async def see(self, step: str) -> None:
        """Keep what the page looks like now."""
        self._steps += 1
        name = f"{self._steps:02}-{re.sub('[^a-z0-9]+', '-', step.lower()).strip('-')}.png"
        await self.page.screenshot(path=self.artifacts / name, full_page=True)

    async def go(self, path: str) -> None:
        """Open an address of the admin."""
        answer = await self.page.goto(f"{self.url}{path}")
        assert answer is not None
        assert answer.ok, f"{path}: {answer.status}"
        assert "content-security-policy" in answer.headers, path

    async def log_in(self, user: str) -> None:
        """Log in by the form, from wherever it leads."""
        await self.go("/admin/")
        await self.page.get_by_label("Username").fill(user)
        await self.page.get_by_label("Password").fill(PASSWORD)
        await self.see("the log-in")
        await self.page.get_by_role("button", name="Log in").click()
        await self.expect_text("#user-tools", user)

    async def press(self, name: str) -> None:
        """Press a button by what stands on it."""
        await self.page.get_by_role("button", name=name, exact=True).click()

    async def expect_text(self, selector: str, text: str) -> None:
        """Wait until an element holds a text."""
        await expect(self.page.locator(selector).first).to_contain_text(text)

    async def expect_message(self, text: str) -> None:
        """Wait for what Django's admin reports of an action."""
        await self.expect_text(".messagelist", text)

    async def expect_it_fits(self) -> None:
        """Fail where the page is wider than the screen: nobody scrolls sideways on a phone."""
        widths = await self.page.evaluate(
            "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
        )
        assert widths[0] <= widths[1], f"{self.page.url} is {widths[0]} wide on {widths[1]}"

    def _note_console(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.problems.append(f"console of {self.page.url}: {message.text}")

    async def _watch(self, context: BrowserContext) -> None:
        async def check(route: Route) -> None:
            request = route.request
            if urlsplit(request.url).hostname != "127.0.0.1":
                self.problems.append(f"{self.page.url} asked for {request.url}")
                await route.abort()
            elif request.is_navigation_request() or request.method != "GET":
                await route.continue_()
            else:
                # NB: what pages load is fetched outside of chromium, which lets all that waits
                # fail when any interface of the machine changes, such as a pod's.
                await route.fulfill(response=await route.fetch())

        await context.route("**/*", check)
        self.page.on("console", self._note_console)
        self.page.on("pageerror", lambda error: self.problems.append(f"script: {error}"))


@asynccontextmanager
async def open_desk(
    url: str,
    artifacts: Path,
    size: tuple[int, int] = DESKTOP,
    scheme: Literal["light", "dark"] = "light",
) -> AsyncIterator[Desk]:
    """Open a browser window of a size and a colour scheme; a narrow one is a phone's."""
    expect.set_options(timeout=TIMEOUT_MS)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        try:
            is_phone = size == PHONE
            context = await browser.new_context(
                viewport={"width": size[0], "height": size[1]},
                is_mobile=is_phone,
                has_touch=is_phone,
                color_scheme=scheme,
                locale="en-GB",
            )
            context.set_default_timeout(TIMEOUT_MS)
            desk = Desk(await context.new_page(), url, artifacts)
            await desk._watch(context)
            try:
                yield desk
            except BaseException:
                await desk.see("where it failed")
                raise
            assert not desk.problems, "\n".join(desk.problems)
        finally:
            # What is still being fetched is of no use any more.
            for context in browser.contexts:
                await context.unroute_all(behavior="ignoreErrors")
            await browser.close()
