from pathlib import Path

import pytest

from telorunner.errors import ClusterUnavailable
from telorunner.kube import preflight
from tests.fakes import NAMESPACE, cut, hang, open_fake_cluster, refuse


async def test_what_is_missing_is_named(tmp_path: Path) -> None:
    async with open_fake_cluster(tmp_path) as (_, cluster):
        issues = await preflight.check(cluster, image_pull_secret="pull", runtime_class="gvisor")
        assert issues == [
            ("/namespace", 'The namespace "sessions" does not exist.'),
            ("/imagePullSecret", 'The image pull secret "pull" does not exist.'),
            ("/runtimeClass", 'The runtime class "gvisor" does not exist.'),
        ]


async def test_what_is_there_is_no_issue(tmp_path: Path) -> None:
    async with open_fake_cluster(tmp_path) as (api, cluster):
        api.put(NAMESPACE, "namespaces")
        api.put("pull", "secrets")
        assert await preflight.check(cluster, image_pull_secret="pull") == []


async def test_what_the_runner_may_not_read_is_no_issue(tmp_path: Path) -> None:
    async with open_fake_cluster(tmp_path) as (api, cluster):
        api.script("get", refuse(403, "Forbidden"))
        assert await preflight.check(cluster) == []
        assert api.count("get") == 1


@pytest.mark.parametrize("code", [429, 500, 503])
async def test_a_cluster_in_trouble_is_unavailable(tmp_path: Path, code: int) -> None:
    async with open_fake_cluster(tmp_path) as (api, cluster):
        api.script("get", refuse(code), refuse(code))
        with pytest.raises(ClusterUnavailable):
            await preflight.check(cluster)


@pytest.mark.looptime
async def test_a_silent_cluster_is_unavailable_within_two_seconds(
    tmp_path: Path, looptime: float
) -> None:
    async with open_fake_cluster(tmp_path) as (api, cluster):
        api.script("get", hang)
        with pytest.raises(ClusterUnavailable):
            await preflight.check(cluster)
        assert looptime == 2


async def test_a_cluster_that_hangs_up_is_unavailable(tmp_path: Path) -> None:
    async with open_fake_cluster(tmp_path) as (api, cluster):
        api.script("get", cut, cut)
        with pytest.raises(ClusterUnavailable):
            await preflight.check(cluster)


async def test_refused_credentials_are_said_to_be_refused(tmp_path: Path) -> None:
    async with open_fake_cluster(tmp_path) as (api, cluster):
        api.token, api.may_refuse = "another", True
        with pytest.raises(ClusterUnavailable, match="does not accept the runner's credentials"):
            await preflight.check(cluster)
