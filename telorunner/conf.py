"""The runner's configuration: read from the environment once, validated, frozen.

`load()` is pure: it makes no folder, reads no file and never exits. Each variable is documented in
the README under its own name; an empty value counts as unset.
"""

import json
import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from telorunner.errors import ConfigError
from telorunner.values.dns import is_dns_label
from telorunner.values.image import parse_image
from telorunner.values.quantity import parse_bytes, parse_cpu_millis

PROJECT_DIR = Path(__file__).resolve().parent.parent
IN_CLUSTER_TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")

_BASE_URL = re.compile(r"https?://(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?", re.ASCII)
_LABEL_VALUE = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)


class ClusterKind(StrEnum):
    """Where the sessions' pods run."""

    LOCAL = "local"
    KUBECONFIG = "kubeconfig"
    IN_CLUSTER = "in-cluster"


def _integer(value: object) -> object:
    # int() would also take "1_0", " 7 " and Arabic digits.
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,18}", value, re.ASCII) is None:
        raise ValueError("must be a whole number, such as 32")
    return value


def _flag(value: object) -> object:
    if isinstance(value, str):
        if value.lower() not in {"true", "false", "1", "0", "yes", "no", "on", "off"}:
            raise ValueError("must be true or false")
        return value.lower() in {"true", "1", "yes", "on"}
    return value


def _comma_list(value: object) -> object:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


def _namespace(value: str) -> str:
    if not is_dns_label(value):
        raise ValueError("must be a namespace: a lower-case DNS label of at most 63 characters")
    return value


def _image(value: str) -> str:
    parse_image(value)
    return value


def _label_value(value: str) -> str:
    if _LABEL_VALUE.fullmatch(value) is None:
        raise ValueError("must be a label value: letters, digits, '-', '_', '.', at most 63")
    return value


def _object_name(value: str) -> str:
    if (value and not all(is_dns_label(part) for part in value.split("."))) or len(value) > 253:
        raise ValueError("must be the name of a Kubernetes object")
    return value


def _origin(value: str) -> str:
    parts = urlsplit(value)
    if value != "*" and (
        parts.scheme not in {"http", "https"}
        or not parts.hostname
        # Browsers send scheme and host in lower case, and origins are compared as text.
        or value != f"{parts.scheme}://{parts.netloc}".lower()
        or "@" in parts.netloc
    ):
        raise ValueError("must be * or a comma list of origins such as https://editor.example")
    return value


def _self_url(value: str) -> str:
    problem = "must be the URL that pods reach the runner at, such as http://runner.example:8062"
    try:
        parts = urlsplit(value)
        is_address = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError as exc:
        raise ValueError(problem) from exc
    # A path, a query, credentials, or anything that has to be quoted, is more than that.
    if value and not (is_address and _BASE_URL.fullmatch(value)):
        raise ValueError(f"{problem}: scheme, host and port, without a path or credentials")
    return value


def _cpu(value: object) -> object:
    return parse_cpu_millis(value) if isinstance(value, str) else value


def _bytes(value: object) -> object:
    return parse_bytes(value) if isinstance(value, str) else value


def _commands(value: object) -> object:
    if not isinstance(value, str):
        return value
    problem = 'must be JSON such as {"image": ["command", "argument"]}'
    try:
        table = json.loads(value)
    except ValueError as exc:
        raise ValueError(problem) from exc
    is_table = isinstance(table, dict) and all(
        isinstance(command, list) and command and all(isinstance(part, str) for part in command)
        for command in table.values()
    )
    if not is_table:
        raise ValueError(problem)
    return {image: tuple(command) for image, command in table.items()}


Integer = Annotated[int, BeforeValidator(_integer)]
Flag = Annotated[bool, BeforeValidator(_flag)]
CommaList = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_comma_list)]
Origins = Annotated[
    tuple[Annotated[str, AfterValidator(_origin)], ...], NoDecode, BeforeValidator(_comma_list)
]
Commands = Annotated[dict[str, tuple[str, ...]], NoDecode, BeforeValidator(_commands)]
CpuMillis = Annotated[int, BeforeValidator(_cpu)]
Bytes = Annotated[int, BeforeValidator(_bytes)]
ObjectName = Annotated[str, AfterValidator(_object_name)]


class Settings(BaseSettings):
    """Everything an operator can set by environment; a field's alias is its variable."""

    model_config = SettingsConfigDict(
        frozen=True, env_ignore_empty=True, extra="ignore", hide_input_in_errors=True
    )

    port: Annotated[Integer, Field(ge=0, le=65535)] = Field(default=8062, validation_alias="PORT")
    host_setting: str = Field(default="", validation_alias="RUNNER_HOST")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", validation_alias="LOG_LEVEL"
    )
    display_name: str = Field(default="Telo Runner", validation_alias="RUNNER_DISPLAY_NAME")
    description: str = Field(
        default="Runs the Telo application in a cloud environment",
        validation_alias="RUNNER_DESCRIPTION",
    )
    cors_origins: Origins = Field(default=("*",), validation_alias="RUNNER_CORS_ORIGINS")

    max_cpu_millis: CpuMillis = Field(default=500, validation_alias="RUNNER_MAX_CPU")
    max_memory_bytes: Bytes = Field(default=512 * 2**20, validation_alias="RUNNER_MAX_MEMORY")
    max_ephemeral_storage_bytes: Bytes = Field(
        default=2**30, validation_alias="RUNNER_MAX_EPHEMERAL_STORAGE"
    )
    # The upper bound is what the API takes as activeDeadlineSeconds.
    max_ttl_seconds: Annotated[Integer, Field(ge=1, le=2**31 - 1)] = Field(
        default=3600, validation_alias="RUNNER_MAX_TTL_SECONDS"
    )
    max_sessions: Annotated[Integer, Field(ge=1, le=100_000)] = Field(
        default=32, validation_alias="RUNNER_MAX_SESSIONS"
    )
    exit_ttl_ms: Annotated[Integer, Field(ge=1000)] = Field(
        default=14_400_000, validation_alias="RUNNER_EXIT_TTL_MS"
    )
    history_days: Annotated[Integer, Field(ge=0, le=36_500)] = Field(
        default=30, validation_alias="RUNNER_HISTORY_DAYS"
    )
    # At least two of the largest output chunks, so that a ring always holds something to replay.
    replay_buffer_bytes: Annotated[Integer, Field(ge=131_072, le=2**31)] = Field(
        default=5_000_000, validation_alias="RUNNER_REPLAY_BUFFER_BYTES"
    )
    max_bundle_bytes: Annotated[Integer, Field(ge=1024, le=2**30)] = Field(
        default=10_485_760, validation_alias="RUNNER_MAX_BUNDLE_BYTES"
    )

    session_namespace: Annotated[str, AfterValidator(_namespace)] = Field(
        default="telo-sessions", validation_alias="RUNNER_SESSION_NAMESPACE"
    )
    managed_by: Annotated[str, AfterValidator(_label_value)] = Field(
        default="telo-k8s-runner", validation_alias="RUNNER_MANAGED_BY"
    )
    image: Annotated[str, AfterValidator(_image)] = Field(
        default="telorun/node:latest-slim", validation_alias="RUNNER_IMAGE"
    )
    image_pull_secret: ObjectName = Field(default="", validation_alias="RUNNER_IMAGE_PULL_SECRET")
    runtime_class: ObjectName = Field(default="", validation_alias="RUNNER_RUNTIME_CLASS")
    image_pull_grace_seconds: Annotated[Integer, Field(ge=0, le=86_400)] = Field(
        default=60, validation_alias="RUNNER_IMAGE_PULL_GRACE_SECONDS"
    )
    bundle_delivery: Literal["auto", "inline", "fetch"] = Field(
        default="auto", validation_alias="RUNNER_BUNDLE_DELIVERY"
    )
    init_image: Annotated[str, AfterValidator(_image)] = Field(
        default="busybox:stable", validation_alias="RUNNER_INIT_IMAGE"
    )
    self_url: Annotated[str, AfterValidator(_self_url)] = Field(
        default="", validation_alias="RUNNER_SELF_URL"
    )
    # It may hold credentials.
    telo_registry_url: str = Field(default="", validation_alias="TELO_REGISTRY_URL", repr=False)

    cluster_setting: Literal["auto", "local", "kubeconfig", "in-cluster"] = Field(
        default="auto", validation_alias="RUNNER_CLUSTER"
    )
    kubeconfig: str = Field(default="", validation_alias="KUBECONFIG")
    local_images: Commands = Field(default={}, validation_alias="RUNNER_LOCAL_IMAGES")
    local_kubelet_delays: Flag = Field(
        default=False, validation_alias="RUNNER_LOCAL_KUBELET_DELAYS"
    )

    data_dir: Path = Field(default=PROJECT_DIR / "var", validation_alias="RUNNER_DATA_DIR")
    stop_sessions_on_exit: Flag = Field(
        default=False, validation_alias="RUNNER_STOP_SESSIONS_ON_EXIT"
    )
    database_url: str = Field(default="", validation_alias="DATABASE_URL", repr=False)
    secret_key: str = Field(default="", validation_alias="DJANGO_SECRET_KEY", repr=False)
    secret_key_fallbacks: CommaList = Field(
        default=(), validation_alias="DJANGO_SECRET_KEY_FALLBACKS", repr=False
    )
    allowed_hosts: CommaList = Field(default=("*",), validation_alias="DJANGO_ALLOWED_HOSTS")
    csrf_trusted_origins: CommaList = Field(
        default=(), validation_alias="DJANGO_CSRF_TRUSTED_ORIGINS"
    )
    debug: Flag = Field(default=False, validation_alias="DJANGO_DEBUG")

    @property
    def cluster(self) -> ClusterKind:
        """Which cluster to use; `auto` never picks a kubeconfig that nobody named."""
        if self.cluster_setting != "auto":
            return ClusterKind(self.cluster_setting)
        if IN_CLUSTER_TOKEN.exists():
            return ClusterKind.IN_CLUSTER
        return ClusterKind.KUBECONFIG if self.kubeconfig else ClusterKind.LOCAL

    @property
    def host(self) -> str:
        """The address to listen on."""
        default = "127.0.0.1" if self.cluster is ClusterKind.LOCAL else "0.0.0.0"  # noqa: S104 - documented default
        return self.host_setting or default

    def require_self_url(self) -> None:
        """Refuse to run sessions whose pods could not fetch what they are to fetch.

        The local cluster's pods are on this machine: what the server listens on is their URL.

        Raises:
            ConfigError: RUNNER_SELF_URL is needed, and there is none.
        """
        is_needed = self.cluster is not ClusterKind.LOCAL and self.bundle_delivery != "inline"
        if is_needed and not self.self_url:
            raise ConfigError(
                "RUNNER_SELF_URL: must be the URL that pods reach the runner at, such as "
                "http://runner.example:8062, unless RUNNER_BUNDLE_DELIVERY is inline"
            )

    @property
    def has_origin_list(self) -> bool:
        """Whether only named origins may use the API from a browser."""
        return "*" not in self.cors_origins


def load() -> Settings:
    """Read and validate the configuration.

    Raises:
        ConfigError: A variable has a value that cannot be used; the message names the variable and
            what it accepts, never the value.
    """
    try:
        return Settings()
    except ValidationError as exc:
        raise ConfigError("; ".join(_sentences(exc))) from exc


def _sentences(failure: ValidationError) -> list[str]:
    """Return one sentence a variable: its name and what is wrong with it."""
    sentences = []
    for error in failure.errors(include_url=False, include_input=False, include_context=False):
        message = error["msg"].removeprefix("Value error, ")
        sentences.append(f"{error['loc'][0]}: {message[0].lower()}{message[1:]}")
    return sentences
