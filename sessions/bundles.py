"""Bundles: the rules of their paths, the archive, and how it travels to the pod; pure.

The archive is deterministic: the same files give the same bytes, whatever order they came in.
"""

import gzip
import io
import secrets
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sessions.states import Delivery
from telorunner.errors import BundleTooLarge, InvalidBundle

# NAME_MAX and PATH_MAX of Linux: an archive with more in it cannot be unpacked.
MAX_SEGMENT_BYTES = 255
MAX_PATH_BYTES = 4096
# 10 MB of deep paths name millions of folders, gigabytes of archive.
MAX_FOLDERS = 10_000
# A ConfigMap holds 1 MiB of data, which is base64 on its way; this leaves room for the rest.
INLINE_MAX_BYTES = 700 * 1024
# The user that session containers run as.
OWNER_ID = 1000
# Beyond level 6 a text gets under 1 % smaller for twice the time.
GZIP_LEVEL = 6
TOKEN_BYTES = 24


@dataclass(frozen=True)
class File:
    """A file as it was sent; `path` is not normalised yet."""

    path: str
    contents: bytes = field(repr=False)


@dataclass(frozen=True)
class Bundle:
    """Checked files by their normalised paths, and the normalised paths of the entries asked for.

    `entries` has the order of the paths that were given.
    """

    files: Mapping[str, bytes] = field(repr=False)
    entries: tuple[str, ...]


def normalise(path: str, *, pointer: str) -> str:
    """Return the path relative to the bundle's root, without `.` and empty segments.

    `pointer` names the value in the request, for the message.

    Raises:
        InvalidBundle: The path is empty, leaves the bundle, or cannot be a path at all.
    """
    for character, name in (("\0", "a NUL"), ("\\", "a backslash")):
        if character in path:
            raise InvalidBundle(f"{pointer}: a path cannot hold {name}.")
    if len(path.encode()) > MAX_PATH_BYTES:
        raise InvalidBundle(f"{pointer}: a path is at most {MAX_PATH_BYTES:,} bytes long.")
    segments = [segment for segment in path.split("/") if segment not in {"", "."}]
    if not segments:
        raise InvalidBundle(f"{pointer}: the path names no file.")
    if ".." in segments:
        raise InvalidBundle(f"{pointer}: a path cannot leave the bundle by '..'.")
    if any(len(segment.encode()) > MAX_SEGMENT_BYTES for segment in segments):
        raise InvalidBundle(
            f"{pointer}: a segment of a path is at most {MAX_SEGMENT_BYTES} bytes long."
        )
    return "/".join(segments)


def check(files: Iterable[File], entries: Sequence[tuple[str, str]]) -> Bundle:
    """Check a bundle's files and entries, each entry given as JSON Pointer and path.

    Paths are compared as bytes: two spellings of one letter are two files.

    Raises:
        InvalidBundle: A path cannot be used, two files share one, a file is a folder too, or an
            entry is not among the files.
    """
    checked: dict[str, bytes] = {}
    for index, file in enumerate(files):
        pointer = f"/bundle/files/{index}/relativePath"
        path = normalise(file.path, pointer=pointer)
        if path in checked:
            raise InvalidBundle(f"{pointer}: another file has this path.")
        checked[path] = file.contents
    folders = _folders(checked)
    if len(folders) > MAX_FOLDERS:
        raise InvalidBundle(f"The bundle has more than {MAX_FOLDERS:,} folders.")
    for folder in folders:
        if folder in checked:
            index = list(checked).index(folder)
            raise InvalidBundle(f"/bundle/files/{index}/relativePath: this file is also a folder.")
    found = []
    for pointer, entry in entries:
        path = normalise(entry, pointer=pointer)
        if path not in checked:
            raise InvalidBundle(f"{pointer}: the entry is not among the bundle's files.")
        found.append(path)
    return Bundle(checked, tuple(found))


def _folders(paths: Iterable[str]) -> list[str]:
    """Return every folder above the paths, each before what is in it; too many are cut off."""
    folders: set[str] = set()
    for path in paths:
        end = path.rfind("/")
        # What is above a known folder is known too.
        while end > 0 and path[:end] not in folders and len(folders) <= MAX_FOLDERS:
            folders.add(path[:end])
            end = path.rfind("/", 0, end)
    return sorted(folders)


def pack(files: Mapping[str, bytes]) -> bytes:
    """Return the files, under normalised paths, as a deterministic tar.gz.

    It has no `./` member, whose times tar could not set in a volume's root. GNU long names are
    what both GNU's and busybox's tar unpack at any length.
    """
    raw = io.BytesIO()
    with tarfile.open(
        fileobj=raw, mode="w", format=tarfile.GNU_FORMAT, encoding="utf-8", errors="strict"
    ) as archive:
        for folder in _folders(files):
            archive.addfile(_member(folder, 0, is_folder=True))
        for path, contents in sorted(files.items()):
            archive.addfile(_member(path, len(contents)), io.BytesIO(contents))
    return gzip.compress(raw.getvalue(), GZIP_LEVEL, mtime=0)


def _member(path: str, size: int, *, is_folder: bool = False) -> tarfile.TarInfo:
    member = tarfile.TarInfo(path)
    member.size = size
    member.mode = 0o755 if is_folder else 0o644
    member.type = tarfile.DIRTYPE if is_folder else tarfile.REGTYPE
    member.uid = member.gid = OWNER_ID
    return member


def choose_delivery(archive: bytes, allowed: str) -> Delivery:
    """Return how an archive travels; `allowed` is auto, inline or fetch.

    Under auto what fits into a ConfigMap goes in one: an init container costs a whole second.

    Raises:
        BundleTooLarge: It must go inline, and is larger than INLINE_MAX_BYTES.
    """
    if allowed == Delivery.FETCH:
        return Delivery.FETCH
    if len(archive) <= INLINE_MAX_BYTES:
        return Delivery.INLINE
    if allowed == Delivery.INLINE:
        raise BundleTooLarge(
            f"The bundle is {len(archive):,} bytes packed; this runner takes at most "
            f"{INLINE_MAX_BYTES:,} bytes of tar.gz."
        )
    return Delivery.FETCH


def new_token() -> str:
    """Return a token for one fetch of an archive."""
    return secrets.token_hex(TOKEN_BYTES)


def fetch_url(self_url: str, session_id: str, token: str) -> str:
    """Return where a pod fetches its archive; `self_url` is how pods reach the runner."""
    return f"{self_url}/internal/bundles/{session_id}?token={token}"
