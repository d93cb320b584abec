"""A served platform, and a browser on its admin.

Debian's chromium and Playwright's own driver are all that is needed: nothing is downloaded.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.desk import CHROMIUM
from tests.browser.office import APP_COMMAND, APP_IMAGE, TAGS, make_operator
from tests.hub import FakeHub, fake_hub
from tests.serving import Platform

ARTIFACTS = "TELORUNNER_TEST_ARTIFACTS"


@pytest.fixture(scope="module", name="hub")
def docker_hub() -> Iterator[FakeHub]:
    """What the runner takes for Docker Hub."""
    with fake_hub(TAGS) as hub:
        yield hub


@pytest.fixture(scope="module", name="platform")
def served_platform(hub: FakeHub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """The platform on its embedded defaults, with an operator's account."""
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    environment = {
        "RUNNER_CLUSTER": "local",
        "RUNNER_BASE_IMAGE_API_URL": hub.url,
        "RUNNER_LOCAL_IMAGES": json.dumps({APP_IMAGE: APP_COMMAND}),
    }
    platform = Platform(tmp_path_factory.mktemp("platform"), environment)
    platform.start()
    process = platform.process
    assert process is not None
    try:
        make_operator(platform.environment)
        yield platform
    finally:
        code = platform.stop()
    assert code == 0, "".join(process.output)


@pytest.fixture
def artifacts(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The folder for a test's screenshots; the environment may name where they are kept."""
    kept = os.environ.get(ARTIFACTS)
    folder = Path(kept) / request.node.name if kept else tmp_path / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
