"""`manage.py serve`: the whole runner in one process, until SIGTERM or SIGINT."""

import asyncio
from contextlib import nullcontext
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError

from telorunner import __version__, aio, databases, datadir, signals
from telorunner.asgi import application
from telorunner.conf import ClusterKind, Settings
from telorunner.errors import ConfigError, RunnerError
from telorunner.lifespan import running
from telorunner.server import Address, Limits, Server, open_server, server_loop

MAX_CAUSE_LENGTH = 256


class Command(BaseCommand):
    """Serve the API and the admin, and run the sessions."""

    help = "Serve the API and the admin, and run the sessions, until SIGTERM or SIGINT."
    requires_migrations_checks = False
    _server: Server | None = None

    def handle(self, *args: Any, **options: Any) -> None:
        """Migrate the database, serve, and return when told to stop."""
        config: Settings = settings.RUNNER
        config.require_self_url()
        signals.leave_quietly()
        database = databases.sqlite_file(settings.DATABASES["default"])
        with datadir.locked(database) if database else nullcontext():
            _migrate()
            with asyncio.Runner(loop_factory=lambda: server_loop) as runner:
                runner.run(self._serve_until_stopped(config, is_alone=database is not None))
                signals.ignore()

    async def _serve_until_stopped(self, config: Settings, *, is_alone: bool) -> None:
        serving = aio.start(self._serve(config, is_alone=is_alone), name="serve")
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

    async def _serve(self, config: Settings, *, is_alone: bool) -> None:
        address = Address(config.host, config.port)
        limits = Limits(body_bytes=config.max_bundle_bytes)
        async with (
            running(config, is_sole_engine=is_alone) as runtime,
            open_server(application, address, limits) as self._server,
        ):
            if config.cluster is ClusterKind.LOCAL:
                # Its pods are processes of this machine.
                runtime.self_url.listening_at(_loopback_url(config.host, self._server.port))
            try:
                self._say_where(config, self._server.port)
                await asyncio.Event().wait()
            finally:
                # NB: before the server stops, for readiness and the streams go by it.
                runtime.stopping.set()

    def _say_where(self, config: Settings, port: int) -> None:
        url = _url(config.host, port)
        self.stdout.write(f"telorunner {__version__}")
        self.stdout.write(f"Cluster: {_describe_cluster(config)}")
        self.stdout.write(f"API: {url}/v1")
        self.stdout.write(f"Admin: {url}/admin/ (manage.py createsuperuser makes a user for it)")
        self.stdout.write(f"Listening on {url}")
        self.stdout.flush()


def _url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _loopback_url(host: str, port: int) -> str:
    """Return where processes of this machine reach a server that listens on an address."""
    return _url({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port)  # noqa: S104 - read


def _migrate() -> None:
    try:
        call_command("migrate", interactive=False, verbosity=0)
    except OperationalError as exc:
        cause = str(exc).partition("\n")[0][:MAX_CAUSE_LENGTH]
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
