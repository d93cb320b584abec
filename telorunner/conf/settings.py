"""The runner's configuration: read from the environment once, validated, frozen.

`load()` is pure: it makes no folder, reads no file and never exits. Each variable is documented in
the README under its own name; an empty value counts as unset.
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError
from pydantic_settings import SettingsConfigDict

from telorunner.conf.catalog import SeededApps
from telorunner.conf.routing import RoutingVariables
from telorunner.conf.types import (
    Bytes,
    CommaList,
    Commands,
    CpuMillis,
    Flag,
    HttpUrl,
    Image,
    Integer,
    LabelValue,
    Namespace,
    ObjectName,
    Origins,
    Pattern,
    Repository,
    SelfUrl,
    TermsVersion,
    Text,
    Title,
)
from telorunner.errors import ConfigError
from telorunner.values.port import MAX_PORT

PROJECT_DIR = Path(__file__).resolve().parent.parent.parent
IN_CLUSTER_TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


# What the API takes as activeDeadlineSeconds.
Seconds = Annotated[Integer, Field(ge=1, le=2**31 - 1)]


class ClusterKind(StrEnum):
    """Where the sessions' pods run."""

    LOCAL = "local"
    KUBECONFIG = "kubeconfig"
    IN_CLUSTER = "in-cluster"


class Settings(RoutingVariables):
    """Everything an operator can set by environment; a field's alias is its variable."""

    model_config = SettingsConfigDict(
        frozen=True, env_ignore_empty=True, extra="ignore", hide_input_in_errors=True
    )

    port: Annotated[Integer, Field(ge=0, le=MAX_PORT)] = Field(
        default=8062, validation_alias="PORT"
    )
    host_setting: str = Field(default="", validation_alias="RUNNER_HOST")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", validation_alias="LOG_LEVEL"
    )
    display_name: Text = Field(default="Telo Runner", validation_alias="RUNNER_DISPLAY_NAME")
    description: Text = Field(
        default="Runs the Telo application in a cloud environment",
        validation_alias="RUNNER_DESCRIPTION",
    )
    cors_origins: Origins = Field(default=("*",), validation_alias="RUNNER_CORS_ORIGINS")

    max_cpu_millis: CpuMillis = Field(default=500, validation_alias="RUNNER_MAX_CPU")
    max_memory_bytes: Bytes = Field(default=512 * 2**20, validation_alias="RUNNER_MAX_MEMORY")
    max_ephemeral_storage_bytes: Bytes = Field(
        default=2**30, validation_alias="RUNNER_MAX_EPHEMERAL_STORAGE"
    )
    max_ttl_seconds: Seconds = Field(default=3600, validation_alias="RUNNER_MAX_TTL_SECONDS")
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

    session_namespace: Namespace = Field(
        default="telo-sessions", validation_alias="RUNNER_SESSION_NAMESPACE"
    )
    managed_by: LabelValue = Field(default="telo-k8s-runner", validation_alias="RUNNER_MANAGED_BY")
    image: Image = Field(default="telorun/node:latest-slim", validation_alias="RUNNER_IMAGE")
    image_pull_secret: ObjectName = Field(default="", validation_alias="RUNNER_IMAGE_PULL_SECRET")
    runtime_class: ObjectName = Field(default="", validation_alias="RUNNER_RUNTIME_CLASS")
    image_pull_grace_seconds: Annotated[Integer, Field(ge=0, le=86_400)] = Field(
        default=60, validation_alias="RUNNER_IMAGE_PULL_GRACE_SECONDS"
    )
    bundle_delivery: Literal["auto", "inline", "fetch"] = Field(
        default="auto", validation_alias="RUNNER_BUNDLE_DELIVERY"
    )
    init_image: Image = Field(default="busybox:stable", validation_alias="RUNNER_INIT_IMAGE")
    self_url: SelfUrl = Field(default="", validation_alias="RUNNER_SELF_URL")
    # It may hold credentials.
    telo_registry_url: str = Field(default="", validation_alias="TELO_REGISTRY_URL", repr=False)

    app_max_cpu_millis: CpuMillis = Field(default=500, validation_alias="RUNNER_APP_MAX_CPU")
    app_max_memory_bytes: Bytes = Field(
        default=512 * 2**20, validation_alias="RUNNER_APP_MAX_MEMORY"
    )
    app_max_ephemeral_storage_bytes: Bytes = Field(
        default=2**30, validation_alias="RUNNER_APP_MAX_EPHEMERAL_STORAGE"
    )
    app_max_ttl_seconds: Seconds = Field(
        default=21_600, validation_alias="RUNNER_APP_MAX_TTL_SECONDS"
    )
    # Env values in it are secrets.
    apps: SeededApps = Field(default={}, validation_alias="RUNNER_APPS", repr=False)
    terms_file: Path | None = Field(default=None, validation_alias="RUNNER_TERMS_FILE")
    terms_body: Text = Field(default="", validation_alias="RUNNER_TERMS_BODY", repr=False)
    terms_title: Title = Field(default="Usage agreement", validation_alias="RUNNER_TERMS_TITLE")
    terms_version: TermsVersion = Field(default="", validation_alias="RUNNER_TERMS_VERSION")
    base_image_catalog_enabled: Flag = Field(
        default=True, validation_alias="RUNNER_BASE_IMAGE_CATALOG_ENABLED"
    )
    base_image_repo: Repository = Field(
        default="telorun/node", validation_alias="RUNNER_BASE_IMAGE_REPO"
    )
    base_image_pinned_only: Flag = Field(
        default=True, validation_alias="RUNNER_BASE_IMAGE_PINNED_ONLY"
    )
    base_image_exclude_sha: Flag = Field(
        default=True, validation_alias="RUNNER_BASE_IMAGE_EXCLUDE_SHA"
    )
    base_image_exclude_prerelease: Flag = Field(
        default=True, validation_alias="RUNNER_BASE_IMAGE_EXCLUDE_PRERELEASE"
    )
    base_image_include: Pattern = Field(default="", validation_alias="RUNNER_BASE_IMAGE_INCLUDE")
    base_image_exclude: Pattern = Field(default="", validation_alias="RUNNER_BASE_IMAGE_EXCLUDE")
    base_image_limit: Annotated[Integer, Field(ge=0, le=200)] = Field(
        default=20, validation_alias="RUNNER_BASE_IMAGE_LIMIT"
    )
    base_image_refresh_seconds: Annotated[Integer, Field(ge=10, le=2_592_000)] = Field(
        default=3600, validation_alias="RUNNER_BASE_IMAGE_REFRESH_SECONDS"
    )
    base_image_api_url: HttpUrl = Field(
        default="https://hub.docker.com", validation_alias="RUNNER_BASE_IMAGE_API_URL"
    )

    cluster_setting: Literal["auto", "local", "kubeconfig", "in-cluster"] = Field(
        default="auto", validation_alias="RUNNER_CLUSTER"
    )
    kubeconfig: str = Field(default="", validation_alias="KUBECONFIG")
    local_images: Commands = Field(default={}, validation_alias="RUNNER_LOCAL_IMAGES")
    local_kubelet_delays: Flag = Field(
        default=False, validation_alias="RUNNER_LOCAL_KUBELET_DELAYS"
    )
    local_gateway_api: Flag = Field(default=False, validation_alias="RUNNER_LOCAL_GATEWAY_API")
    local_ingress: Flag = Field(default=True, validation_alias="RUNNER_LOCAL_INGRESS")
    local_ingress_port: Annotated[Integer, Field(ge=0, le=65535)] = Field(
        default=0, validation_alias="RUNNER_LOCAL_INGRESS_PORT"
    )
    local_ingress_tls_port: Annotated[Integer, Field(ge=0, le=65535)] = Field(
        default=0, validation_alias="RUNNER_LOCAL_INGRESS_TLS_PORT"
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
