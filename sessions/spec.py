"""What a session is made of: frozen values that a row stores and a pod builder takes; no Django."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sessions.states import Delivery, IoMode, Mode, Protocol, StatusKind
from telorunner.values.pullpolicy import PullPolicy

# The one application of a run session that names none.
DEFAULT_APP_NAME = "app"


@dataclass(frozen=True)
class Port:
    """A declared port."""

    port: int
    protocol: Protocol = Protocol.TCP

    def to_json(self) -> dict[str, Any]:
        """Return `{"port", "protocol"}`."""
        return {"port": self.port, "protocol": str(self.protocol)}


@dataclass(frozen=True)
class App:
    """One application of a session.

    `entry` is its manifest's path in the bundle, normalised; empty where there is no bundle.
    """

    name: str
    entry: str
    ports: tuple[Port, ...] = ()
    io: IoMode = IoMode.TTY


@dataclass(frozen=True)
class Limits:
    """What a pod may use: millicores, bytes, bytes, seconds."""

    cpu_millis: int
    memory_bytes: int
    ephemeral_storage_bytes: int
    ttl_seconds: int


@dataclass(frozen=True)
class Status:
    """A status as the stream tells it; `code` belongs to `exited`, `message` to `failed`.

    `endpoints` belongs to `running`: `[{"host", "port", "protocol", "url"?}]`.
    """

    kind: StatusKind
    code: int | None = None
    message: str | None = None
    endpoints: tuple[Mapping[str, Any], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the status object; optional keys are left out, never null."""
        body: dict[str, Any] = {"kind": str(self.kind)}
        if self.code is not None:
            body["code"] = self.code
        if self.message is not None:
            body["message"] = self.message
        if self.endpoints:
            body["endpoints"] = [dict(endpoint) for endpoint in self.endpoints]
        return body


STARTING = Status(StatusKind.STARTING)
STOPPED = Status(StatusKind.STOPPED)


def failed(message: str) -> Status:
    """Return the status `failed` with the sentence a client reads."""
    return Status(StatusKind.FAILED, message=message)


def exited(code: int) -> Status:
    """Return the status `exited`."""
    return Status(StatusKind.EXITED, code=code)


@dataclass(frozen=True)
class SessionSpec:
    """What was asked for, as the row keeps it (without env, which is sealed apart).

    `app_name` is the catalog's app that it runs, with delivery `none`; empty: it has a bundle.
    `allow_root` lets the app's image run as root.
    """

    session_id: str
    mode: Mode
    image: str
    pull_policy: PullPolicy
    apps: tuple[App, ...]
    limits: Limits
    is_inspected: bool = False
    delivery: Delivery = Delivery.INLINE
    app_name: str = ""
    allow_root: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the row's JSON column.

        Its keys: image, pullPolicy, delivery, apps, limits, inspect, and for a catalog app its name
        (catalogApp) and allowRoot.
        """
        of_catalog = {"catalogApp": self.app_name, "allowRoot": self.allow_root}
        return {
            "image": self.image,
            "pullPolicy": str(self.pull_policy),
            "inspect": self.is_inspected,
            "delivery": str(self.delivery),
            "apps": [
                {
                    "name": app.name,
                    "entry": app.entry,
                    "io": str(app.io),
                    "ports": [port.to_json() for port in app.ports],
                }
                for app in self.apps
            ],
            "limits": {
                "cpuMillis": self.limits.cpu_millis,
                "memoryBytes": self.limits.memory_bytes,
                "ephemeralStorageBytes": self.limits.ephemeral_storage_bytes,
                "ttlSeconds": self.limits.ttl_seconds,
            },
            **(of_catalog if self.app_name else {}),
        }

    @classmethod
    def from_json(cls, session_id: str, mode: str, data: Mapping[str, Any]) -> "SessionSpec":
        """Read what `to_json()` returned."""
        limits = data["limits"]
        return cls(
            session_id=session_id,
            mode=Mode(mode),
            image=data["image"],
            pull_policy=PullPolicy(data["pullPolicy"]),
            is_inspected=data["inspect"],
            # Rows of before there was a choice do not say it.
            delivery=Delivery(data.get("delivery", Delivery.INLINE)),
            app_name=data.get("catalogApp", ""),
            allow_root=data.get("allowRoot", False),
            apps=tuple(
                App(
                    name=app["name"],
                    entry=app["entry"],
                    io=IoMode(app["io"]),
                    ports=tuple(
                        Port(port["port"], Protocol(port["protocol"])) for port in app["ports"]
                    ),
                )
                for app in data["apps"]
            ),
            limits=Limits(
                cpu_millis=limits["cpuMillis"],
                memory_bytes=limits["memoryBytes"],
                ephemeral_storage_bytes=limits["ephemeralStorageBytes"],
                ttl_seconds=limits["ttlSeconds"],
            ),
        )


@dataclass(frozen=True)
class RunPodSpec:
    """Everything the manifest of a run pod, or of an app pod, is built from.

    `env` is the session's own, already merged with TELO_REGISTRY_URL; the names that the runner
    sets itself override it in the builder. It never shows in a repr, nor does `bundle_url`, which
    holds the token of a fetched delivery (and is empty for any other).
    """

    session: SessionSpec
    namespace: str
    managed_by: str
    env: Mapping[str, str] = field(repr=False)
    init_image: str = ""
    bundle_url: str = field(default="", repr=False)
    image_pull_secret: str = ""
    runtime_class: str = ""
