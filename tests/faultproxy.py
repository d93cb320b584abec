"""A reverse proxy in front of an API server that misbehaves as a test tells it to.

    with fault_proxy(cluster.kubeconfig, folder) as proxy:
        # ... KUBECONFIG=proxy.kubeconfig for the runner ...
        proxy.add(refusal(429, "TooManyRequests", retry_after=1), verb="create", times=1)
        rule = proxy.add(Hold(), verb="log")        # held until proxy.lift(rule)
        proxy.silence(verb="attach")                # streams under way fall silent, with no FIN
        proxy.cut(verb="watch")                     # streams under way are cut
        proxy.refuse_connections()                  # listener closed, everything cut
        proxy.accept_silently()                     # connects are taken, nothing is ever answered
        proxy.work()                                # back to normal; rules stay, see clear()
        proxy.rotate()                              # another token; the old one gets 401
        proxy.count("list", "pods")                 # requests since the start or forget()

It runs in a thread of its own, so that tests and fixtures of any kind and scope can steer it; all
methods may be called from any thread and have taken effect when they return. It speaks TLS with an
authority of its own, writes a kubeconfig that names it and a token file, and passes the upstream's
token on instead of its own. Faults are described in `tests.faultrules`.
"""

import asyncio
import base64
import json
import os
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import yaml

from telorunner import aio
from telorunner.localcluster.tls import load_authority, server_context
from tests.faultconnection import Connection, Exchange, Upstream
from tests.faultrules import UNAUTHORIZED, Asked, Fault, Rule, Silent

ADDRESS = "127.0.0.1"
CONTROL_SECONDS = 10.0
WAIT_SECONDS = 60.0

T = TypeVar("T")


class FaultProxy:
    """Use `fault_proxy()` to get one."""

    def __init__(self, upstream: Upstream, folder: Path, namespace: str) -> None:
        self.kubeconfig = folder / "faulty.kubeconfig"
        self.token_file = folder / "faulty.token"
        self._upstream = upstream
        self.token = secrets.token_urlsafe(16)
        self._authority = load_authority(folder, _write)
        self._context = server_context(self._authority, folder, _write)
        self._changed = threading.Condition()
        self._asked: list[Asked] = []
        self._rules: list[Rule] = []
        self._live: set[Exchange] = set()
        self._is_silent = False
        # Never listens: it keeps the port while nobody does.
        self._reserved = _bind(0)
        self.port: int = self._reserved.getsockname()[1]
        self.url = f"https://{ADDRESS}:{self.port}"
        self._loop = asyncio.new_event_loop()
        self._listening: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._held: list[socket.socket] = []
        self.write_token()
        _write(self.kubeconfig, self._kubeconfig(namespace))

    # Rules.

    def add(self, fault: Fault, **match: Any) -> Rule:
        """Let requests meet a fault; `match` is fields of `Rule`. Earlier rules come first."""
        rule = Rule(fault, **match)
        with self._changed:
            self._rules.append(rule)
        return rule

    def lift(self, rule: Rule) -> None:
        """End a rule; what it holds goes on."""
        with self._changed:
            self._rules.remove(rule)
        self._do(_call(rule.lifted.set))

    def clear(self) -> None:
        """End all rules."""
        for rule in list(self._rules):
            self.lift(rule)

    # The network.

    def refuse_connections(self) -> None:
        """Close the listener and cut everything, as an API server that is down."""
        self._do(self._listen(None))
        self.cut()

    def accept_silently(self) -> None:
        """Take connections and answer nothing; what is under way falls silent: half-open."""
        self._do(self._listen(self._hold))
        with self._changed:
            # Connections that are kept open between requests take one more.
            self._is_silent = True
        self.silence()

    def work(self) -> None:
        """Take connections and serve them; rules stay."""
        self._is_silent = False
        self._do(self._listen(self._serve))

    def silence(self, **match: Any) -> int:
        """Let streams under way fall silent, without FIN; return how many they are."""
        found = self._matching(**match)
        for exchange in found:
            self._do(_call(exchange.silenced.set))
        return len(found)

    def cut(self, **match: Any) -> int:
        """Cut the connections of requests under way; return how many they are."""
        found = self._matching(**match)
        for exchange in found:
            self._do(_call(exchange.transport.abort))
        if not match:
            self._do(self._drop_all())
        return len(found)

    # Credentials.

    def rotate(self, *, is_written: bool = True) -> str:
        """Take another token from now on, and no other; return it.

        The file has it at once, or once `write_token()` is called.
        """
        with self._changed:
            self.token = secrets.token_urlsafe(16)
        if is_written:
            self.write_token()
        return self.token

    def write_token(self) -> None:
        """Put the token that is taken into the token file."""
        _write(self.token_file, self.token.encode())

    # What was asked.

    def asked(self, verb: str = "", resource: str = "", name: str = "") -> list[Asked]:
        """Return the requests so far, those that met a fault or a 401 included."""
        wanted = Rule(UNAUTHORIZED, verb, resource, name)
        with self._changed:
            return [one for one in self._asked if wanted.takes(one)]

    def count(self, verb: str = "", resource: str = "", name: str = "") -> int:
        return len(self.asked(verb, resource, name))

    def forget(self) -> None:
        """Count from zero again."""
        with self._changed:
            self._asked.clear()

    def live(self, verb: str = "", resource: str = "") -> int:
        """Return how many requests are being answered: open watches and attaches too."""
        return len(self._matching(verb=verb, resource=resource))

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait for something about requests: `proxy.until(lambda: proxy.count("watch") > 1)`."""
        await asyncio.to_thread(self.wait, condition)

    def wait(self, condition: Callable[[], object], *, seconds: float = WAIT_SECONDS) -> None:
        """Do the same without an event loop."""
        until = time.monotonic() + seconds
        while not condition():
            with self._changed:
                # A second: rules and streams are looked at too, which tell nobody.
                self._changed.wait(timeout=0.2)
            assert time.monotonic() < until, f"waited in vain; asked: {self.asked()[-20:]}"

    # The thread.

    def run(self) -> None:
        """Serve until `stop()`; the body of the proxy's thread."""
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def stop(self) -> None:
        self._do(self._listen(None))
        self._do(self._drop_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._reserved.close()

    def _do(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(CONTROL_SECONDS)

    async def _listen(self, handle: Callable[[socket.socket], Any] | None) -> None:
        if self._listening is not None:
            await aio.stop(self._listening)
            self._listening = None
        if handle is self._serve or handle is None:
            self._let_go()
        if handle is not None:
            listener = _bind(self.port)
            listener.listen(128)
            listener.setblocking(False)
            self._listening = aio.start(self._accept(listener, handle), name="accept")

    async def _accept(
        self, listener: socket.socket, handle: Callable[[socket.socket], Any]
    ) -> None:
        with listener:
            while True:
                client, _ = await self._loop.sock_accept(listener)
                client.setblocking(False)
                handle(client)

    def _hold(self, client: socket.socket) -> None:
        self._held.append(client)

    def _let_go(self) -> None:
        for client in self._held:
            client.close()
        self._held.clear()

    def _serve(self, client: socket.socket) -> None:
        task = aio.start(self._connect(client), name="connection")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, client: socket.socket) -> None:
        reader = asyncio.StreamReader(limit=2**20)
        protocol = asyncio.StreamReaderProtocol(reader)
        try:
            transport, _ = await self._loop.connect_accepted_socket(
                lambda: protocol, client, ssl=self._context
            )
        except OSError:
            client.close()
            return
        writer = asyncio.StreamWriter(transport, protocol, reader, self._loop)
        await Connection(reader, writer, self._upstream, self._take, self._done).run()

    async def _drop_all(self) -> None:
        self._let_go()
        await aio.stop(*self._tasks)

    def _take(self, exchange: Exchange) -> Rule | None:
        asked = exchange.asked
        with self._changed:
            self._asked.append(asked)
            self._live.add(exchange)
            self._changed.notify_all()
            if self._is_silent:
                return Rule(Silent())
            if asked.authorization.lower() != f"bearer {self.token}".lower():
                return Rule(UNAUTHORIZED)
            rule = next((rule for rule in self._rules if rule.takes(asked)), None)
            if rule is not None:
                rule.hits += 1
            return rule

    def _done(self, exchange: Exchange) -> None:
        with self._changed:
            self._live.discard(exchange)
            self._changed.notify_all()

    def _matching(self, **match: Any) -> list[Exchange]:
        wanted = Rule(UNAUTHORIZED, **match)
        with self._changed:
            return [exchange for exchange in self._live if wanted.takes(exchange.asked)]

    def _kubeconfig(self, namespace: str) -> bytes:
        authority = base64.b64encode(self._authority.pem).decode()
        cluster = {"server": self.url, "certificate-authority-data": authority}
        context = {"cluster": "faulty", "user": "faulty", "namespace": namespace}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "faulty",
            "clusters": [{"name": "faulty", "cluster": cluster}],
            "users": [{"name": "faulty", "user": {"tokenFile": str(self.token_file)}}],
            "contexts": [{"name": "faulty", "context": context}],
        }
        return json.dumps(config).encode()


@contextmanager
def fault_proxy(kubeconfig: Path, folder: Path) -> Iterator[FaultProxy]:
    """Run a proxy in front of the API server that a kubeconfig names, which must hold a token."""
    upstream, namespace = _read_kubeconfig(kubeconfig)
    proxy = FaultProxy(upstream, folder, namespace)
    thread = threading.Thread(target=proxy.run, name=f"fault-proxy-{proxy.port}")
    thread.start()
    try:
        proxy.work()
        yield proxy
    finally:
        proxy.stop()
        thread.join()


def _read_kubeconfig(path: Path) -> tuple[Upstream, str]:
    config = yaml.safe_load(path.read_text())
    current = _named(config["contexts"], config["current-context"])["context"]
    cluster = _named(config["clusters"], current["cluster"])["cluster"]
    user = _named(config["users"], current["user"])["user"]
    token = user.get("token") or Path(user["tokenFile"]).read_text().strip()
    server = urlsplit(cluster["server"])
    context = ssl.create_default_context(cafile=cluster.get("certificate-authority"))
    if data := cluster.get("certificate-authority-data"):
        context.load_verify_locations(cadata=base64.b64decode(data).decode())
    upstream = Upstream(
        server.hostname or "",
        server.port or 443,
        context if server.scheme == "https" else None,
        token,
    )
    return upstream, current.get("namespace", "")


def _named(entries: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(entry for entry in entries if entry["name"] == name)


def _bind(port: int) -> socket.socket:
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind((ADDRESS, port))
    return bound


def _write(path: Path, content: bytes) -> None:
    """Put a file in place at once, as a projected token is."""
    beside = path.with_suffix(path.suffix + ".new")
    beside.write_bytes(content)
    beside.chmod(0o600)
    os.replace(beside, path)


async def _call(action: Callable[[], object]) -> None:
    action()
