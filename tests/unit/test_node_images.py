from pathlib import Path

import pytest

from telorunner.localcluster.node.images import Image, Images, ImageTrouble, make_tools

DIGEST = "sha256:" + "0" * 64
IMAGES = Images(
    kernel_image="registry.example/telo:1.2",
    extra={"team/app:1": ("python3", "app.py")},
    kernel_command=("/opt/telo/bin/telo",),
)


@pytest.mark.parametrize(
    ("reference", "entrypoint", "cmd"),
    [
        ("telorun/node", ("telo",), ()),
        ("telorun/node:latest-slim", ("telo",), ()),
        (f"telorun/node@{DIGEST}", ("telo",), ()),
        ("docker.io/telorun/node:1.0.0", ("telo",), ()),
        ("registry.example/telo:1.2", ("telo",), ()),
        ("busybox", (), ("sh",)),
        ("docker.io/library/busybox:stable", (), ("sh",)),
        ("team/app:1", ("python3", "app.py"), ()),
        ("docker.io/team/app:1", ("python3", "app.py"), ()),
    ],
)
def test_known_images_stand_for_a_command(
    reference: str, entrypoint: tuple[str, ...], cmd: tuple[str, ...]
) -> None:
    is_of_root = bool(cmd)
    assert IMAGES.find(reference) == Image(reference, entrypoint, cmd, is_of_root)


@pytest.mark.parametrize(
    "reference",
    ["registry.example/telo:1.3", "team/app:2", "other/telorun/node", "evil.example/busybox:1"],
)
def test_other_images_cannot_be_pulled(reference: str) -> None:
    with pytest.raises(ImageTrouble) as trouble:
        IMAGES.find(reference, "IfNotPresent")
    assert trouble.value.reason == "ErrImagePull"
    with pytest.raises(ImageTrouble) as trouble:
        IMAGES.find(reference, "Never")
    assert trouble.value.reason == "ErrImageNeverPull"
    assert trouble.value.message == (
        f'Container image "{reference}" is not present with pull policy of Never'
    )


@pytest.mark.parametrize("reference", ["", "a b", "x:", "x:1:2", "../x", "x@sha256:1"])
def test_what_is_no_reference_is_called_so(reference: str) -> None:
    with pytest.raises(ImageTrouble) as trouble:
        IMAGES.find(reference, "Never")
    assert trouble.value.reason == "InvalidImageName"
    assert trouble.value.message == (
        f'Failed to apply default image tag "{reference}": couldn\'t parse image name'
        f' "{reference}": invalid reference format'
    )


def test_without_a_kernel_its_images_cannot_be_pulled() -> None:
    with pytest.raises(ImageTrouble):
        Images(kernel_command=()).find("telorun/node:1")


def test_the_tools_come_first_on_the_path_and_quote_the_kernel(tmp_path: Path) -> None:
    search = make_tools(tmp_path / "bin", ("/a b/python", "/c'd/telo"))
    assert search.split(":")[0] == str(tmp_path / "bin")
    shim = (tmp_path / "bin" / "telo").read_text()
    assert shim == "#!/bin/sh\nexec '/a b/python' '/c'\"'\"'d/telo' \"$@\"\n"


def test_a_machine_without_wget_gets_one(tmp_path: Path) -> None:
    make_tools(tmp_path, (), "/nowhere")
    assert [path.name for path in tmp_path.iterdir()] == ["wget"]
    make_tools(tmp_path / "other", (), str(tmp_path))
    assert list((tmp_path / "other").iterdir()) == []


def test_the_folder_of_an_installed_kernel_ends_the_path(tmp_path: Path) -> None:
    assert make_tools(tmp_path, IMAGES.kernel_command).endswith(":/bin:/opt/telo/bin")


@pytest.mark.parametrize(
    ("reference", "repository"),
    [("UPPER", "library/UPPER"), ("team/App:1", "team/App"), ("telo.test/UPPER:1", "UPPER")],
)
def test_capitals_in_a_repository_are_pointed_out(reference: str, repository: str) -> None:
    with pytest.raises(ImageTrouble) as trouble:
        IMAGES.find(reference)
    assert trouble.value.message.endswith(
        f"invalid reference format: repository name ({repository}) must be lowercase"
    )
