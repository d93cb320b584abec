"""Which files the command-line client sends, and how."""

import base64
from pathlib import Path

import pytest

from telorunner.cli.failures import ClientFailure
from telorunner.cli.packing import MAX_BYTES, pack


def fill(folder: Path, *paths: str) -> None:
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(path)


def paths(folder: Path) -> list[str]:
    return [file["relativePath"] for file in pack(folder).files]


def test_a_folder_is_packed_whole_and_sorted_with_its_telo_yaml_as_entry(tmp_path: Path) -> None:
    fill(tmp_path, "telo.yaml", "other.yaml", "a/b/c.txt", ".hidden")

    bundle = pack(tmp_path)

    assert bundle.entry == "telo.yaml"
    assert paths(tmp_path) == [".hidden", "other.yaml", "telo.yaml", "a/b/c.txt"]
    assert bundle.size_bytes == sum(len(path) for path in paths(tmp_path))
    assert bundle.body()["entryRelativePath"] == "telo.yaml"
    assert bundle.body()["files"][0] == {"relativePath": ".hidden", "contents": ".hidden"}


def test_a_file_alone_is_the_bundle(tmp_path: Path) -> None:
    fill(tmp_path, "telo.yaml", "app.yaml")

    bundle = pack(tmp_path / "app.yaml")

    assert bundle.entry == "app.yaml"
    assert bundle.files == ({"relativePath": "app.yaml", "contents": "app.yaml"},)


def test_the_only_yaml_file_at_the_top_is_the_entry(tmp_path: Path) -> None:
    fill(tmp_path, "app.yml", "sub/other.yaml", "notes.txt")

    assert pack(tmp_path).entry == "app.yml"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (["notes.txt", "sub/telo.yaml"], "has no telo.yaml, nor another YAML file"),
        (["a.yaml", "b.yaml"], "several YAML files"),
    ],
)
def test_a_folder_without_an_entry_is_refused(
    tmp_path: Path, files: list[str], message: str
) -> None:
    fill(tmp_path, *files)

    with pytest.raises(ClientFailure, match=message) as caught:
        pack(tmp_path)
    assert caught.value.code == 2


def test_what_is_installed_versioned_or_cached_is_left_out_at_any_depth(tmp_path: Path) -> None:
    fill(
        tmp_path,
        "telo.yaml",
        ".git/config",
        "node_modules/x/index.js",
        "sub/node_modules/y.js",
        "sub/.telo/cache",
        "sub/git",
        "telo/kept",
    )

    assert paths(tmp_path) == ["telo.yaml", "sub/git", "telo/kept"]


def test_teloignore_names_what_else_is_left_out(tmp_path: Path) -> None:
    fill(
        tmp_path,
        "telo.yaml",
        "a.log",
        "keep.log",
        "build/out",
        "sub/b.log",
        "sub/build",
        "top/only",
    )
    (tmp_path / ".teloignore").write_text("# logs\n*.log\n!keep.log\nbuild/\n/top\n")

    assert paths(tmp_path) == [".teloignore", "keep.log", "telo.yaml", "sub/build"]


@pytest.mark.parametrize(
    "data", [b"\xff\xfe\x00", b"a\x00b", "\ud800".encode("utf-8", "surrogatepass")]
)
def test_what_is_no_text_travels_as_base64(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "telo.yaml").write_bytes(data)

    (file,) = pack(tmp_path).files

    assert file["encoding"] == "base64"
    assert base64.b64decode(file["contents"]) == data


@pytest.mark.parametrize("text", ["", "a\r\nb\r", "\ufeffkind: x", "é𝄞\u2028"])
def test_a_text_travels_byte_for_byte(tmp_path: Path, text: str) -> None:
    (tmp_path / "telo.yaml").write_bytes(text.encode())

    assert pack(tmp_path).files == ({"relativePath": "telo.yaml", "contents": text},)


def test_links_out_of_the_folder_are_not_followed(tmp_path: Path) -> None:
    fill(tmp_path, "secret", "elsewhere/file", "app/telo.yaml", "app/real")
    app = tmp_path / "app"
    (app / "inside").symlink_to("real")
    (app / "outside").symlink_to(tmp_path / "secret")
    (app / "folder").symlink_to(tmp_path / "elsewhere")
    (app / "broken").symlink_to("nowhere")

    bundle = pack(app)

    assert paths(app) == ["inside", "real", "telo.yaml"]
    assert set(bundle.skipped) == {"outside", "folder", "broken"}


def test_a_folder_that_no_runner_takes_is_not_read_into_memory(tmp_path: Path) -> None:
    fill(tmp_path, "telo.yaml")
    with (tmp_path / "disk.img").open("wb") as sparse:
        sparse.truncate(MAX_BYTES + 1)
    with pytest.raises(ClientFailure, match=r"no runner takes as much.*disk\.img"):
        pack(tmp_path)


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ClientFailure, match="nowhere: No such file or directory"):
        pack(tmp_path / "nowhere")
