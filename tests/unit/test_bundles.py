import gzip
import hashlib
import io
import shutil
import subprocess
import tarfile
import time
from pathlib import Path

import pytest

from sessions.bundles import (
    INLINE_MAX_BYTES,
    Bundle,
    File,
    check,
    choose_delivery,
    fetch_url,
    new_token,
    normalise,
    pack,
)
from sessions.states import Delivery
from telorunner.errors import BundleTooLarge, InvalidBundle

ODD_NAMES = [
    "-rf.yaml", "$(id).yaml", "a;b.yaml", "a b.yaml", "it's \"quoted\".yaml", "new\nline.yaml",
    "tab\t.yaml", "%2e%2e", "100%+#?&.yaml", "é.yaml", "😀.yaml", ".hidden", "...", "a..b", "~",
    "*", "[x]", "\x7f\x01",
]  # fmt: skip


def files(*paths: str) -> list[File]:
    return [File(path, path.encode()) for path in paths]


class TestPaths:
    @pytest.mark.parametrize(
        ("path", "normalised"),
        [
            ("a.yaml", "a.yaml"),
            ("/a.yaml", "a.yaml"),
            ("//a//b.yaml", "a/b.yaml"),
            ("./a/./b.yaml", "a/b.yaml"),
            ("a" * 255, "a" * 255),
            ("a/" * 2047 + "ab", "a/" * 2047 + "ab"),
            *((name, name) for name in ODD_NAMES),
        ],
    )
    def test_paths_are_normalised(self, path: str, normalised: str) -> None:
        assert normalise(path, pointer="/x") == normalised

    @pytest.mark.parametrize(
        "path",
        ["", ".", "/", "./", "././/", "..", "../x", "a/..", "a/../x", "a/../../x", "./../x",
         "/../x", "..\\x", "C:\\x", "a\0", "\\", "a" * 256, "é" * 128, "x/" + "é" * 128 + "/y",
         "a/" * 2048 + "a"],
    )  # fmt: skip
    def test_what_is_no_path_in_the_bundle_is_refused_by_name(self, path: str) -> None:
        with pytest.raises(InvalidBundle, match=r"^/bundle/files/1/relativePath: "):
            check([File("telo.yaml", b""), File(path, b"")], [("/entry", "telo.yaml")])

    @pytest.mark.parametrize(
        "paths",
        [
            ["a", "a"],
            ["a", "./a"],
            ["/a", "a"],
            ["a/b", "a//b"],
            ["a", "a/b"],
            ["a/b/c", "a/b"],
            ["a/b/c/d", "a"],
        ],
    )
    def test_two_things_cannot_have_one_path(self, paths: list[str]) -> None:
        with pytest.raises(InvalidBundle, match=r"^/bundle/files/[01]/relativePath: "):
            check(files(*paths), [])

    def test_paths_are_compared_as_bytes(self) -> None:
        composed, decomposed = "\u00e9", "e\u0301"
        bundle = check(files("A", "a", composed, decomposed, "ab/c", "a-b"), [])
        assert list(bundle.files) == ["A", "a", composed, decomposed, "ab/c", "a-b"]

    @pytest.mark.parametrize("entry", ["x.yaml", "dir", "Telo.yaml", "", "../telo.yaml", "dir/"])
    def test_the_entry_must_be_a_file_of_the_bundle(self, entry: str) -> None:
        with pytest.raises(InvalidBundle, match=r"^/entry: "):
            check(files("telo.yaml", "dir/a.yaml"), [("/entry", entry)])

    def test_more_folders_than_anybody_has_are_refused(self) -> None:
        # 10 MB of such paths would name five million folders, ten gigabytes of names alone.
        with pytest.raises(InvalidBundle, match="10,000 folders"):
            check([File(f"{n}/" + "a/" * 2040 + "a", b"") for n in range(100)], [])
        assert check([File(f"{n}/a", b"") for n in range(10_000)], [])

    def test_entries_are_normalised_as_files_are(self) -> None:
        entries = [("/a", "/telo.yaml"), ("/b", "./dir//a.yaml")]
        bundle = check(files("./telo.yaml", "dir/a.yaml"), entries)
        assert bundle == Bundle(bundle.files, ("telo.yaml", "dir/a.yaml"))


def unpack_with(tool: list[str], archive: bytes, folder: Path) -> dict[str, bytes]:
    """Unpack as the pod does: by its tar, out of a file, without owners or times."""
    path = folder / "bundle.tgz"
    path.write_bytes(archive)
    target = folder / "app"
    target.mkdir()
    subprocess.run(
        [*tool, "-xzf", str(path), "-C", str(target)], check=True, capture_output=True, timeout=60
    )
    return {
        str(file.relative_to(target)): file.read_bytes()
        for file in target.rglob("*")
        if file.is_file()
    }


TARS = [
    pytest.param(
        command, marks=pytest.mark.skipif(shutil.which(command[0]) is None, reason="not here")
    )
    for command in (["tar"], ["busybox", "tar"])
]
CONTENTS = {
    "empty": b"",
    "crlf.txt": b"a\r\nb\r\n",
    "bom.txt": b"\xef\xbb\xbfx",
    "binary": bytes(range(256)) * 5,
    "block": b"x" * 512,
    **{name: name.encode() for name in ODD_NAMES},
    "d/" + "a" * 99: b"101 bytes",
    "a" * 150: b"150",
    "b" * 149 + "/" + "b" * 150: b"300",
    "é" * 60: b"120 bytes",
    "c" * 100 + "1.yaml": b"one",
    "c" * 100 + "2.yaml": b"two",
    "/".join(["deep" * 50] * 19): b"deep",
}


class TestArchive:
    @pytest.mark.parametrize("tool", TARS)
    def test_every_tar_unpacks_the_same_files(self, tool: list[str], tmp_path: Path) -> None:
        assert unpack_with(tool, pack(CONTENTS), tmp_path) == CONTENTS

    def test_ten_thousand_files_are_packed_in_a_second(self) -> None:
        many = {f"d{n % 100}/f{n}.yaml": b"x: %d\n" % n for n in range(10_000)}
        began = time.process_time()
        bundle = check([File(path, data) for path, data in many.items()], [])
        archive = pack(bundle.files)
        assert time.process_time() - began < 1.5
        with tarfile.open(fileobj=io.BytesIO(gzip.decompress(archive))) as unpacked:
            assert sum(member.isfile() for member in unpacked) == len(many)

    def test_the_same_files_give_the_same_bytes(self) -> None:
        backwards = dict(reversed(CONTENTS.items()))
        one, other = pack(CONTENTS), pack(backwards)
        assert hashlib.sha256(one).digest() == hashlib.sha256(other).digest()
        # The header holds neither a time nor a file's name.
        assert one[3:8] == bytes(5)

    def test_members_have_fixed_owners_times_and_modes(self) -> None:
        with tarfile.open(fileobj=io.BytesIO(gzip.decompress(pack({"a/b/c": b"x"})))) as archive:
            members = archive.getmembers()
        assert [member.name for member in members] == ["a", "a/b", "a/b/c"]
        assert [member.isdir() for member in members] == [True, True, False]
        assert [member.mode for member in members] == [0o755, 0o755, 0o644]
        assert {(member.mtime, member.uid, member.gid) for member in members} == {(0, 1000, 1000)}
        assert {member.uname + member.gname for member in members} == {""}

    def test_the_limit_of_an_inline_bundle_is_exact(self) -> None:
        fitting, larger = bytes(INLINE_MAX_BYTES), bytes(INLINE_MAX_BYTES + 1)
        assert choose_delivery(fitting, "inline") is Delivery.INLINE
        with pytest.raises(BundleTooLarge, match="716,800"):
            choose_delivery(larger, "inline")
        assert choose_delivery(fitting, "auto") is Delivery.INLINE
        assert choose_delivery(larger, "auto") is Delivery.FETCH
        assert choose_delivery(b"", "fetch") is Delivery.FETCH


def test_tokens_are_24_random_bytes_in_hex_and_need_no_quoting() -> None:
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert {len(bytes.fromhex(token)) for token in tokens} == {24}
    token = tokens.pop()
    assert fetch_url("http://x:1", "abcdefghijkl", token) == (
        f"http://x:1/internal/bundles/abcdefghijkl?token={token}"
    )
