"""Marked secrets go through a whole platform, and then all that it left is searched for them.

Where a secret has to be is left out, and nothing else: what the local cluster keeps (a pod's
manifest names its environment, as it does in etcd; Kubernetes is what keeps readers from it), and
the sealed value in the database, which must not be there in clear.
"""

import base64
import os
import re
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, urljoin

import httpx
import pytest

from telorunner.conf import ClusterKind
from telorunner.kube.client import ClusterSettings, open_cluster
from telorunner.kube.objects import list_objects
from tests.clients import Client
from tests.clusters import LOCAL_IMAGE, MANAGED_BY
from tests.serving import KERNEL_DIR, ROOT, Platform, Process

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

ENV, REGISTRY, OPERATOR, CONTENTS = (
    f"{name}{secrets.token_hex(12)}" for name in ("envmark", "regmark", "opsmark", "filemark")
)
USER = {"DJANGO_SUPERUSER_USERNAME": "root", "DJANGO_SUPERUSER_PASSWORD": "a-long-password"}
MAX_PAGES = 40

# What must have been searched.
SOURCES = ("the output of serve", "the output of runcluster", "the file telorunner.sqlite3")

WAITS = "import sys\nprint('ready', flush=True)\nsys.stdin.readline()\n"
ENDS = "raise SystemExit({code})\n"
RAISES = "import os\nassert os.environ['SECRET']\nraise RuntimeError('crash')\n"
TOKEN = re.compile(r"\b[0-9a-f]{48}\b")


@dataclass
class Evidence:
    """Everything that came out of the platform, by where it came out."""

    found: dict[str, bytes] = field(default_factory=dict)
    marks: set[str] = field(default_factory=lambda: {ENV, REGISTRY, OPERATOR, CONTENTS})

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


def _spellings(mark: str) -> set[bytes]:
    """Return a text as itself and as base64 has it at each of its three places."""
    raw = mark.encode()
    shifted = (base64.b64encode(b"x" * shift + raw)[4:-4] for shift in range(3))
    return {raw, raw.hex().encode(), raw[::-1], *shifted}


def test_a_leak_would_be_found() -> None:
    for what in (
        ENV,
        f"x{ENV}",
        base64.b64encode(f"{{{ENV}}}".encode()).decode(),
        ENV.encode().hex(),
    ):
        evidence = Evidence()
        evidence.keep("somewhere", what)
        assert evidence.leaks() == [f"{ENV[:7]}… in 0 somewhere"]


@contextmanager
def cluster(environment: dict[str, str], evidence: Evidence) -> Iterator[Path]:
    process = Process("runcluster", environment=environment)
    try:
        process.wait_for(re.compile("kubeconfig"))
        yield Path(environment["RUNNER_DATA_DIR"]) / "localcluster" / "kubeconfig"
    finally:
        process.stop()
        evidence.keep("the output of runcluster", "".join(process.output))


@contextmanager
def platform(data_dir: Path, environment: dict[str, str], evidence: Evidence) -> Iterator[Platform]:
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


class Watched(Client):
    """A client that keeps every answer as evidence."""

    def __init__(self, url: str, evidence: Evidence) -> None:
        super().__init__(url, LOCAL_IMAGE)
        self.evidence = evidence
        self.http.event_hooks = {"response": [self._keep]}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _keep(self, answer: httpx.Response) -> None:
        where = f"{answer.request.method} {answer.request.url.path}"
        self.evidence.keep(f"the headers of {where}", str(answer.headers))
        if "event-stream" not in answer.headers.get("content-type", ""):
            self.evidence.keep(where, await answer.aread())

    async def start(self, program: str, **fields: Any) -> str:
        """Create a session that is full of secrets."""
        files = [("telo.yaml", program), ("secret.txt", CONTENTS)]
        given: dict[str, Any] = {
            "bundle": {
                "entryRelativePath": "telo.yaml",
                "files": [{"relativePath": path, "contents": text} for path, text in files],
            },
            "env": {"SECRET": ENV, "OTHER": f"https://user:{ENV}@host/"},
            "config": {
                "image": self.image,
                "pullPolicy": "missing",
                "registryUrl": f"https://user:{REGISTRY}@registry.example/",
            },
        }
        return await self.create(program, **{**given, **fields})

    async def look(self, session: str) -> None:
        """Read all that clients can read of a session, but what its program has printed."""
        for number, event in await self.events(session):
            self.evidence.keep(f"event {number} of {session}", repr(event))
        await self.http.get(f"/v1/sessions/{session}")
        async with self.terminal(session) as terminal:
            # A program that is stopped, or never started, may have shown nothing.
            assert await terminal.drain() in {1000, 4410}
        self.evidence.keep(f"the terminal of {session}", bytes(terminal.output))


def wrong_bodies() -> Iterator[bytes]:
    """Yield requests that have a secret where it is refused."""
    env, url = f'"{ENV}"', f'"{REGISTRY}"'
    good = {"env": f'{{"A": {env}}}', "files": "[]", "config": f'{{"registryUrl": {url}}}'}
    yield f'{{"env": {good["env"]}'.encode()
    for env_given in (env, f"[{env}]", f'{{"A": [{env}]}}', f'{{"A": {{"B": {env}}}}}'):
        yield f'{{"env": {env_given}}}'.encode()
    for text in (f"{ENV}\\u0000", f"{ENV}\\ud800", ENV + "x" * 140_000):
        yield f'{{"bundle": {{}}, "env": {{"A": "{text}"}}, "config": {{}}}}'.encode()
    for given in (f"[{url}]", f'"{REGISTRY}{"x" * 3000}"', f'"{REGISTRY}\\u0000"'):
        yield f'{{"env": {good["env"]}, "config": {{"registryUrl": {given}}}}}'.encode()
    for encoding in ("base64", "utf8", CONTENTS):
        file = f'{{"relativePath": "a", "encoding": "{encoding}", "contents": "{CONTENTS}\\u0000"}}'
        yield f'{{"bundle": {{"files": [{file}]}}, "env": {good["env"]}}}'.encode()
    yield f'{{"limits": {{"cpu": {env}, "memory": {env}}}, "inspect": {env}}}'.encode()
    yield f'{{"ports": [{{"port": {env}, "protocol": {env}}}], "apps": {env}}}'.encode()


async def ask_wrongly(client: Watched) -> None:
    """Send secrets where they do not belong."""
    for body in wrong_bodies():
        headers = {"content-type": "application/json"}
        answer = await client.http.post("/v1/sessions", content=body, headers=headers)
        assert answer.status_code == 400, answer.text
    for path in ("/v1/sessions", "/v1/probe", f"/v1/sessions/abc?x={ENV}", f"/v1/x?token={ENV}"):
        await client.http.get(path, headers={"authorization": f"Bearer {ENV}", "cookie": ENV})
        await client.http.post(path, content=ENV, headers={"last-event-id": ENV})
    await client.http.get(f"/internal/bundles/{'a' * 12}?token={ENV}")
    for path in ("/v1/capabilities", "/v1/health", "/readyz", "/v1/openapi.json", "/v1/docs"):
        await client.http.get(path)


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


async def read_admin(url: str, evidence: Evidence) -> int:
    """Log in as a superuser and read every page that a link leads to; return how many."""
    async with httpx.AsyncClient(base_url=url, trust_env=False, follow_redirects=True) as client:
        await client.get("/admin/")
        form = {
            "username": USER["DJANGO_SUPERUSER_USERNAME"],
            "password": USER["DJANGO_SUPERUSER_PASSWORD"],
            "csrfmiddlewaretoken": client.cookies["csrftoken"],
            "next": "/admin/",
        }
        first = await client.post("/admin/login/", data=form)
        assert "Site administration" in first.text
        found, read = ["/admin/", f"/admin/runner_sessions/session/?q={quote('a')}"], 0
        for path in found:
            page = await client.get(path)
            assert page.status_code == 200, path
            evidence.keep(f"the page {path}", page.text)
            read += 1
            for link in re.findall(r'href="([^"]+)"', page.text):
                target = urljoin(path, link.replace("&amp;", "&"))
                is_page = target.startswith("/admin/") and "logout" not in target
                if is_page and target not in found and len(found) < MAX_PAGES:
                    found.append(target)
    return read


def make_superuser(environment: dict[str, str]) -> None:
    subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), "createsuperuser", "--noinput", "--email", ""],
        env={**os.environ, **environment, **USER},
        capture_output=True,
        check=True,
        timeout=60,
    )


async def run_sessions(client: Watched, kubeconfig: Path) -> str:
    """Let sessions end in each way; return one that still runs."""
    lasting = await client.start(WAITS)
    await client.until_running(lasting)
    # They did go through, and the token of a fetched delivery stands there too.
    pods = await manifests(kubeconfig)
    assert ENV in pods
    assert REGISTRY in pods
    client.evidence.marks |= set(TOKEN.findall(pods))
    stopped = await client.start(WAITS)
    await client.until_running(stopped)
    await client.http.delete(f"/v1/sessions/{stopped}")
    ended = [
        stopped,
        await client.start(ENDS.format(code=3)),
        await client.start(RAISES),
        await client.start(ENDS.format(code=0), limits={"ttlSeconds": 1}),
    ]
    for session in ended:
        await client.look(session)
    return lasting


def search_files(data_dir: Path, evidence: Evidence) -> None:
    """Keep all files of the data folder but the local cluster's."""
    for path in data_dir.rglob("*"):
        if path.is_file() and "localcluster" not in path.relative_to(data_dir).parts:
            evidence.keep(f"the file {path.relative_to(data_dir)}", path.read_bytes())


@pytest.mark.parametrize(
    ("level", "delivery"), [("debug", "fetch"), ("info", "inline"), ("debug", "inline")]
)
async def test_a_secret_stands_nowhere(
    tmp_path: Path, times: Callable[[int, int], int], level: str, delivery: str
) -> None:
    if (level, delivery) != ("debug", "fetch") and not times(1, 0):
        pytest.skip("needs --full-counts")
    evidence = Evidence()
    environment = {
        "RUNNER_CLUSTER": "local",
        "RUNNER_DATA_DIR": str(tmp_path),
        "RUNNER_BUNDLE_DELIVERY": delivery,
        "TELO_REGISTRY_URL": f"https://user:{OPERATOR}@registry.example/",
        "LOG_LEVEL": level,
        "PATH": f"{KERNEL_DIR}:{os.environ['PATH']}",
        "PORT": "0",
    }
    async with AsyncExitStack() as stack:
        kubeconfig = stack.enter_context(cluster(environment, evidence))
        with platform(tmp_path, environment, evidence) as first:
            make_superuser(environment)
            client = await stack.enter_async_context(Watched(first.url, evidence))
            lasting = await run_sessions(client, kubeconfig)
            assert len(evidence.marks) > 4 or delivery == "inline"
            await ask_wrongly(client)
            search_files(tmp_path, evidence)
            assert await read_admin(first.url, evidence) > 10
        # Another key, and an image that cannot be pulled.
        changed = {
            "DJANGO_SECRET_KEY": secrets.token_hex(32),
            "RUNNER_IMAGE": "nowhere.invalid/image:1",
            "RUNNER_IMAGE_PULL_GRACE_SECONDS": "0",
        }
        with platform(tmp_path, {**environment, **changed}, evidence) as second:
            client = await stack.enter_async_context(Watched(second.url, evidence))
            client.image = changed["RUNNER_IMAGE"]
            await client.look(await client.start(WAITS))
            await client.http.delete(f"/v1/sessions/{lasting}")
            await client.look(lasting)
            search_files(tmp_path, evidence)
    search_files(tmp_path, evidence)
    assert evidence.leaks() == []
    for name in (*SOURCES, "event 1"):
        assert any(name in where for where in evidence.found), name
