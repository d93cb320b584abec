"""Reads the paths of the REST API: which kind, namespace, object and subresource. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from telorunner.localcluster import statuses
from telorunner.localcluster.resources import ResourceKind
from telorunner.localcluster.statuses import StoreError


@dataclass(frozen=True)
class Target:
    """What a path names; `namespace` is None for all namespaces, `name` "" for a collection."""

    kind: ResourceKind
    namespace: str | None
    name: str = ""
    subresource: str = ""

    @property
    def scope(self) -> str:
        """Return the namespace as the store keeps it."""
        return self.namespace or ""


class Paths:
    """The paths of the kinds that one API server offers."""

    def __init__(self, kinds: Iterable[ResourceKind]) -> None:
        self._kinds = {(kind.group, kind.version, kind.plural): kind for kind in kinds}
        self._groups = {group for group, _, _ in self._kinds}
        self._versions = {(group, version) for group, version, _ in self._kinds}

    def target(self, path: str) -> Target | None:
        """Return what a path names, None where it is outside of every served API group.

        Raises:
            StoreError: 404, the group is served but not that path.
        """
        parts = path.strip("/").split("/")
        if parts[0] == "api" and len(parts) > 2:
            group, version, rest = "", parts[1], parts[2:]
        elif parts[0] == "apis" and len(parts) > 3:
            group, version, rest = parts[1], parts[2], parts[3:]
        else:
            return None
        if (group, version) not in self._versions:
            if group in self._groups:
                raise statuses.unknown_path()
            return None
        return self._in_group(group, version, rest)

    def _in_group(self, group: str, version: str, rest: list[str]) -> Target:
        # A third part that names a namespaced kind is a collection; `status` or `finalize` is a
        # subresource of the namespace itself.
        if rest[0] == "namespaces" and len(rest) > 2:
            kind = self._kinds.get((group, version, rest[2]))
            if kind is not None and kind.namespaced:
                return _target(kind, rest[1], rest[3:])
        kind = self._kinds.get((group, version, rest[0]))
        if kind is None or (kind.namespaced and len(rest) > 1):
            raise statuses.unknown_path()
        return _target(kind, None, rest[1:])


def _target(kind: ResourceKind, namespace: str | None, rest: list[str]) -> Target:
    name, subresource = (*rest, "", "")[:2]
    if len(rest) > 2 or (subresource and subresource not in kind.subresources):
        raise statuses.unknown_path()
    return Target(kind, namespace, name, subresource)


def method_not_allowed() -> StoreError:
    """Return 405 for a path that is there but not for this method."""
    message = "the server does not allow this method on the requested resource"
    return StoreError(405, "MethodNotAllowed", message, {})
