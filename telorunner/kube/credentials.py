"""Where the API server is and how to prove who asks: a kubeconfig or the pod's own account.

The official client reads the files and runs exec plugins; this module decides when: at the start,
when the API answers 401, and when what is known is older than a minute, since token files are
rewritten in place. A source that cannot be read later on changes nothing: what was known is used
further and the log says so. It owns no task.
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import yaml
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import (
    ConfigException,
    load_kube_config,
)
from kubernetes.aio.config.incluster_config import (
    SERVICE_CERT_FILENAME,
    SERVICE_TOKEN_FILENAME,
    InClusterConfigLoader,
)

from telorunner.errors import ConfigError

logger = logging.getLogger(__name__)

# A projected service account token is rewritten long before it expires; a minute is what the
# official clients use.
MAX_AGE_SECONDS = 60.0
# Many requests can meet a 401 at once; one look at the source serves them all.
MIN_AGE_SECONDS = 1.0
# An exec plugin may have to ask its cloud.
LOAD_SECONDS = 30.0

_TOKEN = "BearerToken"  # noqa: S105 - the client's name for the setting, not a token

# What the loader raises on files that are missing or not what they should be.
_BAD_SOURCE = (
    ConfigException, yaml.YAMLError, OSError, ValueError, TypeError, KeyError, AttributeError,
)  # fmt: skip


class Source(Protocol):
    """Something that credentials can be read from."""

    async def read(self, configuration: Configuration, *, anew: bool) -> None:
        """Fill the configuration; `anew` means that what was read before was refused."""


class KubeconfigSource:
    """The files that `KUBECONFIG` names, at their current context."""

    def __init__(self, paths: str) -> None:
        self._paths = paths
        self._loader: Any = None
        self._stamps: list[tuple[int, int]] = []

    async def read(self, configuration: Configuration, *, anew: bool) -> None:
        """Read the files; the loader is kept so that an exec plugin runs only when due."""
        stamps = self._stamp()
        if anew or self._loader is None or stamps != self._stamps:
            self._loader = await load_kube_config(  # type: ignore[no-untyped-call] # has no types
                config_file=self._paths, client_configuration=configuration, persist_config=False
            )
            self._stamps = stamps
        else:
            await self._loader.load_and_set(configuration)

    def _stamp(self) -> list[tuple[int, int]]:
        """Return modification time and size of each file that exists."""
        paths = [Path(path).expanduser() for path in self._paths.split(os.pathsep) if path]
        stats = [path.stat() for path in paths if path.exists()]
        if not stats:
            raise FileNotFoundError("no such file")
        return [(stat.st_mtime_ns, stat.st_size) for stat in stats]


class InClusterSource:
    """The service account that Kubernetes mounts into the runner's own pod."""

    def __init__(
        self,
        token_file: str = SERVICE_TOKEN_FILENAME,
        ca_file: str = SERVICE_CERT_FILENAME,
        environ: dict[str, str] | None = None,
    ) -> None:
        self._token_file = token_file
        self._ca_file = ca_file
        self._environ = dict(os.environ) if environ is None else environ

    async def read(
        self,
        configuration: Configuration,
        *,
        anew: bool,  # noqa: ARG002 - the files are read each time anyway
    ) -> None:
        """Read token and CA; the client's own refresh is off, since it cannot see a 401."""
        loader: Any = InClusterConfigLoader(  # type: ignore[no-untyped-call] # has no types
            self._token_file, self._ca_file, try_refresh_token=False, environ=self._environ
        )
        loader.load_and_set(configuration)


class Credentials:
    """The current configuration of the client, kept up to date in place."""

    def __init__(self, source: Source, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.configuration = Configuration(client_session_kwargs={"trust_env": False})
        # From 3.13 on Python refuses authorities without a key usage, which older clusters have and
        # every other Kubernetes client takes. The chain and the server's name are still checked.
        self.configuration.disable_strict_ssl_verification = True
        self._source = source
        self._clock = clock
        self._read_at = -MAX_AGE_SECONDS
        self._lock = asyncio.Lock()

    async def load(self, name: str) -> None:
        """Read the source for the first time.

        Raises:
            ConfigError: It cannot be used; `name` says which setting to check.
        """
        try:
            await self._read(anew=True)
        except _BAD_SOURCE as exc:
            # NB: the cause is not chained. The loader puts whole entries of the kubeconfig, tokens
            # included, into its messages.
            problem = f"{name}: must lead to a cluster's credentials that can be read"
            raise ConfigError(f"{problem} ({type(exc).__name__})") from None
        if _TOKEN not in self.configuration.api_key and not self.configuration.cert_file:
            logger.warning("%s holds no usable credentials: requests are anonymous.", name)

    @property
    def token(self) -> str | None:
        """The bearer token, scheme included, or None where a certificate says who asks."""
        token: str | None = self.configuration.api_key.get(_TOKEN)
        return token

    async def refresh(self) -> bool:
        """Read the source again if what is known is a minute old; return whether it was read."""
        if self._age_seconds < MAX_AGE_SECONDS:
            return False
        async with self._lock:
            return self._age_seconds >= MAX_AGE_SECONDS and await self._reread(anew=False)

    async def renew(self, refused: str | None) -> bool:
        """Read the source again because the API answered 401.

        Args:
            refused: The token that the refused request carried.

        Returns:
            Whether another attempt may fare better.
        """
        async with self._lock:
            if self.token != refused:
                return True
            if self._age_seconds < MIN_AGE_SECONDS or not await self._reread(anew=True):
                return False
            return self.token != refused or bool(self.configuration.cert_file)

    @property
    def _age_seconds(self) -> float:
        return self._clock() - self._read_at

    async def _reread(self, *, anew: bool) -> bool:
        try:
            await self._read(anew=anew)
        except _BAD_SOURCE as exc:
            logger.warning(
                "The cluster's credentials cannot be read again (%s); the old ones stay.",
                type(exc).__name__,
            )
            self._read_at = self._clock()
            return False
        return True

    async def _read(self, *, anew: bool) -> None:
        fresh = Configuration()
        async with asyncio.timeout(LOAD_SECONDS):
            await self._source.read(fresh, anew=anew)
        if token := fresh.api_key.get(_TOKEN):
            # A token file usually ends with a line end, which no header can carry.
            self.configuration.api_key[_TOKEN] = token.strip()
        for field in ("host", "ssl_ca_cert", "cert_file", "key_file", "verify_ssl",
                      "tls_server_name", "proxy"):  # fmt: skip
            setattr(self.configuration, field, getattr(fresh, field))
        self._read_at = self._clock()
