"""The bodies as models: types are strict, unknown keys are refused everywhere but in `config`.

Null is no value of an optional key: it is left out instead.
"""

import binascii
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from sessions import bundles, spec
from sessions.actions.create import Wanted
from sessions.admission import RequestedLimits
from sessions.requests.values import BytesQuantity, CpuQuantity, PlainText, PortNumber, Text
from sessions.states import IoMode, Protocol, PullPolicy
from telorunner.values.quantity import parse_bytes, parse_cpu_millis

# All are far above what editors send; they keep the work for one request small.
MAX_FILES = 20_000
MAX_PORTS = 64
MAX_APPS = 64
MAX_URL_LENGTH = 2048


class _Body(BaseModel):
    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        alias_generator=to_camel,
        hide_input_in_errors=True,
    )


class BundleFile(_Body):
    """A file of the bundle."""

    relative_path: Text
    # NB: before the contents, which are judged by it.
    encoding: Literal["utf8", "base64"] = "utf8"
    contents: Annotated[Text, Field(repr=False)]

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
            raise PydanticCustomError("contents", "holds a NUL: send it as base64")
        return contents.encode()
    try:
        return binascii.a2b_base64(contents, strict_mode=True)
    except ValueError:
        raise PydanticCustomError("contents", "is not base64") from None


class Bundle(_Body):
    """The files of a session, and which of them is the entry."""

    entry_relative_path: Text
    files: Annotated[list[BundleFile], Field(max_length=MAX_FILES)]


class Port(_Body):
    """A port that the application declares."""

    port: PortNumber
    protocol: Literal["tcp", "udp"]


Ports = Annotated[list[Port], Field(max_length=MAX_PORTS)]


class Limits(_Body):
    """What the pod may use; what is above the operator's ceiling is cut to it."""

    cpu: CpuQuantity = ""
    memory: BytesQuantity = ""
    ephemeral_storage: BytesQuantity = ""
    ttl_seconds: Annotated[int, Field(ge=1)] = 0

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
    entry_relative_path: Text
    ports: Ports = []
    io: Literal["tty", "streams"] = "tty"

    def wanted(self) -> spec.App:
        """Return the app; its entry is as it was sent."""
        return spec.App(self.name, self.entry_relative_path, _ports(self.ports), IoMode(self.io))


class Config(_Body):
    """The session config; editors send whatever their form once held, so the rest is ignored."""

    model_config = ConfigDict(extra="ignore")

    image: Annotated[Text, Field(min_length=1)]
    pull_policy: Literal["missing", "always", "never"]
    registry_url: Annotated[PlainText, Field(max_length=MAX_URL_LENGTH)] = ""


class Probe(_Body):
    """The body of POST /v1/probe."""

    config: Config


class CreateSession(_Body):
    """The body of POST /v1/sessions."""

    bundle: Bundle
    env: Annotated[dict[Text, Text], Field(repr=False)]
    config: Config
    ports: Ports = []
    inspect: bool = False
    limits: Limits = Limits()
    mode: Literal["run", "watch"] = "run"
    agent: Annotated[Text, Field(min_length=1)] = ""
    apps: Annotated[list[AppDeclaration], Field(max_length=MAX_APPS)] = []

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


def _ports(ports: list[Port]) -> tuple[spec.Port, ...]:
    return tuple(spec.Port(port.port, Protocol(port.protocol)) for port in ports)
