"""What comes out of a whole platform, kept and searched for secrets that were marked.

The pages of the admin are read as a superuser reads them: every one that a link leads to.
"""

import base64
import os
import re
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Self
from urllib.parse import urldefrag, urljoin

import httpx

from telorunner.conf import ClusterKind
from telorunner.kube.client import ClusterSettings, open_cluster
from telorunner.kube.objects import list_objects
from tests.clients import Client
from tests.clusters import LOCAL_IMAGE, MANAGED_BY
from tests.serving import ROOT, Platform, Process

USER = {"DJANGO_SUPERUSER_USERNAME": "root", "DJANGO_SUPERUSER_PASSWORD": "a-long-password"}
ADMIN_SECONDS = 30.0
MAX_PAGES = 250
_NO_PAGE = re.compile(r"logout|[?&]o=|_changelist_filters")


def new_mark(name: str) -> str:
    """Return a secret that stands nowhere by chance."""
    return f"{name}{secrets.token_hex(12)}"


@dataclass
class Evidence:
    """Everything that came out of the platform, by where it came out."""

    marks: set[str]
    found: dict[str, bytes] = field(default_factory=dict)

    def keep(self, where: str, what: bytes | str) -> None:
        key = f"{len(self.found)} {where}"
        self.found[key] = what.encode() if isinstance(what, str) else what

    def leaks(self) -> list[str]:
        """Return where a secret stands, in whatever spelling."""
        return [
            f"{mark[:7]}… in {where}"
            for where, what in self.found.items()
            for mark in self.marks
            if any(spelling in what for spelling in _spellings(mark))
        ]

    def has(self, name: str) -> bool:
        """Tell whether something of this name was kept, so that a search of it says something."""
        return any(name in where for where in self.found)


def _spellings(mark: str) -> set[bytes]:
    """Return a text as itself and as base64 has it at each of its three places."""
    raw = mark.encode()
    shifted = (base64.b64encode(b"x" * shift + raw)[4:-4] for shift in range(3))
    return {raw, raw.hex().encode(), raw[::-1], *shifted}


@contextmanager
def cluster(environment: Mapping[str, str], evidence: Evidence) -> Iterator[Path]:
    """Run the local cluster in a process of its own; yield its kubeconfig."""
    process = Process("runcluster", environment=environment)
    try:
        process.wait_for(re.compile("kubeconfig"))
        yield Path(environment["RUNNER_DATA_DIR"]) / "localcluster" / "kubeconfig"
    finally:
        process.stop()
        evidence.keep("the output of runcluster", "".join(process.output))


@contextmanager
def platform(
    data_dir: Path, environment: Mapping[str, str], evidence: Evidence
) -> Iterator[Platform]:
    """Serve, and keep what the server has written."""
    opened = Platform(data_dir, environment)
    opened.start()
    process = opened.process
    assert process is not None
    try:
        yield opened
    finally:
        code = opened.stop()
        evidence.keep("the output of serve", "".join(process.output))
        assert code == 0, "".join(process.output)


async def manifests(kubeconfig: Path) -> str:
    """Return the pods that the cluster holds."""
    settings = ClusterSettings(
        kind=ClusterKind.KUBECONFIG,
        kubeconfig=str(kubeconfig),
        namespace="telo-sessions",
        managed_by=MANAGED_BY,
    )
    async with open_cluster(settings) as opened:
        pods = await list_objects(opened, "pods", selector="")
    return repr(pods)


def manage(environment: Mapping[str, str], *arguments: str, given: str | None = None) -> str:
    """Run a command of manage.py and return what it prints."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), *arguments],
        env={**os.environ, **environment},
        input=given,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def make_superuser(environment: Mapping[str, str]) -> None:
    manage({**environment, **USER}, "createsuperuser", "--noinput", "--email", "")


def search_files(data_dir: Path, evidence: Evidence) -> None:
    """Keep all files of the data folder but the local cluster's."""
    for path in data_dir.rglob("*"):
        if path.is_file() and "localcluster" not in path.relative_to(data_dir).parts:
            evidence.keep(f"the file {path.relative_to(data_dir)}", path.read_bytes())


class Watched(Client):
    """A client whose every answer is kept, and which is closed at the end of the block."""

    def __init__(self, url: str, evidence: Evidence) -> None:
        super().__init__(url, LOCAL_IMAGE)
        self.evidence = evidence
        self.http.event_hooks["response"].append(self._keep)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _keep(self, answer: httpx.Response) -> None:
        where = f"{answer.request.method} {answer.request.url.path}"
        self.evidence.keep(f"the headers of {where}", str(answer.headers))
        if "event-stream" not in answer.headers.get("content-type", ""):
            self.evidence.keep(where, await answer.aread())

    async def look(self, session: str) -> bytes:
        """Read all that clients can read of a session; return its output."""
        for number, event in await self.events(session):
            self.evidence.keep(f"event {number} of {session}", repr(event))
        await self.http.get(f"/v1/sessions/{session}")
        async with self.terminal(session) as terminal:
            # A program that is stopped, or never started, may have shown nothing.
            assert await terminal.drain() in {1000, 4410}
        self.evidence.keep(f"the terminal of {session}", bytes(terminal.output))
        return bytes(terminal.output)


class Form(HTMLParser):
    """The fields of a page's form as a browser would send them untouched, without its buttons."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.fields: dict[str, str] = {}
        self._select = self._area = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        name, value = given.get("name") or "", given.get("value") or ""
        if tag == "select":
            self._select = name
        elif tag == "textarea":
            self._area = name
            self.fields[name] = ""
        elif tag == "option" and self._select and "selected" in given:
            self.fields[self._select] = value
        elif tag == "input" and name and given.get("type") not in {"submit", "file", "image"}:
            if given.get("type") not in {"checkbox", "radio"}:
                self.fields[name] = value
            elif "checked" in given:
                self.fields[name] = value or "on"

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea":
            # Browsers leave out the line end that HTML puts first.
            self.fields[self._area] = self.fields[self._area].removeprefix("\n")
            self._area = ""
        elif tag == "select":
            self._select = ""

    def handle_data(self, data: str) -> None:
        if self._area:
            self.fields[self._area] += data


class Admin:
    """A superuser of the admin, whose every page is kept."""

    def __init__(self, url: str, evidence: Evidence) -> None:
        self.evidence = evidence
        self.http = httpx.AsyncClient(
            base_url=url,
            trust_env=False,
            follow_redirects=True,
            timeout=ADMIN_SECONDS,
            event_hooks={"response": [self._keep]},
        )

    async def __aenter__(self) -> Self:
        first = await self.submit(
            "/admin/login/?next=/admin/",
            username=USER["DJANGO_SUPERUSER_USERNAME"],
            password=USER["DJANGO_SUPERUSER_PASSWORD"],
        )
        assert "/admin/logout/" in first.text
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.aclose()

    async def _keep(self, answer: httpx.Response) -> None:
        self.evidence.keep(f"the headers of {answer.request.url.path}", str(answer.headers))
        page = await answer.aread()
        self.evidence.keep(f"the page {answer.request.method} {answer.request.url.path}", page)

    async def form(self, path: str) -> dict[str, str]:
        """Return a page's form, untouched."""
        return Form((await self.http.get(path)).text).fields

    async def submit(self, path: str, **changes: str) -> httpx.Response:
        """Send a page's form with some fields changed."""
        return await self.http.post(path, data={**await self.form(path), **changes})

    @staticmethod
    def page_of(listed: httpx.Response, path: str, name: str) -> str:
        """Return the address of a row's page, as the list at a path links to it by its name."""
        link = re.search(rf'href="({path}\d+/change/)[^"]*">{name}<', listed.text)
        assert link, f"{name} is not listed"
        return link[1]

    async def read_all(self) -> int:
        """Read every page that a link leads to; return how many."""
        found = ["/admin/", "/admin/runner_sessions/session/?q=a"]
        for path in found:
            page = await self.http.get(path)
            assert page.status_code == 200, path
            for link in re.findall(r'href="([^"]+)"', page.text):
                target, _ = urldefrag(urljoin(path, link.replace("&amp;", "&")))
                # One filter of a list is tried, not each with each; another order is no other page.
                is_combined = "?" in target and "?" in path
                is_page = target.startswith("/admin/") and not _NO_PAGE.search(target)
                if is_page and not is_combined and target not in found:
                    found.append(target)
            assert len(found) < MAX_PAGES
        return len(found)
