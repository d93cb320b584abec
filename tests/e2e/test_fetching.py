"""Delivery needs sh, tar and wget of images: those that have them, and what is told of others."""

import os

import pytest

from tests.e2e.conftest import Serving

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

HELLO = 'print("delivered")'
NO_SHELL_INLINE = (
    "the image has no shell: inline delivery of the bundle (RUNNER_BUNDLE_DELIVERY) needs sh and "
    "tar in the image"
)
NO_TAR_INLINE = "the image has no tar, which inline delivery (RUNNER_BUNDLE_DELIVERY) needs"
NO_SHELL = "the image has no shell: RUNNER_INIT_IMAGE needs sh, wget and tar"


@pytest.mark.parametrize(
    "variable", ["TELORUNNER_TEST_INIT_IMAGE", "TELORUNNER_TEST_BUSYBOX_IMAGE"]
)
async def test_an_init_image_with_sh_wget_and_tar_delivers(serve: Serving, variable: str) -> None:
    image = os.environ.get(variable)
    if not image:
        pytest.skip(f"{variable} names no image on the real cluster")
    variables = {"RUNNER_INIT_IMAGE": image, "RUNNER_BUNDLE_DELIVERY": "fetch"}
    async with serve(fetching=True, **variables) as client:
        session = await client.create(HELLO)
        assert await client.status(session) == {"kind": "exited", "code": 0}
        assert await client.replay(session) == b"delivered\r\n"


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ("sh", NO_SHELL),
        ("tar", "the image (RUNNER_INIT_IMAGE) has no tar, which fetching a bundle needs"),
        ("wget", "the image (RUNNER_INIT_IMAGE) has no wget, which fetching a bundle needs"),
    ],
)
async def test_an_init_image_that_lacks_a_tool_is_told_with_its_setting(
    serve: Serving, tool: str, words: str
) -> None:
    template = os.environ.get("TELORUNNER_TEST_INIT_IMAGE_WITHOUT")
    if not template:
        pytest.skip("TELORUNNER_TEST_INIT_IMAGE_WITHOUT names no images on the real cluster")
    image = template.format(tool=tool)
    variables = {"RUNNER_INIT_IMAGE": image, "RUNNER_BUNDLE_DELIVERY": "fetch"}
    async with serve(fetching=True, **variables) as client:
        status = await client.status(await client.create(HELLO))
        assert status["kind"] == "failed"
        assert status["message"].startswith('init container "body-fetch" failed: ')
        assert status["message"].endswith(words)


async def test_a_session_image_that_lacks_a_tool_is_told_with_the_setting(serve: Serving) -> None:
    async with serve() as client:
        # What is not on PATH is not there.
        for path, words in (("/opt/nothing", NO_SHELL_INLINE), ("/opt/without-tar", NO_TAR_INLINE)):
            status = await client.status(await client.create(HELLO, env={"PATH": path}))
            assert status["kind"] == "failed"
            assert status["message"].startswith('container "session" failed: ')
            assert words in status["message"]
