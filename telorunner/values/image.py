"""Image references: parsing into registry, repository, tag and digest; pure.

Source: https://github.com/distribution/reference (grammar), Docker's familiar names.
"""

import re
from dataclasses import dataclass

DEFAULT_REGISTRY = "docker.io"
MAX_REFERENCE_LENGTH = 512
MAX_TAG_LENGTH = 128
# Of the repository with its namespaces, without the registry.
MAX_PATH_LENGTH = 255

_HOST = r"(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?)"
_REGISTRY = re.compile(rf"(?:{_HOST}(?:\.{_HOST})*|\[[0-9a-fA-F:]+\])(?::[0-9]{{1,5}})?", re.ASCII)
_SEGMENT = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*", re.ASCII)
_TAG = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9_.-]{{0,{MAX_TAG_LENGTH - 1}}}", re.ASCII)
# Those that container runtimes take; with another, or digits amiss, a pod never starts.
# Source: https://github.com/opencontainers/go-digest (algorithm.go)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha384:[0-9a-f]{96}|sha512:[0-9a-f]{128}", re.ASCII)
# The id of an image that a node has, which is no name.
_ID = re.compile(r"[0-9a-f]{64}", re.ASCII)


@dataclass(frozen=True)
class ImageReference:
    """A parsed image reference; equal references name the same image.

    `tag` is "latest" where neither a tag nor a digest is given, and "" beside a lone digest.
    """

    registry: str
    repository: str
    tag: str
    digest: str

    @property
    def name(self) -> str:
        """The name without tag and digest; the registry stands in it only if not the default."""
        if self.registry != DEFAULT_REGISTRY:
            return f"{self.registry}/{self.repository}"
        return self.repository.removeprefix("library/")


def is_tag(text: str) -> bool:
    """Tell whether a text has the form of a tag."""
    return _TAG.fullmatch(text) is not None


def parse_image(text: str) -> ImageReference:
    """Parse an image reference.

    Raises:
        ValueError: The text is no image reference.
    """
    if len(text) > MAX_REFERENCE_LENGTH:
        raise ValueError(f"an image reference has at most {MAX_REFERENCE_LENGTH} characters")
    rest, _, digest = text.partition("@")
    if "@" in text and _DIGEST.fullmatch(digest) is None:
        raise ValueError("not an image reference: its digest is malformed")
    head, slash, tail = rest.partition("/")
    if slash and ("." in head or ":" in head or head == "localhost" or head != head.lower()):
        registry, path = head, tail
    else:
        registry, path = DEFAULT_REGISTRY, rest
    path, colon, tag = path.partition(":")
    if colon and not is_tag(tag):
        raise ValueError("not an image reference: its tag is malformed")
    if _REGISTRY.fullmatch(registry) is None:
        raise ValueError("not an image reference: its registry is malformed")
    if _ID.fullmatch(text) or not all(_SEGMENT.fullmatch(part) for part in path.split("/")):
        raise ValueError("not an image reference such as registry.example/team/app:1.2")
    if len(path) > MAX_PATH_LENGTH:
        raise ValueError(f"not an image reference: its name has over {MAX_PATH_LENGTH} characters")
    if registry in {DEFAULT_REGISTRY, "index.docker.io"}:
        registry = DEFAULT_REGISTRY
        path = path if "/" in path else f"library/{path}"
    return ImageReference(registry, path, tag or ("" if digest else "latest"), digest)


def parsed_or_none(text: str) -> ImageReference | None:
    """Parse an image reference; None: the text is none."""
    try:
        return parse_image(text)
    except ValueError:
        return None
