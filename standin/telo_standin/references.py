"""Check what an application refers to: steps, mounts and routes, before anything runs."""

from collections.abc import Mapping
from typing import Any

from telo_standin.errors import ManifestError
from telo_standin.expressions import Ref
from telo_standin.kinds import BOOTABLE, INVOCABLE, MODULES, STEP_FIELDS
from telo_standin.manifest import Manifest, mapping, refuse_unknown, sequence
from telo_standin.schema import refuse_unknown_keywords

METHODS = frozenset({"GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"})
ROUTE_FIELDS = frozenset({"request", "handler", "inputs", "returns", "catches"})
MEDIA_TYPE = "application/json"


def check(manifest: Manifest) -> None:
    """Refuse what refers to nothing.

    Raises:
        ManifestError: it names what is wrong.
    """
    for target in manifest.targets:
        if isinstance(target, Ref):
            _resource_of(manifest, target, BOOTABLE)
        else:
            _check_step(manifest, target)
    for resource in manifest.resources.values():
        for step in sequence(resource.fields, "steps"):
            _check_step(manifest, step)
        for mount in sequence(resource.fields, "mounts"):
            _check_mount(manifest, mount)
        for route in sequence(resource.fields, "routes"):
            _check_route(manifest, route)


def exported_member(manifest: Manifest, ref: Ref) -> str | None:
    """Return the exported member that ``Alias.member`` names, such as writeLine; None: none."""
    alias, dot, member = ref.target.partition(".")
    if not dot:
        return None
    if alias not in manifest.imports:
        raise ManifestError(f"!ref {ref.target} names '{alias}', which is not imported")
    if member not in MODULES[manifest.imports[alias]].members:
        raise ManifestError(f"the stand-in kernel does not know {ref.target}")
    return member


def _resource_of(manifest: Manifest, ref: Any, allowed: frozenset[tuple[str, str]]) -> None:
    if not isinstance(ref, Ref):
        raise ManifestError("expected a !ref")
    resource = manifest.resources.get(ref.target)
    if resource is None:
        raise ManifestError(f"!ref {ref.target} names no resource")
    if (resource.module, resource.type_name) not in allowed:
        raise ManifestError(f"{resource.kind} '{resource.name}' cannot be used here")


def _check_invocable(manifest: Manifest, ref: Any) -> None:
    if not isinstance(ref, Ref):
        raise ManifestError("'invoke' and 'handler' take a !ref")
    if exported_member(manifest, ref) is None:
        _resource_of(manifest, ref, INVOCABLE)


def _check_step(manifest: Manifest, step: Any) -> None:
    if not isinstance(step, dict) or "invoke" not in step:
        raise ManifestError("a step has no 'invoke'")
    refuse_unknown(step, STEP_FIELDS, "a step")
    _check_invocable(manifest, step["invoke"])
    mapping(step, "inputs")


def _check_mount(manifest: Manifest, mount: Any) -> None:
    if not isinstance(mount, dict) or not str(mount.get("path", "")).startswith("/"):
        raise ManifestError("a mount has no path that begins with /")
    refuse_unknown(mount, {"path", "mount"}, "a mount")
    _resource_of(manifest, mount.get("mount"), frozenset({("http-server", "Api")}))


def _check_route(manifest: Manifest, route: Any) -> None:
    if not isinstance(route, dict):
        raise ManifestError("a route is not a map")
    refuse_unknown(route, ROUTE_FIELDS, "a route")
    request = mapping(route, "request")
    refuse_unknown(request, {"path", "method", "schema"}, "a route's request")
    path = request.get("path")
    if not isinstance(path, str) or not path.startswith("/"):
        raise ManifestError("a route has no path that begins with /")
    if "{" in path:
        raise ManifestError(f"the stand-in kernel does not know parameters in a path: {path}")
    if request.get("method") not in METHODS:
        raise ManifestError(f"the route {path} has no known method")
    for part, schema in mapping(request, "schema").items():
        refuse_unknown({part: schema}, {"query", "body"}, "a request schema")
        refuse_unknown_keywords(schema)
    if "handler" in route:
        _check_invocable(manifest, route["handler"])
    mapping(route, "inputs")
    if not sequence(route, "returns"):
        raise ManifestError(f"the route {path} returns nothing")
    for answer in [*sequence(route, "returns"), *sequence(route, "catches")]:
        _check_answer(path, answer)


def _check_answer(path: str, answer: Any) -> None:
    if not isinstance(answer, Mapping) or type(answer.get("status")) is not int:
        raise ManifestError(f"an answer of the route {path} has no status")
    refuse_unknown(answer, {"status", "content"}, "an answer")
    content = mapping(dict(answer), "content")
    refuse_unknown(content, {MEDIA_TYPE}, "an answer's content")
    refuse_unknown(mapping(content, MEDIA_TYPE), {"body", "schema"}, MEDIA_TYPE)
