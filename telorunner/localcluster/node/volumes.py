"""A pod's volumes as folders, and how a container reaches them.

Nothing is mounted. A mount would need root or user namespaces, and a second way to do the same
would be a second set of faults; so every argument, value of the environment or working directory
that is a mount path, or lies below one, is mapped to the volume's folder. A mount path inside a
longer text (a shell's text, `--root=/app`) is not: what runs here hands such paths over whole.
For the same reason `readOnly` is not enforced.
"""

import base64
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from telorunner.localcluster.node.environment import Lookup

DEFAULT_MODE = 0o644


class VolumeTrouble(Exception):
    """A volume cannot be made yet: the message of the FailedMount event."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


@dataclass(frozen=True)
class Mounts:
    """The mount paths of one container and the folders behind them, longest path first."""

    pairs: tuple[tuple[str, str], ...] = ()

    def map(self, text: str) -> str:
        """Return the folder behind a mount path, or a path below it; other texts unchanged."""
        for mount_path, folder in self.pairs:
            if text == mount_path or text.startswith(f"{mount_path}/"):
                return folder + text[len(mount_path) :]
        return text

    def adding(self, mount_path: str, target: Path) -> "Mounts":
        """Return these and one more."""
        return _longest_first([*self.pairs, (mount_path, str(target))])


def _longest_first(pairs: list[tuple[str, str]]) -> Mounts:
    return Mounts(tuple(sorted(pairs, key=lambda pair: len(pair[0]), reverse=True)))


def container_mounts(container: Mapping[str, Any], volumes_dir: Path) -> Mounts:
    """Return where a container finds its volumes; folders of a `subPath` are made.

    Raises:
        VolumeTrouble: A `subPath` leaves its volume.
    """
    pairs: list[tuple[str, str]] = []
    for mount in container.get("volumeMounts", []):
        folder = volumes_dir / mount["name"]
        if mount.get("subPath"):
            folder /= _inner_path(mount["subPath"], f'subPath "{mount["subPath"]}"')
            if not folder.exists():
                folder.mkdir(parents=True)
        pairs.append((mount["mountPath"].rstrip("/") or "/", str(folder)))
    return _longest_first(pairs)


def make_volumes(pod: Mapping[str, Any], volumes_dir: Path, lookup: Lookup) -> None:
    """Make the folders of all volumes, and fill those that have contents from the start.

    Raises:
        VolumeTrouble: An object that a volume shows is missing, or its kind is not known here.
    """
    for volume in pod["spec"].get("volumes", []):
        folder = volumes_dir / volume["name"]
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o777)
        for name, (mode, contents) in _contents(volume, lookup).items():
            path = folder / _inner_path(name, f'path "{name}"')
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            path.write_bytes(contents)
            path.chmod(mode & 0o777)


def _inner_path(text: str, what: str) -> PurePosixPath:
    path = PurePosixPath(text)
    if path.is_absolute() or ".." in path.parts:
        raise VolumeTrouble(f"{what} must be relative and not contain '..'")
    return path


Contents = dict[str, tuple[int, bytes]]


def _contents(volume: Mapping[str, Any], lookup: Lookup) -> Contents:
    if "emptyDir" in volume:
        return {}
    setup = f'MountVolume.SetUp failed for volume "{volume["name"]}" : '
    if "projected" in volume:
        mode = volume["projected"].get("defaultMode", DEFAULT_MODE)
        contents: Contents = {}
        for source in volume["projected"].get("sources", []):
            contents.update(_one_source(source, mode, setup, lookup))
        return contents
    if "configMap" in volume:
        mode = volume["configMap"].get("defaultMode", DEFAULT_MODE)
        return _one_source({"configMap": volume["configMap"]}, mode, setup, lookup)
    if "secret" in volume:
        secret = volume["secret"]
        source = {"secret": {**secret, "name": secret.get("secretName", "")}}
        return _one_source(source, secret.get("defaultMode", DEFAULT_MODE), setup, lookup)
    kinds = ", ".join(key for key in volume if key != "name")
    raise VolumeTrouble(f"{setup}the local cluster has no volumes of the kind {kinds}")


def _one_source(source: Mapping[str, Any], mode: int, setup: str, lookup: Lookup) -> Contents:
    for field, resource, noun in (
        ("configMap", "configmaps", "configmap"),
        ("secret", "secrets", "secret"),
    ):
        if field not in source:
            continue
        reference = source[field]
        found = lookup(resource, reference["name"])
        if found is None:
            if reference.get("optional"):
                return {}
            raise VolumeTrouble(f'{setup}{noun} "{reference["name"]}" not found')
        return _pick(_read(found), reference, mode, f"{setup}{noun}")
    # Service account tokens and downward API files: no container here has a use for them.
    return {}


def _read(obj: Mapping[str, Any]) -> dict[str, bytes]:
    data = obj.get("data") or {}
    if obj.get("kind") == "Secret":
        return {key: base64.b64decode(value) for key, value in data.items()}
    values = {key: str(value).encode("utf-8", "surrogateescape") for key, value in data.items()}
    for key, value in (obj.get("binaryData") or {}).items():
        values[key] = base64.b64decode(value)
    return values


def _pick(
    values: Mapping[str, bytes], reference: Mapping[str, Any], mode: int, what: str
) -> Contents:
    items = reference.get("items")
    if not items:
        return {key: (mode, value) for key, value in values.items()}
    picked: Contents = {}
    for item in items:
        if item["key"] in values:
            picked[item["path"]] = (item.get("mode", mode), values[item["key"]])
        elif not reference.get("optional"):
            raise VolumeTrouble(f"{what} references non-existent config key: {item['key']}")
    return picked


def used_bytes(folder: Path) -> int:
    """Return the space that a folder's files take, without following links out of it."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_blocks * 512
            except OSError:
                continue  # Deleted between the listing and the look.
    return total


def remove_tree(folder: Path) -> None:
    """Delete a folder with all that an application left in it, also what it made unwritable."""
    shutil.rmtree(folder, ignore_errors=True)
    if not folder.exists():
        return
    for parent, names, _ in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            if not os.path.islink(path):
                with suppress(OSError):
                    os.chmod(path, 0o700)
    shutil.rmtree(folder, ignore_errors=True)
