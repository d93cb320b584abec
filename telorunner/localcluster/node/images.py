"""Which command stands for a container image on this machine.

Nothing is ever pulled: an image is known or it cannot be pulled. The names are those of the
configuration page (`telorun/node`, `busybox`, the runner's default image, the operator's own).
"""

import hashlib
import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from telorunner.values.image import ImageReference, parse_image

KERNEL_REPOSITORY = "telorun/node"
SHELL_REPOSITORY = "busybox"
# The directories that container images put on PATH; the machine's own PATH stays out of it.
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Stands in for wget where the machine has none.
WGET = Path(__file__).with_name("wget.py")
STANDIN = Path(__file__).resolve().parents[3] / "standin" / "telo"


class ImageTrouble(Exception):
    """A container cannot start for its image: the waiting reason and the kubelet's message."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


@dataclass(frozen=True)
class Image:
    """An image of this machine, with what it runs where a container does not say it.

    A container's `command` takes the place of both `entrypoint` and `cmd`, its `args` of `cmd`.
    `is_of_root` tells that its user is root where a container names none.
    """

    reference: str
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    is_of_root: bool = False

    @property
    def image_id(self) -> str:
        """An identifier that is the same for every container of the image."""
        return f"sha256:{hashlib.sha256(self.reference.encode()).hexdigest()}"


def find_kernel() -> tuple[str, ...]:
    """Return the command that runs Telo: `telo` on PATH, else the stand-in; () without either."""
    installed = shutil.which("telo")
    if installed is not None:
        return (str(Path(installed).absolute()),)
    return (sys.executable, str(STANDIN)) if STANDIN.is_file() else ()


@dataclass(frozen=True)
class Images:
    """The images that this machine can run.

    `kernel_image` is the runner's default session image: it stands for the kernel beside every
    tag of `telorun/node`. `extra` maps further references to their entrypoint.
    `kernel_command` runs Telo.
    """

    kernel_image: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    kernel_command: tuple[str, ...] = field(default_factory=find_kernel)

    def find(self, reference: str, pull_policy: str = "") -> Image:
        """Return what stands for an image reference.

        Raises:
            ImageTrouble: It is no reference, or there is no such image here.
        """
        try:
            parsed = parse_image(reference)
        except ValueError as exc:
            message = (
                f'Failed to apply default image tag "{reference}": couldn\'t parse image name'
                f' "{reference}": invalid reference format{_detail(reference)}'
            )
            raise ImageTrouble("InvalidImageName", message) from exc
        image = self._known(reference, parsed)
        if image is not None:
            return image
        if pull_policy == "Never":
            message = f'Container image "{reference}" is not present with pull policy of Never'
            raise ImageTrouble("ErrImageNeverPull", message)
        raise ImageTrouble("ErrImagePull", _pull_failure(parsed))

    def _known(self, reference: str, parsed: ImageReference) -> Image | None:
        for known, command in self.extra.items():
            if known == reference or _is_same(known, parsed):
                return Image(reference, entrypoint=tuple(command))
        is_kernel = parsed.name == KERNEL_REPOSITORY or _is_same(self.kernel_image, parsed)
        if is_kernel and self.kernel_command:
            return Image(reference, entrypoint=("telo",))
        if parsed.name == SHELL_REPOSITORY:
            return Image(reference, cmd=("sh",), is_of_root=True)
        return None


def _detail(reference: str) -> str:
    """Return what the runtime adds to an invalid reference format.

    Source: github.com/distribution/reference, ParseNormalizedNamed
    """
    domain, slash, rest = reference.partition("/")
    has_domain = slash and (any(mark in domain for mark in ".:") or domain != domain.lower())
    remote = rest if has_domain or domain == "localhost" else reference
    if not has_domain and "/" not in reference:
        remote = f"library/{reference}"
    repository = remote.partition(":")[0]
    return (
        f": repository name ({repository}) must be lowercase"
        if repository != repository.lower()
        else ""
    )


def _is_same(known: str, parsed: ImageReference) -> bool:
    try:
        return bool(known) and parse_image(known) == parsed
    except ValueError:
        return False


def _pull_failure(parsed: ImageReference) -> str:
    full = f"{parsed.registry}/{parsed.repository}"
    full += f"@{parsed.digest}" if parsed.digest else f":{parsed.tag}"
    return (
        f'failed to pull and unpack image "{full}": failed to resolve reference "{full}":'
        f" {full}: not found (the local cluster pulls nothing)"
    )


def make_tools(
    folder: Path, kernel_command: tuple[str, ...], system_path: str = SYSTEM_PATH
) -> str:
    """Write what every container has first on its PATH, and return that PATH.

    They are scripts, because what they stand for may need an interpreter of its own, which must not
    be on the container's PATH: `telo`, and `wget` where the machine has none.
    """
    folder.mkdir(parents=True, exist_ok=True)
    search = [str(folder), system_path]
    if kernel_command:
        _write_script(folder / "telo", kernel_command)
    if shutil.which("wget", path=system_path) is None:
        _write_script(folder / "wget", (sys.executable, "-I", "-S", str(WGET)))
    if len(kernel_command) == 1:
        # An installed kernel may have its own interpreter beside it, outside the usual places.
        search.append(str(Path(kernel_command[0]).parent))
    return ":".join(search)


def _write_script(path: Path, command: tuple[str, ...]) -> None:
    path.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
    path.chmod(0o755)
