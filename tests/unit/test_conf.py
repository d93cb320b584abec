"""The configuration: every variable is validated, and a bad value names the variable."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from telorunner import conf
from telorunner.conf import ClusterKind, Settings
from telorunner.database import settings as database_settings
from telorunner.errors import ConfigError

VARIABLES = sorted(str(field.validation_alias) for field in Settings.model_fields.values())

BAD_VALUES = [
    ("PORT", ["x", "-1", "65536", "8_0", " 80", "80.0", "٨٠", "+80"]),
    ("LOG_LEVEL", ["verbose", "INFORMATION"]),
    (
        "RUNNER_CORS_ORIGINS",
        ["a.example", "ftp://a", "https://a.example/", "https://u@a", "https://"],
    ),
    ("RUNNER_MAX_CPU", ["x", "-1", "1x", "500 m"]),
    ("RUNNER_MAX_MEMORY", ["2GB", "x", "-1", "100m"]),
    ("RUNNER_MAX_EPHEMERAL_STORAGE", ["2GB", "x"]),
    ("RUNNER_MAX_TTL_SECONDS", ["0", "-5", "1e3", "2147483648", "0.5"]),
    ("RUNNER_MAX_SESSIONS", ["0", "-1", "many", "100001"]),
    ("RUNNER_EXIT_TTL_MS", ["0", "999", "x"]),
    ("RUNNER_HISTORY_DAYS", ["-1", "x"]),
    ("RUNNER_REPLAY_BUFFER_BYTES", ["0", "1000", "5MB"]),
    ("RUNNER_MAX_BUNDLE_BYTES", ["0", "10", "10Mi"]),
    ("RUNNER_SESSION_NAMESPACE", ["Upper", "a.b", "-a", "a" * 64, "a_b"]),
    ("RUNNER_MANAGED_BY", ["a b", "-a", "a" * 64, "é"]),
    ("RUNNER_IMAGE", ["registry/UPPER", "a b", ":tag", "a:b:c:d"]),
    ("RUNNER_IMAGE_PULL_SECRET", ["Upper", "a b", "a" * 254]),
    ("RUNNER_RUNTIME_CLASS", ["Upper", "a/b"]),
    ("RUNNER_IMAGE_PULL_GRACE_SECONDS", ["-1", "x", "86401"]),
    ("RUNNER_BUNDLE_DELIVERY", ["carrier-pigeon"]),
    ("RUNNER_INIT_IMAGE", ["busybox:", "a b"]),
    (
        "RUNNER_SELF_URL",
        [
            "elsewhere.example",
            "ftp://runner.example",
            "http://",
            "http://runner.example:8062/",
            "http://runner.example/path",
            "http://user:secret-word@runner.example",
            "http://runner.example?x=1",
            "http://runner.example#x",
            "http://runner.example:0",
            "http://runner.example:65536",
            "http://runner.example:port",
            "http://a b",
            "http://$(id)",
            "http://[::1",
        ],
    ),
    ("RUNNER_CLUSTER", ["minikube"]),
    ("RUNNER_LOCAL_IMAGES", ["x", "[]", '{"a": "b"}', '{"a": []}', '{"a": [1]}']),
    ("RUNNER_LOCAL_KUBELET_DELAYS", ["perhaps", "2"]),
    ("RUNNER_STOP_SESSIONS_ON_EXIT", ["perhaps"]),
    ("DJANGO_DEBUG", ["perhaps"]),
]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """An environment without any of the runner's variables."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(conf.settings, "IN_CLUSTER_TOKEN", Path("/nowhere"))
    return monkeypatch


@pytest.mark.parametrize(
    ("variable", "value"), [(name, value) for name, values in BAD_VALUES for value in values]
)
def test_a_bad_value_names_the_variable_and_is_not_repeated(
    environment: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    environment.setenv(variable, value)
    with pytest.raises(ConfigError, match=f"^{variable}: ") as caught:
        conf.load()
    assert "\n" not in str(caught.value)
    if len(value) > 8:
        assert value not in str(caught.value)


def test_several_bad_values_are_named_together(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("PORT", "x")
    environment.setenv("RUNNER_MAX_CPU", "x")
    with pytest.raises(ConfigError, match=r"PORT: .*; RUNNER_MAX_CPU: "):
        conf.load()


@pytest.mark.parametrize("variable", VARIABLES)
def test_an_empty_value_counts_as_unset(environment: pytest.MonkeyPatch, variable: str) -> None:
    default = conf.load()
    environment.setenv(variable, "")
    assert conf.load() == default


def test_the_defaults_are_the_documented_ones() -> None:
    settings = conf.load()
    assert settings.port == 8062
    assert settings.host == "127.0.0.1"
    assert settings.cluster is ClusterKind.LOCAL
    assert (settings.max_cpu_millis, settings.max_memory_bytes) == (500, 512 * 2**20)
    assert (settings.max_ttl_seconds, settings.max_ephemeral_storage_bytes) == (3600, 2**30)
    assert (settings.max_sessions, settings.exit_ttl_ms, settings.history_days) == (
        32,
        14_400_000,
        30,
    )
    assert (settings.replay_buffer_bytes, settings.max_bundle_bytes) == (5_000_000, 10_485_760)
    assert settings.data_dir == conf.PROJECT_DIR / "var"
    assert not settings.has_origin_list


def test_values_are_read(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("PORT", "0")
    environment.setenv("RUNNER_MAX_CPU", "1.5")
    environment.setenv("RUNNER_MAX_MEMORY", "1.5Gi")
    environment.setenv("RUNNER_CORS_ORIGINS", "https://a.example, http://localhost:3000")
    environment.setenv("RUNNER_LOCAL_IMAGES", '{"python": ["python3", "-q"]}')
    environment.setenv("DJANGO_DEBUG", "True")
    settings = conf.load()
    assert settings.port == 0
    assert (settings.max_cpu_millis, settings.max_memory_bytes) == (1500, 3 * 2**29)
    assert settings.cors_origins == ("https://a.example", "http://localhost:3000")
    assert settings.has_origin_list
    assert settings.local_images == {"python": ("python3", "-q")}
    assert settings.debug


@pytest.mark.parametrize(
    ("named", "kubeconfig", "is_in_cluster", "kind"),
    [
        ("", "", False, "local"),
        ("", "/kube", False, "kubeconfig"),
        ("", "/kube", True, "in-cluster"),
        ("auto", "", False, "local"),
        ("local", "/kube", True, "local"),
        ("kubeconfig", "/kube", True, "kubeconfig"),
        ("in-cluster", "/kube", False, "in-cluster"),
    ],
)
def test_the_cluster_is_never_one_that_nobody_named(
    environment: pytest.MonkeyPatch,
    tmp_path: Path,
    named: str,
    kubeconfig: str,
    is_in_cluster: bool,
    kind: str,
) -> None:
    environment.setenv("RUNNER_CLUSTER", named)
    environment.setenv("KUBECONFIG", kubeconfig)
    if is_in_cluster:
        environment.setattr(conf.settings, "IN_CLUSTER_TOKEN", tmp_path)
    settings = conf.load()
    assert settings.cluster == kind
    assert settings.host == ("127.0.0.1" if kind == "local" else "0.0.0.0")  # noqa: S104 - the documented default


@pytest.mark.parametrize(
    "url",
    [
        "http://runner.example:8062",
        "https://runner.example",
        "http://10.88.0.1:1",
        "http://[fd00::1]:8062",
        "http://telo-runner.telo.svc.cluster.local:8062",
    ],
)
def test_a_url_that_pods_reach_the_runner_at_is_read(
    environment: pytest.MonkeyPatch, url: str
) -> None:
    environment.setenv("RUNNER_SELF_URL", url)
    assert conf.load().self_url == url


@pytest.mark.parametrize(
    ("cluster", "delivery", "url", "is_enough"),
    [
        ("kubeconfig", "auto", "", False),
        ("kubeconfig", "fetch", "", False),
        ("in-cluster", "", "", False),
        ("kubeconfig", "inline", "", True),
        ("kubeconfig", "auto", "http://runner.example", True),
        ("local", "auto", "", True),
        ("local", "fetch", "", True),
    ],
)
def test_a_real_clusters_pods_need_a_url_unless_all_is_inline(
    environment: pytest.MonkeyPatch, cluster: str, delivery: str, url: str, is_enough: bool
) -> None:
    environment.setenv("RUNNER_CLUSTER", cluster)
    environment.setenv("RUNNER_BUNDLE_DELIVERY", delivery)
    environment.setenv("RUNNER_SELF_URL", url)
    settings = conf.load()
    if is_enough:
        settings.require_self_url()
        return
    with pytest.raises(ConfigError, match=r"^RUNNER_SELF_URL: .*RUNNER_BUNDLE_DELIVERY"):
        settings.require_self_url()


def test_secrets_do_not_show(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("DJANGO_SECRET_KEY", "hunter2-key")
    environment.setenv("DJANGO_SECRET_KEY_FALLBACKS", "hunter2-old")
    environment.setenv("DATABASE_URL", "postgresql://u:hunter2@db/x")
    assert "hunter2" not in repr(conf.load())
    assert "hunter2" not in str(conf.load())


@pytest.mark.parametrize(
    "url",
    [
        "x",
        "mysql://u:hunter2@db/x",
        "postgresql://",
        "postgresql://u:hunter2@db:port/x",
        "postgresql://u:hunter2@db",
        "://",
    ],
)
def test_a_database_that_cannot_be_used_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ConfigError, match=r"^DATABASE_URL: ") as caught:
        database_settings.configure(url, Path("/data"))
    assert "hunter2" not in str(caught.value)


def test_sqlite_lies_in_the_data_folder_by_default() -> None:
    settings: dict[str, Any] = database_settings.configure("", Path("/data"))
    assert database_settings.sqlite_file(settings) == Path("/data/telorunner.sqlite3")
    assert settings["OPTIONS"]["transaction_mode"] == "IMMEDIATE"
    assert "journal_mode=WAL" in settings["OPTIONS"]["init_command"]


# An answer that no host will give is waited for no longer than a statement may take, 15 s.
VANISHED = {
    "tcp_user_timeout": 10_000,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
}


def test_the_url_may_say_otherwise_when_a_host_has_vanished() -> None:
    settings = database_settings.configure("postgresql://db/x?keepalives_idle=60", Path("/data"))
    assert settings["OPTIONS"]["keepalives_idle"] == 60
    assert settings["OPTIONS"]["tcp_user_timeout"] == 10_000


def test_postgresql_has_a_pool_and_bounded_waits() -> None:
    url = "postgresql://u:p@db:5433/x?sslmode=require&options=-c%20search_path%3Dy"
    settings = database_settings.configure(url, Path("/data"))
    assert (settings["HOST"], settings["PORT"], settings["NAME"]) == ("db", 5433, "x")
    assert settings["CONN_MAX_AGE"] == 0
    options = settings["OPTIONS"]
    assert options["sslmode"] == "require"
    assert options["connect_timeout"] == database_settings.POSTGRES_CONNECT_SECONDS
    assert options["options"] == "-c search_path=y -c statement_timeout=15000"
    assert {name: options[name] for name in VANISHED} == VANISHED
    assert options["pool"]["timeout"] == database_settings.POSTGRES_POOL_SECONDS
    assert options["pool"]["reconnect_timeout"] < database_settings.POSTGRES_POOL_SECONDS
    assert settings["CONN_HEALTH_CHECKS"] is True
    assert database_settings.sqlite_file(settings) is None
