"""The bodies as models: types are strict, unknown keys are refused everywhere but in `config`.

Null is no value of an optional key: it is left out instead.
"""

import binascii
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticOmit

from sessions import bundles, spec
from sessions.actions.create import Wanted
from sessions.actions.create_app import WantedApp
from sessions.admission import RequestedLimits
from sessions.requests.values import (
    BytesQuantity,
    CpuQuantity,
    Environment,
    PlainText,
    PortNumber,
    Text,
    at_most,
    refused,
)
from sessions.states import IoMode, Protocol
from telorunner.values.pullpolicy import PullPolicy
from telorunner.values.quantity import parse_bytes, parse_cpu_millis

# All are far above what editors send; they keep the work for one request small.
MAX_FILES = 20_000
MAX_PORTS = 64
MAX_APPS = 64
MAX_URL_LENGTH = 2048
MAX_UNKNOWN_KEYS = 100


@dataclass
class Patience:
    """How many more errors are worth finding; the validation's context.

    A body of 8 MB can hold a million of them, which would take seconds and gigabytes.
    """

    errors: int = 1000


def _publish(schema: dict[str, Any]) -> None:
    """Take out of a model's JSON Schema what is no news to a client.

    Titles only repeat the keys, and an empty default stands for a key that was left out.
    """
    schema.pop("title", None)
    for described in schema["properties"].values():
        described.pop("title", None)
        default = described.get("default")
        if not isinstance(default, bool) and (not default or isinstance(default, dict)):
            described.pop("default", None)


class _Body(BaseModel):
    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        alias_generator=to_camel,
        hide_input_in_errors=True,
        json_schema_extra=_publish,
        use_attribute_docstrings=True,
    )

    @model_validator(mode="wrap")
    @classmethod
    def _within_patience(
        cls, value: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo
    ) -> Self:
        """Pass over what comes after more errors than anybody reads."""
        patience = info.context if isinstance(info.context, Patience) else Patience()
        if patience.errors <= 0:
            raise PydanticOmit
        if cls.model_config["extra"] == "forbid" and isinstance(value, dict):
            unknown = len(value) - len(cls.model_fields)
            if unknown > MAX_UNKNOWN_KEYS:
                raise refused("has too many unknown keys")
        try:
            return handler(value)
        except ValidationError as exc:
            patience.errors -= exc.error_count()
            raise


class BundleFile(_Body):
    """A file of the bundle."""

    relative_path: Text
    """Its path in the bundle: `/` between segments, no `..`, no backslash, no NUL; at most 4,096
    bytes, 255 a segment. A leading `/` is dropped, and `a/./b` is `a/b`."""
    # NB: before the contents, which are judged by it.
    encoding: Literal["utf8", "base64"] = "utf8"
    """How `contents` are written."""
    contents: Annotated[Text, Field(repr=False)]
    """The file: text without NUL, or base64 with padding and nothing between."""

    @field_validator("contents")
    @classmethod
    def _can_be_decoded(cls, contents: str, info: ValidationInfo) -> str:
        if "encoding" in info.data:
            _decode(contents, info.data["encoding"])
        return contents

    def decoded(self) -> bytes:
        """Return the file's bytes."""
        return _decode(self.contents, self.encoding)


def _decode(contents: str, encoding: str) -> bytes:
    if encoding == "utf8":
        if "\0" in contents:
            raise refused("holds a NUL: send it as base64")
        return contents.encode()
    try:
        return binascii.a2b_base64(contents, strict_mode=True)
    except ValueError:
        raise refused("is not base64") from None


class Bundle(_Body):
    """The files of a session, and which of them is the entry."""

    entry_relative_path: Text
    """The application's manifest: one of the files."""
    files: Annotated[list[BundleFile], Field(max_length=MAX_FILES), at_most(MAX_FILES)]


class Port(_Body):
    """A port that the application declares."""

    port: PortNumber
    """Its number in the pod."""
    protocol: Literal["tcp", "udp"]
    """Its transport."""


Ports = Annotated[list[Port], Field(max_length=MAX_PORTS), at_most(MAX_PORTS)]


class Limits(_Body):
    """What the pod may use; what is above the operator's ceiling is cut to it."""

    cpu: CpuQuantity = ""
    """Cores, as a Kubernetes quantity: at least `1m`."""
    memory: BytesQuantity = ""
    """Bytes, as a Kubernetes quantity: at least `4Mi`."""
    ephemeral_storage: BytesQuantity = ""
    """Bytes, as a Kubernetes quantity: at least `4Mi`."""
    ttl_seconds: Annotated[int, Field(ge=1)] = 0
    """How long the session may run."""

    def requested(self) -> RequestedLimits:
        """Return the limits in millicores, bytes and seconds; None is "not asked for"."""
        storage = self.ephemeral_storage
        return RequestedLimits(
            cpu_millis=parse_cpu_millis(self.cpu) if self.cpu else None,
            memory_bytes=parse_bytes(self.memory) if self.memory else None,
            ephemeral_storage_bytes=parse_bytes(storage) if storage else None,
            ttl_seconds=self.ttl_seconds or None,
        )


class AppDeclaration(_Body):
    """One application of the session."""

    name: Text
    """A DNS label of at most 59 characters; not `workspace` or `agent`."""
    entry_relative_path: Text
    """Its manifest: one of the bundle's files."""
    ports: Ports = []
    """The ports it listens on."""
    io: Literal["tty", "streams"] = "tty"
    """`tty`: one terminal; `streams`: stdin, stdout and stderr apart."""

    def wanted(self) -> spec.App:
        """Return the app; its entry is as it was sent."""
        return spec.App(self.name, self.entry_relative_path, _ports(self.ports), IoMode(self.io))


class Config(_Body):
    """The session config; editors send whatever their form once held, so the rest is ignored."""

    model_config = ConfigDict(extra="ignore")

    image: Annotated[Text, Field(min_length=1)]
    """The container image; one of those that the capabilities offer."""
    pull_policy: Literal["missing", "always", "never"]
    """The Pod's imagePullPolicy; `missing` is IfNotPresent."""
    registry_url: Annotated[PlainText, Field(max_length=MAX_URL_LENGTH, repr=False)] = ""
    """The module registry, as the variable TELO_REGISTRY_URL; one in `env` wins."""


class Probe(_Body):
    """The body of POST /v1/probe."""

    config: Config
    """What a session would be created with."""


class CreateSession(_Body):
    """The body of POST /v1/sessions."""

    bundle: Bundle
    """The application."""
    env: Annotated[Environment, Field(repr=False)]
    """Variables of the application. Name and value are under 128 KiB, all of it at most 1 MiB;
    a TELO_CACHE_DIR is dropped."""
    config: Config
    """What it runs in."""
    ports: Ports = []
    """The ports it listens on."""
    inspect: bool = False
    """Relay the kernel's debug frames as `debug` events."""
    limits: Limits = Limits()
    """What it may use."""
    mode: Literal["run", "watch"] = "run"
    """`watch` only where the capabilities offer it."""
    agent: Annotated[Text, Field(min_length=1)] = ""
    """An agent to edit the files; in watch sessions only."""
    apps: Annotated[list[AppDeclaration], Field(max_length=MAX_APPS), at_most(MAX_APPS)] = []
    """The applications: exactly one in a `run` session. Left out, it is one named `app` on the
    bundle's entry, with the request's ports and a terminal."""

    def wanted(self) -> Wanted:
        """Return what the body asks for, in the actions' words."""
        files = self.bundle.files
        return Wanted(
            files=tuple(bundles.File(file.relative_path, file.decoded()) for file in files),
            entry=self.bundle.entry_relative_path,
            apps=tuple(app.wanted() for app in self.apps),
            ports=_ports(self.ports),
            env=self.env,
            image=self.config.image,
            pull_policy=PullPolicy(self.config.pull_policy),
            registry_url=self.config.registry_url.strip(),
            limits=self.limits.requested(),
            is_inspected=self.inspect,
            is_watch=self.mode == "watch",
            agent=self.agent,
        )


class CreateAppSession(_Body):
    """The body of POST /v1/apps/{name}/sessions; it may be left out."""

    env: Annotated[Environment, Field(repr=False)] = {}
    """Variables of the application, as in a session of a bundle. Those that the operator has set
    are not changed by it."""
    ports: Ports = []
    """The ports it listens on."""
    inspect: bool = False
    """Relay debug frames as `debug` events, where the application serves them."""

    def wanted(self) -> WantedApp:
        """Return what the body asks for, in the actions' words."""
        return WantedApp(env=self.env, ports=_ports(self.ports), is_inspected=self.inspect)


def _ports(ports: list[Port]) -> tuple[spec.Port, ...]:
    return tuple(spec.Port(port.port, Protocol(port.protocol)) for port in ports)
