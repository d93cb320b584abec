"""Which process a runner takes for the cluster that an earlier runner started."""

import asyncio
from pathlib import Path

import pytest

from telorunner.localcluster import launch, statefolder
from telorunner.localcluster.cluster import ClusterSettings, open_local_cluster


@pytest.mark.parametrize("command", ["runcluster", "serve"])
async def test_a_process_that_has_the_number_of_an_ended_cluster_is_left_alone(
    tmp_path: Path, command: str
) -> None:
    # Another folder's cluster, and a process of this folder's that is no cluster.
    data_dir = tmp_path / "other" if command == "runcluster" else tmp_path
    stranger = await asyncio.create_subprocess_exec(
        *("/bin/sh", "-c", "sleep 300 & trap 'kill $!; exit 7' TERM; echo up; wait", "sh", command),
        env={"RUNNER_DATA_DIR": str(data_dir), "PATH": "/usr/bin:/bin"},
        stdout=asyncio.subprocess.PIPE,
    )
    assert stranger.stdout is not None
    assert await stranger.stdout.readline() == b"up\n"
    owned = statefolder.prepare(tmp_path) / launch.OWNED_FILE
    owned.write_text(str(stranger.pid))
    async with open_local_cluster(ClusterSettings(data_dir=tmp_path)):
        async with launch.ensure_cluster(tmp_path) as launched:
            assert not launched.is_own
        assert statefolder.is_locked(tmp_path)
    assert stranger.returncode is None
    stranger.terminate()
    await stranger.communicate()
    assert stranger.returncode == 7
