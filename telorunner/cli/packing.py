"""Turn a folder or a file into a bundle: which files, which entry, in which encoding.

What a path may look like is the runner's to judge; nothing is read twice and nothing is sent here.
"""

import base64
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pathspec

from telorunner.cli.failures import ClientFailure

DEFAULT_ENTRY = "telo.yaml"
IGNORE_FILE = ".teloignore"
# Never part of an application: what is installed, versioned or cached beside it.
LEFT_OUT_FOLDERS = frozenset({"node_modules", ".git", ".telo"})
# No runner can be set to take more; a home directory is not read into memory to be told so.
MAX_BYTES = 2**30
_YAML_SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True)
class Bundle:
    """An application's files in the contract's shape, and how many bytes they hold."""

    entry: str
    files: tuple[dict[str, str], ...]
    size_bytes: int
    skipped: tuple[str, ...] = ()

    def body(self) -> dict[str, Any]:
        """Return the ``bundle`` of a create request."""
        return {"entryRelativePath": self.entry, "files": list(self.files)}


def pack(target: Path) -> Bundle:
    """Return the bundle of a folder, or of one file that is its own entry.

    Raises:
        ClientFailure: there is nothing to run, or it cannot be read.
    """
    try:
        if target.is_dir():
            return _pack_folder(target)
        data = _read(target, MAX_BYTES)
    except OSError as exc:
        raise ClientFailure(f"cannot read {exc.filename or target}: {exc.strerror}") from exc
    return Bundle(target.name, (_file(target.name, data),), len(data))


def _pack_folder(folder: Path) -> Bundle:
    files: list[dict[str, str]] = []
    skipped: list[str] = []
    size_bytes = 0
    for path in _walk(folder, _ignored(folder), skipped):
        data = _read(folder / path, MAX_BYTES - size_bytes)
        size_bytes += len(data)
        files.append(_file(path, data))
    entry = _entry(folder, [file["relativePath"] for file in files])
    return Bundle(entry, tuple(files), size_bytes, tuple(skipped))


def _read(path: Path, limit_bytes: int) -> bytes:
    if path.stat().st_size > limit_bytes:
        raise ClientFailure(
            f"more than {MAX_BYTES:,} bytes: no runner takes as much; {IGNORE_FILE} can leave out "
            f"files, such as {path}"
        )
    return path.read_bytes()


def _ignored(folder: Path) -> pathspec.GitIgnoreSpec:
    try:
        lines = (folder / IGNORE_FILE).read_text().splitlines()
        return pathspec.GitIgnoreSpec.from_lines(lines)
    except FileNotFoundError:
        return pathspec.GitIgnoreSpec.from_lines([])
    except ValueError as exc:
        raise ClientFailure(f"{IGNORE_FILE} cannot be used: {exc}") from exc


def _walk(folder: Path, ignored: pathspec.GitIgnoreSpec, skipped: list[str]) -> Iterator[str]:
    """Yield relative paths, sorted; what is no file of the folder's own goes to ``skipped``."""
    root = folder.resolve()
    for place, folders, names in os.walk(folder, onerror=_raise):
        prefix = Path(place).relative_to(folder)
        kept = []
        for name in sorted(folders):
            path = (prefix / name).as_posix()
            if name in LEFT_OUT_FOLDERS or ignored.match_file(path + "/"):
                continue
            if (folder / path).is_symlink():
                skipped.append(path)
            else:
                kept.append(name)
        folders[:] = kept
        for name in sorted(names):
            path = (prefix / name).as_posix()
            if ignored.match_file(path):
                continue
            # A link out of the folder would send what the user did not mean to send.
            real = (folder / path).resolve()
            if real.is_file() and real.is_relative_to(root):
                yield path
            else:
                skipped.append(path)


def _raise(error: OSError) -> None:
    raise error


def _file(path: str, data: bytes) -> dict[str, str]:
    try:
        path.encode()
    except UnicodeEncodeError as exc:
        raise ClientFailure(f"the name of {path!r} is not UTF-8") from exc
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    # The contract's text has no NUL.
    if "\0" in text:
        encoded = base64.b64encode(data).decode("ascii")
        return {"relativePath": path, "contents": encoded, "encoding": "base64"}
    return {"relativePath": path, "contents": text}


def _entry(folder: Path, paths: list[str]) -> str:
    if DEFAULT_ENTRY in paths:
        return DEFAULT_ENTRY
    found = [path for path in paths if "/" not in path and path.endswith(_YAML_SUFFIXES)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise ClientFailure(f"{folder} has no {DEFAULT_ENTRY}, nor another YAML file at its top")
    raise ClientFailure(f"{folder} has no {DEFAULT_ENTRY} and several YAML files: {found}")
