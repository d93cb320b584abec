"""The command-line client and the stand-in kernel, end to end on the platform."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters import ClusterUnderTest
from tests.serving import Platform

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def standin_platform(
    cluster: ClusterUnderTest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Platform]:
    """A platform whose session image is the stand-in kernel."""
    folder: Path = tmp_path_factory.mktemp("standin")
    environment = {**cluster.environment, "RUNNER_DATA_DIR": str(folder)}
    if cluster.kind == "real":
        image = os.environ.get("TELORUNNER_TEST_STANDIN_IMAGE")
        if not image:
            pytest.skip("TELORUNNER_TEST_STANDIN_IMAGE names no image on the real cluster")
        environment["RUNNER_IMAGE"] = image
    platform = Platform(folder, environment)
    # Without the test kernel on PATH the local cluster starts the stand-in.
    platform.environment["PATH"] = os.environ["PATH"]
    platform.environment["RUNNER_DATA_DIR"] = str(folder)
    platform.start()
    yield platform
    assert platform.stop() == 0


def test_hello_prints_its_lines_and_exits_0(standin_platform: Platform) -> None:
    result = standin_platform.run("run", "examples/hello")
    assert result.returncode == 0, result.stderr
    assert "Hello from Telo!" in result.stdout
    assert "stand-in" in result.stdout.splitlines()[0]


def test_an_application_that_fails_ends_the_client_with_its_code(
    standin_platform: Platform,
) -> None:
    result = standin_platform.run("run", "examples/failing")
    assert result.returncode == 1
    assert "exit code 1" in result.stderr


def test_a_megabyte_arrives_whole_with_its_last_line(standin_platform: Platform) -> None:
    result = standin_platform.run("run", "examples/megabyte")
    assert result.returncode == 0, result.stderr
    assert len(result.stdout) > 1_048_576
