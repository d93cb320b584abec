import base64
from pathlib import Path
from typing import Any

import pytest

from telorunner.localcluster.node.volumes import (
    Mounts,
    VolumeTrouble,
    container_mounts,
    make_volumes,
    remove_tree,
    used_bytes,
)

MOUNTS = Mounts((("/home/telo/deep", "/v/deep"), ("/home/telo", "/v/home"), ("/app", "/v/app")))
OBJECTS = {
    ("configmaps", "files"): {
        "kind": "ConfigMap",
        "data": {"a.txt": "text"},
        "binaryData": {"b.bin": base64.b64encode(bytes(range(256))).decode()},
    },
    ("secrets", "keys"): {"kind": "Secret", "data": {"k": base64.b64encode(b"v").decode()}},
}


ITEM = {"key": "a.txt", "path": "x/y", "mode": 0o755}


def make(folder: Path, *volumes: dict[str, Any]) -> None:
    make_volumes(
        {"spec": {"volumes": list(volumes)}},
        folder,
        lambda resource, name: OBJECTS.get((resource, name)),
    )


@pytest.mark.parametrize(
    ("text", "mapped"),
    [
        ("/app", "/v/app"),
        ("/app/", "/v/app/"),
        ("/app/a/../b c", "/v/app/a/../b c"),
        ("/home/telo/x", "/v/home/x"),
        ("/home/telo/deep/x", "/v/deep/x"),
        ("/home/telo/deeper", "/v/home/deeper"),
        ("/application", "/application"),
        ("/home", "/home"),
        ("cat /app/x", "cat /app/x"),
        ("--root=/app", "--root=/app"),
        ("", ""),
    ],
)
def test_only_a_mount_path_or_one_below_it_is_mapped(text: str, mapped: str) -> None:
    assert MOUNTS.map(text) == mapped


def test_volumes_show_their_files_with_the_modes_that_are_asked_for(tmp_path: Path) -> None:
    make(
        tmp_path,
        {"name": "work", "emptyDir": {}},
        {"name": "all", "configMap": {"name": "files", "defaultMode": 0o400}},
        {
            "name": "some",
            "configMap": {
                "name": "files",
                "items": [{"key": "a.txt", "path": "x/y", "mode": 0o755}],
            },
        },
        {"name": "secret", "secret": {"secretName": "keys"}},
        {
            "name": "both",
            "projected": {
                "sources": [{"configMap": {"name": "files"}}, {"secret": {"name": "keys"}}]
            },
        },
    )
    assert list((tmp_path / "work").iterdir()) == []
    assert (tmp_path / "all" / "b.bin").read_bytes() == bytes(range(256))
    assert (tmp_path / "all" / "a.txt").stat().st_mode & 0o777 == 0o400
    assert (tmp_path / "some" / "x" / "y").read_text() == "text"
    assert (tmp_path / "some" / "x" / "y").stat().st_mode & 0o777 == 0o755
    assert not (tmp_path / "some" / "a.txt").exists()
    assert (tmp_path / "secret" / "k").read_text() == "v"
    assert sorted(path.name for path in (tmp_path / "both").iterdir()) == ["a.txt", "b.bin", "k"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"configMap": {"name": "no"}}, 'configmap "no" not found'),
        ({"secret": {"secretName": "no"}}, 'secret "no" not found'),
        (
            {"configMap": {"name": "files", "items": [{"key": "no", "path": "x"}]}},
            "configmap references non-existent config key: no",
        ),
        ({"hostPath": {"path": "/"}}, "the local cluster has no volumes of the kind hostPath"),
    ],
)
def test_what_a_volume_misses_is_named(
    tmp_path: Path, source: dict[str, Any], message: str
) -> None:
    with pytest.raises(VolumeTrouble) as failed:
        make(tmp_path, {"name": "v", **source})
    assert failed.value.message == f'MountVolume.SetUp failed for volume "v" : {message}'


@pytest.mark.parametrize("path", ["../x", "/x", "a/../../x"])
def test_no_file_and_no_sub_path_leaves_its_volume(tmp_path: Path, path: str) -> None:
    items = [{"key": "a.txt", "path": path}]
    with pytest.raises(VolumeTrouble):
        make(tmp_path, {"name": "v", "configMap": {"name": "files", "items": items}})
    mount = {"name": "v", "mountPath": "/m", "subPath": path}
    with pytest.raises(VolumeTrouble):
        container_mounts({"volumeMounts": [mount]}, tmp_path)


def test_a_sub_path_is_made_and_mounted(tmp_path: Path) -> None:
    mounts = container_mounts(
        {
            "volumeMounts": [
                {"name": "v", "mountPath": "/m/"},
                {"name": "v", "mountPath": "/m/inner", "subPath": "a/b"},
            ]
        },
        tmp_path,
    )
    assert mounts.map("/m/inner/x") == f"{tmp_path}/v/a/b/x"
    assert mounts.map("/m/x") == f"{tmp_path}/v/x"
    assert (tmp_path / "v" / "a" / "b").is_dir()


def test_a_tree_is_removed_without_following_links(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("x" * 10_000)
    tree = tmp_path / "tree"
    (tree / "closed").mkdir(parents=True)
    (tree / "closed" / "file").write_text("x")
    (tree / "link").symlink_to(kept)
    (tree / "closed").chmod(0o500)
    assert used_bytes(tree) < 10_000
    remove_tree(tree)
    assert not tree.exists()
    assert (kept / "file").exists()
