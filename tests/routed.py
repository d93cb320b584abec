"""Sessions that listen: programs for the test kernel, and what is waited for of their public hosts.

For the local cluster's ingress and for a real cluster's alike.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

import httpx

from tests.clients import Client

Event = dict[str, Any]

SETTLED_SECONDS = 60.0

# Answers each request with port, host and path, and echoes what comes over a WebSocket.
SERVES = """
import base64, hashlib, os, signal, socketserver, threading
# The first process of a container has no default way to end: a stop would take its whole grace.
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
# The local cluster gives each pod an address of this machine; a real one gives it a network.
ADDRESS = os.environ.get("TELO_STANDIN_BIND", "0.0.0.0")
MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

class Visit(socketserver.StreamRequestHandler):
    def handle(self):
        path = self.rfile.readline().split()[1].decode()
        lines = iter(self.rfile.readline, b"\\r\\n")
        headers = {name.lower(): value for name, value in (one.split(b": ", 1) for one in lines)}
        if b"sec-websocket-key" in headers:
            self.echo(headers[b"sec-websocket-key"].strip())
            return
        port, host = self.server.server_address[1], headers[b"host"].strip().decode()
        self.answer(b"200 OK", f"{port} {host} {path}".encode(), b"Connection: close")

    def answer(self, status, body, *headers):
        lines = [b"HTTP/1.1 " + status, *headers]
        if body:
            lines.append(b"Content-Length: %d" % len(body))
        self.wfile.write(b"\\r\\n".join([*lines, b"", body]))

    def echo(self, key):
        accept = base64.b64encode(hashlib.sha1(key + MAGIC).digest())
        upgrade = [b"Upgrade: websocket", b"Connection: Upgrade"]
        self.answer(b"101 Switching Protocols", b"", *upgrade, b"Sec-WebSocket-Accept: " + accept)
        first = 0
        # Up to the closing frame, which is echoed too.
        while first & 15 != 8:
            first, length = self.rfile.read(2)
            mask = self.rfile.read(4)
            data = self.rfile.read(length & 127)
            plain = bytes(byte ^ mask[i % 4] for i, byte in enumerate(data))
            self.wfile.write(bytes([first, len(plain)]) + plain)

class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True

for port in map(int, os.environ["PORTS"].split(",")):
    threading.Thread(target=Server((ADDRESS, port), Visit).serve_forever).start()
print("serving", flush=True)
"""
IDLES = "import threading\nthreading.Event().wait()\n"


async def create(
    client: Client, *ports: int, udp: tuple[int, ...] = (), program: str = SERVES
) -> str:
    """Start a session that listens on these ports; of its udp ports it only says that it does."""
    declared = [{"port": port, "protocol": "tcp"} for port in ports]
    declared += [{"port": port, "protocol": "udp"} for port in udp]
    return await client.create(program, env={"PORTS": ",".join(map(str, ports))}, ports=declared)


async def until(client: Client, session: str, test: Callable[[Event], bool]) -> list[Event]:
    """Follow a session up to an event that passes the test; return all events up to it."""
    events: list[Event] = []
    async with aclosing(client.follow(session)) as following:
        async for _, event in following:
            # A gap has no type.
            events.append({"type": "gap", **event})
            if test(events[-1]):
                return events
    raise AssertionError(f"the stream ended with {events[-1]}")


def is_route(state: str, port: int = 8080, *, times: int = 1) -> Callable[[Event], bool]:
    """Return a test for a host's state; with `times` for the nth time that this is told."""
    told = 0

    def test(event: Event) -> bool:
        nonlocal told
        is_told = (event["type"], event.get("port"), event.get("state")) == ("route", port, state)
        told += is_told
        return is_told and told == times

    return test


def is_reachable(port: int = 8080) -> Callable[[Event], bool]:
    """Return a test for a port that takes connections from the runner."""
    wanted = ("reachability", port, "reachable")
    return lambda event: (event["type"], event.get("port"), event.get("state")) == wanted


async def reason(client: Client, session: str) -> str:
    """Wait until a session's first host is told as one that does not work; return why."""
    return str((await until(client, session, is_route("unprogrammed")))[-1]["reason"])


async def works(client: Client, session: str, port: int = 8080, *, times: int = 1) -> None:
    """Wait until a host is told, for the nth time, as one that works."""
    await until(client, session, is_route("programmed", port, times=times))


async def stop(client: Client, session: str) -> None:
    """Stop a session and follow it to its end."""
    assert (await client.http.delete(f"/v1/sessions/{session}")).status_code == 204
    assert await client.status(session) == {"kind": "stopped"}


async def until_answered(ask: Callable[[], Awaitable[httpx.Response]], status: int) -> str:
    """Ask a public host until there is an answer of this status; return its text.

    That a host works proves the probe's way. What leads to the session is seen apart from that: its
    Service, its pod as ready, and that the application listens.
    """
    async with asyncio.timeout(SETTLED_SECONDS):
        while True:
            answer = await ask()
            if answer.status_code == status:
                return answer.text
            await asyncio.sleep(0.05)
