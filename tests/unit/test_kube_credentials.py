import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from kubernetes.aio.client import Configuration

from telorunner.conf import ClusterKind
from telorunner.errors import ConfigError, Unauthorized
from telorunner.kube import objects
from telorunner.kube.client import Cluster, ClusterSettings, open_cluster
from telorunner.kube.credentials import Credentials, InClusterSource, KubeconfigSource
from tests.fakes import TOKEN, FakeApi, open_fake_api


def settings(path: Path | str) -> ClusterSettings:
    return ClusterSettings(ClusterKind.KUBECONFIG, str(path), "sessions", "fake-runner")


def kubeconfig(folder: Path, api: FakeApi, user: dict[str, Any]) -> Path:
    path = api.kubeconfig(folder)
    config = json.loads(path.read_text())
    config["users"][0]["user"] = user
    path.write_text(json.dumps(config))
    return path


@asynccontextmanager
async def aclosing_cluster(cluster: Cluster) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await cluster.close()


async def read(cluster: Cluster) -> str:
    thing = await objects.get(cluster, "pods", "a")
    return str(thing["metadata"]["name"])


async def test_a_new_token_in_the_kubeconfig_is_used_after_a_401(tmp_path: Path) -> None:
    now = 1000.0
    async with open_fake_api() as api:
        path = api.kubeconfig(tmp_path)
        credentials = Credentials(KubeconfigSource(str(path)), clock=lambda: now)
        await credentials.load("KUBECONFIG")
        cluster = Cluster(settings(path), credentials)
        async with aclosing_cluster(cluster):
            api.put("a")
            assert await read(cluster) == "a"
            api.token, api.may_refuse = "rotated", True
            api.kubeconfig(tmp_path)
            # The files are not read twice within a second.
            with pytest.raises(Unauthorized):
                await read(cluster)
            now += 1
            assert await read(cluster) == "a"
            assert len(api.refused) == 2


async def test_many_requests_that_meet_a_401_read_the_file_once(tmp_path: Path) -> None:
    now = 1000.0

    class Counting(KubeconfigSource):
        reads = 0

        async def read(self, configuration: Configuration, *, anew: bool) -> None:
            self.reads += 1
            await super().read(configuration, anew=anew)

    async with open_fake_api() as api:
        source = Counting(str(api.kubeconfig(tmp_path)))
        credentials = Credentials(source, clock=lambda: now)
        await credentials.load("KUBECONFIG")
        api.token = "rotated"
        api.kubeconfig(tmp_path)
        now += 1
        old = credentials.token
        assert [await credentials.renew(old) for _ in range(5)] == [True] * 5
        assert source.reads == 2


async def test_a_token_file_is_read_again_after_a_minute(tmp_path: Path) -> None:
    now = 1000.0
    async with open_fake_api() as api:
        token_file = tmp_path / "token"
        token_file.write_text(f"{api.token}\n")
        path = kubeconfig(tmp_path, api, {"tokenFile": str(token_file)})
        credentials = Credentials(KubeconfigSource(str(path)), clock=lambda: now)
        await credentials.load("KUBECONFIG")
        assert credentials.token == f"Bearer {TOKEN}"
        token_file.write_text("rotated\n")
        now += 59
        assert not await credentials.refresh()
        now += 1
        assert await credentials.refresh()
        assert credentials.token == "Bearer rotated"


async def test_the_in_cluster_account_is_read_again_and_outlives_a_missing_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    now = 1000.0
    token_file, ca_file = tmp_path / "token", tmp_path / "ca.crt"
    token_file.write_text(f"{TOKEN}\n")
    ca_file.write_text("a certificate")
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    source = InClusterSource(str(token_file), str(ca_file), environ)
    credentials = Credentials(source, clock=lambda: now)
    await credentials.load("RUNNER_CLUSTER=in-cluster")
    assert credentials.configuration.host == "https://10.0.0.1:443"
    assert credentials.token == f"bearer {TOKEN}"
    token_file.unlink()
    now += 60
    assert not await credentials.refresh()
    assert credentials.token == f"bearer {TOKEN}"
    assert "the old ones stay" in caplog.text
    token_file.write_text("rotated")
    now += 60
    assert await credentials.refresh()
    assert credentials.token == "bearer rotated"


async def test_an_exec_plugin_may_say_who_asks(tmp_path: Path) -> None:
    async with open_fake_api() as api:
        credential = {
            "apiVersion": "client.authentication.k8s.io/v1",
            "kind": "ExecCredential",
            "status": {"token": api.token},
        }
        text = f"print({json.dumps(json.dumps(credential))})"
        plugin = {
            "apiVersion": credential["apiVersion"],
            "command": sys.executable,
            "args": ["-c", text],
        }
        async with open_cluster(settings(kubeconfig(tmp_path, api, {"exec": plugin}))) as cluster:
            api.put("a")
            assert await read(cluster) == "a"


@pytest.mark.parametrize("text", ["", "{", "[]", "current-context: x", "clusters: 7"])
async def test_a_kubeconfig_that_cannot_be_used_names_its_variable(
    tmp_path: Path, text: str
) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    with pytest.raises(ConfigError, match="KUBECONFIG"):
        async with open_cluster(settings(path)):
            pass


async def test_a_kubeconfig_that_is_missing_names_its_variable(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="KUBECONFIG"):
        async with open_cluster(settings(tmp_path / "nowhere")):
            pass


async def test_a_broken_kubeconfig_shows_none_of_its_secrets(tmp_path: Path) -> None:
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"user": "u", "token": "s3cret"}}],
        "users": [{"name": "u", "user": {"token": "s3cret"}}],
        "clusters": [],
    }
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(config))
    with pytest.raises(ConfigError) as caught:
        async with open_cluster(settings(path)):
            pass
    assert "s3cret" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


async def test_a_certificate_that_cannot_be_read_is_a_bad_setting(tmp_path: Path) -> None:
    async with open_fake_api() as api:
        api.url = "https://127.0.0.1:1"
        path = api.kubeconfig(tmp_path)
        config = json.loads(path.read_text())
        config["clusters"][0]["cluster"]["certificate-authority-data"] = "bm90IGEgY2VydA=="
        path.write_text(json.dumps(config))
        with pytest.raises(ConfigError, match="KUBECONFIG"):
            async with open_cluster(settings(path)):
                pass
