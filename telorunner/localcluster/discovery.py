"""The documents by which clients find out what this API server offers. Pure; built once.

The OpenAPI document says only what kubectl looks for in it: that writes take `fieldValidation`
and `dryRun`, so that it leaves the checking of manifests to the server.
"""

from collections.abc import Iterable
from typing import Any

from telorunner.localcluster.resources import ALL_VERBS, ResourceKind
from telorunner.localcluster.scheduling import SERVER_VERSION

_SUBRESOURCES: dict[str, tuple[str, tuple[str, ...]]] = {
    "attach": ("PodAttachOptions", ("create", "get")),
    "binding": ("Binding", ("create",)),
    "finalize": ("Namespace", ("update",)),
    "log": ("Pod", ("get",)),
}
_QUERY_PARAMETERS = [
    {"name": name, "in": "query", "schema": {"type": "string"}}
    for name in ("dryRun", "fieldManager", "fieldValidation")
]


def build_documents(kinds: Iterable[ResourceKind], address: str) -> dict[str, dict[str, Any]]:
    """Return every discovery document by its path; `address` is host:port of the server."""
    served = tuple(kinds)
    versions = sorted({(kind.group, kind.version) for kind in served})
    by_group: dict[str, list[str]] = {}
    for group, version in versions:
        by_group.setdefault(group, []).append(version)
    groups = [_group(group, found) for group, found in by_group.items() if group]
    documents: dict[str, dict[str, Any]] = {
        "/version": _version(),
        "/api": {
            "kind": "APIVersions",
            "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
        },
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups},
    }
    openapi = {}
    for group, version in versions:
        path = f"apis/{group}/{version}" if group else f"api/{version}"
        members = [kind for kind in served if (kind.group, kind.version) == (group, version)]
        documents[f"/{path}"] = _resource_list(members)
        documents[f"/openapi/v3/{path}"] = _openapi(path, members)
        openapi[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={SERVER_VERSION}"}
    for found in groups:
        documents[f"/apis/{found['name']}"] = {"kind": "APIGroup", "apiVersion": "v1", **found}
    documents["/openapi/v3"] = {"paths": openapi}
    return documents


def _version() -> dict[str, Any]:
    major, minor, _ = SERVER_VERSION.removeprefix("v").split(".")
    return {
        "major": major,
        "minor": minor,
        "emulationMajor": major,
        "emulationMinor": minor,
        "minCompatibilityMajor": major,
        "minCompatibilityMinor": str(int(minor) - 1),
        "gitVersion": SERVER_VERSION,
        "gitCommit": "telorunner-local",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "linux/amd64",
    }


def _group(group: str, versions: list[str]) -> dict[str, Any]:
    """Return what is told of a group; the first version is the preferred one."""
    named = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": named, "preferredVersion": named[0]}


def _resource_list(kinds: list[ResourceKind]) -> dict[str, Any]:
    resources = []
    for kind in kinds:
        resource: dict[str, Any] = {
            "name": kind.plural,
            "singularName": kind.singular,
            "namespaced": kind.namespaced,
            "kind": kind.kind,
            "verbs": [
                verb
                for verb in kind.verbs
                if (kind.plural, verb) != ("namespaces", "deletecollection")
            ],
        }
        if kind.short_names:
            resource["shortNames"] = list(kind.short_names)
        if kind.categories:
            resource["categories"] = list(kind.categories)
        resources.append(resource)
        for subresource in kind.subresources:
            name, verbs = _SUBRESOURCES.get(subresource, (kind.kind, ("get", "patch", "update")))
            resources.append(
                {
                    "name": f"{kind.plural}/{subresource}",
                    "singularName": "",
                    "namespaced": kind.namespaced,
                    "kind": name,
                    "verbs": list(verbs),
                }
            )
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": kinds[0].api_version,
        "resources": resources,
    }


def _openapi(path: str, kinds: list[ResourceKind]) -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for kind in kinds:
        if set(kind.verbs) != set(ALL_VERBS):
            continue
        scope = "/namespaces/{namespace}" if kind.namespaced else ""
        write = {
            "parameters": _QUERY_PARAMETERS,
            "responses": {"200": {"description": "OK"}},
            "x-kubernetes-group-version-kind": {
                "group": kind.group,
                "version": kind.version,
                "kind": kind.kind,
            },
        }
        paths[f"/{path}{scope}/{kind.plural}/{{name}}"] = {"patch": write, "put": write}
    return {
        "openapi": "3.0.0",
        "info": {"title": "telorunner local cluster", "version": SERVER_VERSION},
        "paths": paths,
    }
