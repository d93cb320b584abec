"""A proxy that the environment names is for the way to the world, never for the cluster's."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients import Client
from tests.clusters import LOCAL_IMAGE
from tests.serving import Platform

pytestmark = pytest.mark.cluster

NAMES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
# A port that listens and a debug server with one frame.
SERVES = """
import os, socket, threading, time
address = os.environ["TELO_STANDIN_BIND"]
def serve(listener):
    while True:
        one, _ = listener.accept()
        if listener.getsockname()[1] == 9230:
            one.recv(65536)
            one.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Type: text/event-stream\\r\\n\\r\\n"
                        b'data: {"kind": "event", "event": "Kernel.Started"}\\n\\n')
for port in (9230, 8080):
    threading.Thread(target=serve, args=(socket.create_server((address, port)),)).start()
"""


@pytest.fixture
def proxied() -> Iterator[tuple[str, list[object]]]:
    """An address for the environment to name, and who has asked there."""
    visitors: list[object] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        while True:
            try:
                visitor, address = listener.accept()
            except OSError:
                return
            visitors.append((address, visitor.recv(200)))
            visitor.close()

    thread = threading.Thread(target=accept, name="proxy")
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}", visitors
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


async def test_no_way_to_the_cluster_or_to_a_pod_is_through_a_proxy_of_the_environment(
    tmp_path: Path, proxied: tuple[str, list[object]]
) -> None:
    """Requests, the watch, an attach, a log, a fetched bundle, debug frames and dialled ports."""
    address, visitors = proxied
    environment = {
        "RUNNER_CLUSTER": "local",
        "RUNNER_BUNDLE_DELIVERY": "fetch",
        "RUNNER_LOCAL_KUBELET_DELAYS": "true",
        # Docker Hub is asked through the proxy, as it should be.
        "RUNNER_BASE_IMAGE_CATALOG_ENABLED": "false",
        "NO_PROXY": "",
        "no_proxy": "",
        **dict.fromkeys([*NAMES, *(name.lower() for name in NAMES)], address),
    }
    platform = Platform(tmp_path / "data", environment)
    await asyncio.to_thread(platform.start)
    client = Client(platform.url, LOCAL_IMAGE)
    try:
        ports = [{"port": 8080, "protocol": "tcp"}]
        app = {"name": "app", "entryRelativePath": "telo.yaml", "ports": ports, "io": "tty"}
        session = await client.create(SERVES, apps=[app], inspect=True)
        wanted = {"debug", "reachable"}
        async for _, event in client.follow(session):
            assert event.get("status", {}).get("kind") not in ("exited", "failed"), event
            wanted.discard(event["type"])
            wanted.discard(event.get("state", ""))
            if not wanted:
                break
        probed = await client.http.post(
            "/v1/probe", json={"config": {"image": LOCAL_IMAGE, "pullPolicy": "missing"}}
        )
        assert probed.json() == {"status": "ready"}
        assert (await client.http.delete(f"/v1/sessions/{session}")).status_code == 204
        assert await client.status(session) == {"kind": "stopped"}
    finally:
        await client.close()
        assert await asyncio.to_thread(platform.stop) == 0
    assert visitors == []
