"""The one client of the Kubernetes API: `open_cluster()`.

Configuration, credentials, TLS and the HTTP session are the official client's; requests carry plain
JSON, since typed models cost 35 times as much time on the loop. Two pools of connections: a bounded
one for requests and watches, and one without a bound for attached terminals, which live long and
must never starve the others. Proxies are used where the kubeconfig names one, never out of the
environment. It owns no task; everything is closed where it was opened.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson
from kubernetes.aio.client import ApiClient
from yarl import URL

from telorunner import __version__
from telorunner.conf import ClusterKind
from telorunner.errors import ConfigError
from telorunner.kube.credentials import Credentials, InClusterSource, KubeconfigSource
from telorunner.kube.errors import NotKubernetesError, from_exception, from_status

logger = logging.getLogger(__name__)

CONNECT_SECONDS = 5.0
REQUEST_SECONDS = 15.0
# The kubelet has to ask the container runtime before the handshake of an attach is answered.
HANDSHAKE_SECONDS = 10.0
CLOSE_SECONDS = 2.0

REQUEST_CONNECTIONS = 100
UNLIMITED_CONNECTIONS = 0

# A page of 500 pods is 4 to 8 MiB; more than this is not an answer that was asked for.
MAX_BODY_BYTES = 64 * 2**20
MAX_ERROR_BYTES = 64 * 2**10
# A container's output comes in frames of at most 32 KiB.
MAX_FRAME_BYTES = 16 * 2**20

_UNANSWERED = (aiohttp.ClientError, OSError, NotKubernetesError)


@dataclass(frozen=True)
class ClusterSettings:
    """Which cluster, which namespace, and the value of the managed-by label."""

    kind: ClusterKind
    kubeconfig: str
    namespace: str
    managed_by: str


@dataclass(frozen=True)
class Call:
    """One request: the path is quoted already, query values are not."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: dict[str, Any] | None = field(default=None, repr=False)
    content_type: str = "application/json"
    accept: str = "application/json"

    @property
    def operation(self) -> str:
        """What the log calls it; a query may hold a selector, a body may hold secrets."""
        return f"{self.method} {self.path}"


class Cluster:
    """The Kubernetes API as seen from one namespace; use `open_cluster()` to get one."""

    def __init__(self, settings: ClusterSettings, credentials: Credentials) -> None:
        """Make the sessions; the credentials must have been loaded.

        Raises:
            ConfigError: A certificate or key cannot be used.
        """
        self.namespace = settings.namespace
        self.managed_by = settings.managed_by
        # Which version of the Gateway API this cluster is asked for; boot finds out.
        self.gateway_version = "v1"
        self._credentials = credentials
        self._configuration = credentials.configuration
        try:
            self._api = ApiClient(self._configuration)
        except (OSError, ValueError) as exc:
            problem = "KUBECONFIG: a certificate or key cannot be used"
            raise ConfigError(f"{problem} ({type(exc).__name__})") from None
        self._api.user_agent = f"telorunner/{__version__}"
        # The client would make its session at the first request of its own, which never comes.
        self._session = self._open_session(REQUEST_CONNECTIONS)
        self._attach_session = self._open_session(UNLIMITED_CONNECTIONS)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the API server."""
        url = URL(self._configuration.host)
        return url.host or "", url.port or 443

    async def close(self) -> None:
        """Close both pools and what is still open on them."""
        await self._session.close()
        await self._attach_session.close()

    async def request(
        self, call: Call, *, timeout_seconds: float = REQUEST_SECONDS
    ) -> dict[str, Any]:
        """Send a request and return the JSON object that is answered.

        Raises:
            ClusterError: The API refused, or did not answer in time.
        """
        limits = aiohttp.ClientTimeout(total=timeout_seconds, sock_connect=CONNECT_SECONDS)
        async with self.open_response(call, limits) as response:
            body = await read_body(response, MAX_BODY_BYTES)
            return parse_object(body)

    @asynccontextmanager
    async def open_response(
        self, call: Call, limits: aiohttp.ClientTimeout
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request and give the answer, status checked, body not yet read.

        Network failures inside the block are translated too.

        Raises:
            ClusterError: The API refused, or did not answer in time.
        """
        try:
            response = await self._send(call, limits)
            async with response:
                yield response
        except _UNANSWERED as exc:
            raise from_exception(exc) from exc

    async def open_socket(
        self, path: str, query: Mapping[str, str], protocol: str
    ) -> aiohttp.ClientWebSocketResponse:
        """Open a WebSocket; pings are left to the caller, who must close it.

        Raises:
            ClusterError: The handshake was refused (only its status is known), or not answered.
        """
        # The API server answers 406 to an attach that wants JSON.
        call = Call("GET", path, query, accept="*/*")
        headers, token = await self._authorize(call)
        try:
            try:
                return await self._handshake(call, headers, protocol)
            except aiohttp.WSServerHandshakeError as exc:
                if exc.status != 401 or not await self._renew(token):
                    raise
            headers, _ = await self._authorize(call)
            return await self._handshake(call, headers, protocol)
        except aiohttp.WSServerHandshakeError as exc:
            if exc.status < 400:
                raise from_exception(exc) from exc
            retry_after = exc.headers.get("Retry-After", "") if exc.headers else ""
            raise from_status(exc.status, None, call.operation, retry_after=retry_after) from exc
        except _UNANSWERED as exc:
            raise from_exception(exc) from exc

    async def _handshake(
        self, call: Call, headers: dict[str, str], protocol: str
    ) -> aiohttp.ClientWebSocketResponse:
        async with asyncio.timeout(HANDSHAKE_SECONDS):
            socket: aiohttp.ClientWebSocketResponse = await self._attach_session.ws_connect(
                self._url(call),
                headers=headers,
                protocols=(protocol,),
                autoping=False,
                max_msg_size=MAX_FRAME_BYTES,
                timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_SECONDS),
                **self._route(),
            )
            return socket

    async def _send(self, call: Call, limits: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        """Send a request, and once more with new credentials if the answer is 401."""
        headers, token = await self._authorize(call)
        response = await self._send_once(call, headers, limits)
        if response.status == 401 and await self._renew(token):
            # Closed, not kept: it may be bound to a client certificate that has expired.
            response.close()
            headers, _ = await self._authorize(call)
            response = await self._send_once(call, headers, limits)
        if 200 <= response.status < 300:
            return response
        async with response:
            body = await _read_excerpt(response, MAX_ERROR_BYTES)
        retry_after = response.headers.get("Retry-After", "")
        raise from_status(response.status, body, call.operation, retry_after=retry_after)

    async def _send_once(
        self, call: Call, headers: dict[str, str], limits: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        return await self._session.request(
            call.method,
            self._url(call),
            headers=headers,
            data=None if call.body is None else orjson.dumps(call.body),
            timeout=limits,
            # The credentials are for this server, not for one that it names.
            allow_redirects=False,
            **self._route(),
        )

    async def _authorize(self, call: Call) -> tuple[dict[str, str], str | None]:
        """Return the headers of a request and the token among them."""
        if await self._credentials.refresh():
            self._reload_certificates()
        headers: dict[str, str] = dict(self._api.default_headers)
        headers["Accept"] = call.accept
        if call.body is not None:
            headers["Content-Type"] = call.content_type
        await self._api.update_params_for_auth(
            headers, [], ["BearerToken"], call.path, call.method, None
        )
        return headers, self._credentials.token

    async def _renew(self, refused: str | None) -> bool:
        is_renewed = await self._credentials.renew(refused)
        if is_renewed:
            self._reload_certificates()
        return is_renewed

    def _reload_certificates(self) -> None:
        """Load certificates once more into the TLS context in use; new connections have them."""
        configuration = self._configuration
        context = self._api.rest_client.ssl_context
        try:
            if configuration.ssl_ca_cert:
                context.load_verify_locations(cafile=configuration.ssl_ca_cert)
            if configuration.cert_file:
                context.load_cert_chain(configuration.cert_file, configuration.key_file)
        except OSError as exc:
            logger.warning("The cluster's certificates cannot be read again: %s.", exc)

    def _open_session(self, connections: int) -> aiohttp.ClientSession:
        self._api.rest_client.maxsize = connections
        return self._api.rest_client._create_pool_manager()

    def _url(self, call: Call) -> URL:
        return URL(f"{self._configuration.host}{call.path}", encoded=True).update_query(call.query)

    def _route(self) -> dict[str, Any]:
        """Return how to reach the server beyond its URL, as the kubeconfig says."""
        route = {"proxy": self._configuration.proxy}
        if self._configuration.tls_server_name:
            route["server_hostname"] = self._configuration.tls_server_name
        return route


@asynccontextmanager
async def open_cluster(settings: ClusterSettings) -> AsyncIterator[Cluster]:
    """Open the client of the cluster that the settings name, and close it at the end.

    Nothing is asked of the API yet: a cluster that is away is no reason not to start.

    Raises:
        ConfigError: The credentials cannot be read.
    """
    if settings.kind is ClusterKind.IN_CLUSTER:
        credentials = Credentials(InClusterSource())
        await credentials.load("RUNNER_CLUSTER=in-cluster")
    else:
        credentials = Credentials(KubeconfigSource(settings.kubeconfig))
        await credentials.load("KUBECONFIG")
    cluster = Cluster(settings, credentials)
    try:
        yield cluster
    finally:
        await cluster.close()


async def read_body(response: aiohttp.ClientResponse, limit_bytes: int) -> bytes:
    """Read a whole body.

    Raises:
        NotKubernetesError: It is longer than the limit.
    """
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > limit_bytes:
            raise NotKubernetesError(f"the answer is longer than {limit_bytes} bytes")
    return bytes(body)


def parse_object(body: bytes) -> dict[str, Any]:
    """Parse a JSON object.

    Raises:
        NotKubernetesError: It is something else, such as the page of a proxy.
    """
    try:
        value = orjson.loads(body)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise NotKubernetesError("the answer is not a JSON object")
    return value


async def _read_excerpt(response: aiohttp.ClientResponse, limit_bytes: int) -> bytes:
    """Read the beginning of the body of a refusal, which may be a page of any length."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) >= limit_bytes:
            break
    return bytes(body[:limit_bytes])
