"""`manage.py serve`: the whole runner in one process, until SIGTERM or SIGINT.

With `--no-engine` a process for the admin, capabilities and probes beside others on one PostgreSQL.
"""

import asyncio
from argparse import ArgumentParser
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError

from catalog import seeding
from sessions.runtime import Runtime
from telorunner import __version__, aio, datadir, signals
from telorunner.asgi import application
from telorunner.conf import ClusterKind, Settings
from telorunner.database import settings as database_settings
from telorunner.database.exclusive import prepared_by_one
from telorunner.errors import ConfigError, RunnerError, Unavailable
from telorunner.lifespan import running
from telorunner.localcluster import statefolder
from telorunner.server import Address, Limits, Server, open_server, server_loop

MAX_CAUSE_LENGTH = 256


@dataclass(frozen=True)
class _Role:
    """What this process is among those that share its database."""

    has_engine: bool
    is_alone: bool


class Command(BaseCommand):
    """Serve the API and the admin, and run the sessions."""

    help = "Serve the API and the admin, and run the sessions, until SIGTERM or SIGINT."
    requires_migrations_checks = False
    _server: Server | None = None

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take `--no-engine`."""
        parser.add_argument(
            "--no-engine",
            action="store_false",
            dest="has_engine",
            help="Run no sessions here: others do, which share this one's PostgreSQL database.",
        )

    def handle(self, *args: Any, has_engine: bool, **options: Any) -> None:
        """Prepare the database, serve, and return when told to stop."""
        config: Settings = settings.RUNNER
        if has_engine:
            config.require_self_url()
        else:
            _require_shared_database()
        signals.leave_quietly()
        database = database_settings.sqlite_file(settings.DATABASES["default"])
        with datadir.locked(database) if database else nullcontext():
            _prepare_database(config)
            # On SQLite the lock says that nobody else lives.
            role = _Role(has_engine, is_alone=database is not None)
            with asyncio.Runner(loop_factory=lambda: server_loop) as runner:
                runner.run(self._serve_until_stopped(config, role))
                signals.ignore()

    async def _serve_until_stopped(self, config: Settings, role: _Role) -> None:
        serving = aio.start(self._serve(config, role), name="serve")
        with signals.cancelling(serving, self._hurry):
            try:
                await asyncio.wait({serving})
                if not serving.cancelled():
                    serving.result()
            except* ConfigError as group:
                raise _first(group) from None
            except* RunnerError as group:
                raise CommandError(str(_first(group))) from None

    def _hurry(self) -> None:
        if self._server is not None:
            self._server.hurry.set()

    async def _serve(self, config: Settings, role: _Role) -> None:
        address = Address(config.host, config.port)
        limits = Limits(body_bytes=config.max_bundle_bytes)
        async with (
            running(config, has_engine=role.has_engine, is_sole_engine=role.is_alone) as runtime,
            open_server(application, address, limits) as self._server,
        ):
            runtime.listen_port.listening_at(self._server.port)
            if config.cluster is ClusterKind.LOCAL:
                # Its pods are processes of this machine.
                runtime.self_url.listening_at(_loopback_url(config.host, self._server.port))
            try:
                self._say_where(runtime, self._server.port, has_engine=role.has_engine)
                await asyncio.Event().wait()
            finally:
                # NB: before the server stops, for readiness and the streams go by it.
                runtime.stopping.set()

    def _say_where(self, runtime: Runtime, port: int, *, has_engine: bool) -> None:
        config, router = runtime.config, runtime.router
        url = _url(config.host, port)
        self.stdout.write(f"telorunner {__version__}")
        self.stdout.write(f"Cluster: {_describe_cluster(config)}")
        self.stdout.write(f"Public routes: {router.layer}. {router.why}")
        if config.cluster is ClusterKind.LOCAL and router.is_active:
            ingress = statefolder.ingress_url(config.data_dir)
            self.stdout.write(f"Local ingress: {ingress or 'none'}")
        if not has_engine:
            self.stdout.write("Engine: none here; sessions are run by others on this database.")
        self.stdout.write(f"API: {url}/v1")
        self.stdout.write(f"Admin: {url}/admin/ (manage.py createsuperuser makes a user for it)")
        self.stdout.write(f"Listening on {url}")
        self.stdout.flush()


def _url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _loopback_url(host: str, port: int) -> str:
    """Return where processes of this machine reach a server that listens on an address."""
    return _url({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port)  # noqa: S104 - read


def _require_shared_database() -> None:
    """Refuse a process beside others on a database that only one process can have.

    Raises:
        ConfigError: It is SQLite.
    """
    if settings.DATABASES["default"]["ENGINE"] == database_settings.SQLITE:
        raise ConfigError(
            "DATABASE_URL: must name a PostgreSQL database for serve --no-engine; another process "
            "cannot share an SQLite one."
        )


def _prepare_database(config: Settings) -> None:
    """Migrate it, and put into the catalog what the environment says."""
    try:
        with prepared_by_one():
            call_command("migrate", interactive=False, verbosity=0)
            seeding.seed(config)
    except (OperationalError, Unavailable) as exc:
        cause = str(exc.__cause__ or exc).partition("\n")[0][:MAX_CAUSE_LENGTH]
        raise CommandError(f"The database cannot be used: {cause}") from exc


def _describe_cluster(config: Settings) -> str:
    match config.cluster:
        case ClusterKind.LOCAL:
            return (
                f"the local cluster in {config.data_dir}. It is NO SANDBOX: applications run as "
                "ordinary processes of this user on this machine."
            )
        case ClusterKind.KUBECONFIG:
            where = f"the one that the kubeconfig {config.kubeconfig} names"
        case ClusterKind.IN_CLUSTER:
            where = "the one that this runner runs in"
    return f"{where}, namespace {config.session_namespace}."


def _first(group: BaseExceptionGroup[Any]) -> BaseException:
    """Return the first failure of a group, however nested."""
    failure: BaseException = group
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    return failure
