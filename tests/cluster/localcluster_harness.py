"""The local cluster's API server over real HTTPS, with a node in the test's own hands."""

import asyncio
import io
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from telorunner.localcluster.cluster import ClusterSettings, LocalCluster, open_local_cluster
from telorunner.localcluster.node.container import ContainerUnavailable
from telorunner.localcluster.node.logs import LogRequest
from telorunner.localcluster.node.settings import NodeSettings
from telorunner.localcluster.store import Store

NAMESPACE = "apps"
WAIT_SECONDS = 10.0
MERGE = "application/merge-patch+json"

Object = dict[str, Any]


def make_pod(name: str = "one", **spec: Any) -> Object:
    containers = [{"name": "session", "image": "busybox:1"}]
    return {"metadata": {"name": name}, "spec": {"containers": containers, **spec}}


def make_configmap(name: str = "one", **metadata: Any) -> Object:
    return {"metadata": {"name": name, **metadata}, "data": {"a": "b"}}


@dataclass
class FakeAttachment:
    """What a client that is attached to a fake container sends, and what it is sent."""

    container: "FakeContainer"
    output: asyncio.Queue[tuple[int, bytes] | None] = field(default_factory=asyncio.Queue)

    async def read(self) -> tuple[int, bytes] | None:
        return await self.output.get()

    async def write_stdin(self, data: bytes) -> None:
        await self.container.reads.wait()
        self.container.received += data
        self.container.news.set()

    async def close_stdin(self) -> None:
        self.container.is_stdin_closed = True
        self.container.news.set()


@dataclass
class FakeContainer:
    """A container that does what the test says."""

    tty: bool = False
    received: bytearray = field(default_factory=bytearray)
    sizes: list[tuple[int, int]] = field(default_factory=list)
    is_stdin_closed: bool = False
    attachments: list[FakeAttachment] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    reads: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.reads.set()

    @asynccontextmanager
    async def attach(self) -> AsyncIterator[FakeAttachment]:
        attachment = FakeAttachment(self)
        self.attachments.append(attachment)
        self.news.set()
        try:
            yield attachment
        finally:
            self.attachments.remove(attachment)
            self.news.set()

    def resize(self, columns: int, rows: int) -> None:
        self.sizes.append((columns, rows))
        self.news.set()

    def say(self, data: bytes, stream: int = 1) -> None:
        for attachment in self.attachments:
            attachment.output.put_nowait((stream, data))

    def end(self) -> None:
        for attachment in self.attachments:
            attachment.output.put_nowait(None)

    async def until(self, condition: Any) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while not condition():
                self.news.clear()
                await self.news.wait()


class FakeNode:
    """A node that runs nothing: its containers and logs are the test's."""

    def __init__(self, store: Store, settings: NodeSettings) -> None:
        self.store = store
        self.containers: dict[str, FakeContainer] = {}
        self.log: list[bytes] = []
        self.log_requests: list[LogRequest] = []

    async def run(self) -> None:
        await asyncio.Event().wait()

    def container(self, namespace: str, pod: str, container: str | None) -> FakeContainer:
        if pod not in self.containers:
            raise ContainerUnavailable(400, "is waiting to start: ContainerCreating")
        return self.containers[pod]

    def read_log(self, request: LogRequest) -> AsyncIterator[bytes]:
        self.log_requests.append(request)
        if request.previous:
            raise ContainerUnavailable(400, "previous terminated container not found")
        return self._log(follow=request.follow)

    async def _log(self, *, follow: bool) -> AsyncIterator[bytes]:
        for piece in self.log:
            yield piece
        if follow:
            await asyncio.Event().wait()


@dataclass
class Api:
    """A client of one local cluster."""

    cluster: LocalCluster
    node: FakeNode
    session: aiohttp.ClientSession

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        expect: int | None = None,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> Object:
        """Make a request and return the JSON answer; the status must be `expect`, else 2xx."""
        encoded = body if isinstance(body, bytes | None) else orjson.dumps(body)
        data = None if encoded is None else io.BytesIO(encoded)
        sent = {"Content-Type": "application/json", **(headers or {})}
        async with self.session.request(
            method, path, data=data, headers=sent, params=query or {}
        ) as response:
            text = await response.read()
            is_expected = response.ok if expect is None else response.status == expect
            assert is_expected, f"{method} {path}: {response.status} {text.decode()[:500]}"
            found: Object = orjson.loads(text) if text else {}
            return found

    async def get(
        self, path: str, query: Mapping[str, str] | None = None, *, expect: int = 200
    ) -> Object:
        """Read a path and return the JSON answer."""
        return await self.call("GET", path, query=query, expect=expect)

    async def make_namespace(self, name: str = NAMESPACE, **labels: str) -> None:
        """Create a namespace and wait for its service account."""
        metadata = {"name": name, "labels": labels}
        await self.call("POST", "/api/v1/namespaces", {"metadata": metadata})
        await self.until_found("serviceaccounts", name, "default")

    async def until_found(self, resource: str, namespace: str, name: str) -> Object:
        """Wait until an object is there."""
        store = self.cluster.store
        async with asyncio.timeout(WAIT_SECONDS):
            since = store.revision
            if (found := store.find(resource, namespace, name)) is not None:
                return found
            async for _ in store.watch(resource, namespace, since):
                if (found := store.find(resource, namespace, name)) is not None:
                    return found
        raise AssertionError("a watch ended by itself")

    async def until_gone(self, resource: str, namespace: str, name: str) -> None:
        """Wait until an object is there no more."""
        store = self.cluster.store
        async with asyncio.timeout(WAIT_SECONDS):
            since = store.revision
            if store.find(resource, namespace, name) is None:
                return
            async for _ in store.watch(resource, namespace or None, since):
                if store.find(resource, namespace, name) is None:
                    return

    async def run_pod(self, pod: Object, **status: Any) -> Object:
        """Create a pod and give it a status once it is bound."""
        await self.call("POST", f"/api/v1/namespaces/{NAMESPACE}/pods", pod)
        return await self.set_status(pod["metadata"]["name"], **{"phase": "Running", **status})

    async def set_status(self, name: str, **status: Any) -> Object:
        """Set a pod's status as its node would."""
        store = self.cluster.store
        async with asyncio.timeout(WAIT_SECONDS):
            async for _, pod in store.watch("pods", NAMESPACE, store.revision - 5):
                if pod["metadata"]["name"] == name and "nodeName" in pod["spec"]:
                    break
        pod = store.get("pods", NAMESPACE, name)
        merged = {**pod, "status": {**pod["status"], **status}}
        return store.replace("pods", merged, subresource="status")


@asynccontextmanager
async def open_api(data_dir: Path, *gateway_versions: str) -> AsyncIterator[Api]:
    """Run a local cluster with a fake node and a client of it that trusts its CA only."""
    nodes: list[FakeNode] = []

    def make_node(store: Store, settings: NodeSettings) -> FakeNode:
        nodes.append(FakeNode(store, settings))
        return nodes[0]

    settings = ClusterSettings(
        data_dir=data_dir, node_factory=make_node, gateway_versions=gateway_versions
    )
    async with open_local_cluster(settings) as cluster:
        context = ssl.create_default_context(cafile=cluster.ca_path)
        context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT
        async with aiohttp.ClientSession(
            cluster.url,
            connector=aiohttp.TCPConnector(ssl=context),
            headers={"Authorization": f"Bearer {cluster.token}"},
            timeout=aiohttp.ClientTimeout(total=WAIT_SECONDS),
        ) as session:
            yield Api(cluster, nodes[0], session)
