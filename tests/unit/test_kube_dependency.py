from importlib import metadata, util

import kubernetes
import kubernetes.aio


def test_the_kubernetes_client_is_the_one_that_ships_its_own_asyncio_half() -> None:
    # The older fork installs files of the same names; release 36.0.0 sends requests anonymously.
    assert util.find_spec("kubernetes_asyncio") is None
    assert metadata.version("kubernetes") == kubernetes.__version__ == kubernetes.aio.__version__
    assert metadata.version("kubernetes") != "36.0.0"
