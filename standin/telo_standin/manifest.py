"""Load an entry manifest: YAML in, a checked application out.

Everything that ``telo check`` can find is found here, before anything runs. References and routes
are looked at by ``references``.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, cast

import yaml

from telo_standin.errors import ManifestError
from telo_standin.expressions import Ref, read_cel, read_template
from telo_standin.kinds import APPLICATION, APPLICATION_FIELDS, MODULES

_IMPORT = re.compile(r"oci://ghcr\.io/telorun/(?P<module>[a-z-]+)@[^#]+#sha256-[A-Za-z0-9_-]{43}")
VARIABLE_TYPES = ("string", "integer", "number", "boolean")


class Resource(NamedTuple):
    """A resource document: ``kind`` as written, and the module and kind that it stands for."""

    name: str
    kind: str
    module: str
    type_name: str
    fields: Mapping[str, Any]


class Setting(NamedTuple):
    """A port or a variable: read from the environment, else the default."""

    env: str
    type_name: str
    default: Any
    protocol: str = "tcp"


class Manifest(NamedTuple):
    """An application: what it imports, what it reads from outside, what runs at boot."""

    name: str
    imports: Mapping[str, str]
    ports: Mapping[str, Setting]
    variables: Mapping[str, Setting]
    targets: tuple[Any, ...]
    resources: Mapping[str, Resource]


class _Loader(yaml.SafeLoader):
    """A safe loader that knows ``!ref`` and ``!cel``."""


def _scalar(build: Callable[[str], Any]) -> Callable[[Any, yaml.Node], Any]:
    def construct(loader: Any, node: yaml.Node) -> Any:
        if not isinstance(node, yaml.ScalarNode):
            raise ManifestError(f"{node.tag} takes a text")
        return build(str(loader.construct_scalar(node)))

    return construct


_Loader.add_constructor("!ref", _scalar(Ref))
_Loader.add_constructor("!cel", _scalar(read_cel))
_Loader.add_constructor("tag:yaml.org,2002:str", _scalar(read_template))
# Dates are texts here, as in JSON.
_Loader.add_constructor("tag:yaml.org,2002:timestamp", _scalar(read_template))


def load(path: str) -> Manifest:
    """Return the application of an entry file.

    Raises:
        ManifestError: it cannot be read, or says something the stand-in does not know.
    """
    documents = _documents(path)
    if not documents or documents[0].get("kind") != APPLICATION:
        raise ManifestError(f"the first document of {path} is not a {APPLICATION}")
    head = documents[0]
    refuse_unknown(head, {*APPLICATION_FIELDS, "kind", "metadata"}, APPLICATION)
    imports = {alias: _module(alias, target) for alias, target in mapping(head, "imports").items()}
    resources: dict[str, Resource] = {}
    for document in documents[1:]:
        resource = _resource(document, imports)
        if resource.name in resources:
            raise ManifestError(f"two resources are named '{resource.name}'")
        resources[resource.name] = resource
    return Manifest(
        name=_metadata_name(head, APPLICATION),
        imports=imports,
        ports={name: _port(name, value) for name, value in mapping(head, "ports").items()},
        variables={
            name: _variable(name, value) for name, value in mapping(head, "variables").items()
        },
        targets=tuple(sequence(head, "targets")),
        resources=resources,
    )


def _documents(path: str) -> list[dict[str, Any]]:
    try:
        with open(path, "rb") as file:
            text = file.read().decode()
        found = [document for document in yaml.load_all(text, _Loader) if document is not None]
    except OSError as exc:
        raise ManifestError(f"cannot read {path}: {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        raise ManifestError(f"{path} is not UTF-8 text") from exc
    except yaml.YAMLError as exc:
        raise ManifestError(f"{path} is not valid YAML: {exc}") from exc
    for document in found:
        if not isinstance(document, dict):
            raise ManifestError(f"{path}: a document is not a map")
    return cast("list[dict[str, Any]]", found)


def _module(alias: str, target: Any) -> str:
    match = _IMPORT.fullmatch(target) if isinstance(target, str) else None
    if match is None:
        raise ManifestError(f"import '{alias}' is not an OCI reference pinned by digest")
    if match["module"] not in MODULES:
        raise ManifestError(f"the stand-in kernel does not know module {match['module']}")
    return match["module"]


def _resource(document: dict[str, Any], imports: Mapping[str, str]) -> Resource:
    kind = str(document.get("kind"))
    alias, _, type_name = kind.partition(".")
    if alias != "Telo" and alias not in imports:
        raise ManifestError(f"kind {kind} names '{alias}', which is not imported")
    known = MODULES[imports[alias]].kinds if alias in imports else {}
    if type_name not in known:
        raise ManifestError(f"the stand-in kernel does not know kind {kind}")
    fields = {key: value for key, value in document.items() if key not in ("kind", "metadata")}
    refuse_unknown(fields, {*known[type_name].required, *known[type_name].optional}, kind)
    name = _metadata_name(document, kind)
    for field in sorted(known[type_name].required - fields.keys()):
        raise ManifestError(f"{kind} '{name}' has no field '{field}'")
    return Resource(name, kind, imports[alias], type_name, fields)


def _metadata_name(document: Mapping[str, Any], kind: str) -> str:
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(name, str) or not name:
        raise ManifestError(f"{kind} has no metadata.name")
    return name


def _port(name: str, value: Any) -> Setting:
    setting = _setting(f"port '{name}'", value, {"env", "protocol", "default"})
    protocol = value.get("protocol", "tcp")
    if protocol not in ("tcp", "udp"):
        raise ManifestError(f"port '{name}': the protocol is tcp or udp")
    return Setting(setting.env, "port", setting.default, protocol)


def _variable(name: str, value: Any) -> Setting:
    setting = _setting(f"variable '{name}'", value, {"env", "type", "default"})
    if setting.type_name not in VARIABLE_TYPES:
        raise ManifestError(
            f"variable '{name}': the stand-in kernel does not know type {setting.type_name}"
        )
    return setting


def _setting(what: str, value: Any, known: Iterable[str]) -> Setting:
    if not isinstance(value, dict) or not isinstance(value.get("env"), str):
        raise ManifestError(f"{what} names no environment variable")
    refuse_unknown(value, known, what)
    return Setting(value["env"], str(value.get("type", "string")), value.get("default"))


def mapping(owner: Mapping[str, Any], field: str) -> dict[str, Any]:
    """Return a field that is a map with text keys; an absent one is empty.

    Raises:
        ManifestError: it is something else.
    """
    value = owner.get(field)
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise ManifestError(f"'{field}' is not a map")
    return value


def sequence(owner: Mapping[str, Any], field: str) -> list[Any]:
    """Return a field that is a list; an absent one is empty.

    Raises:
        ManifestError: it is something else.
    """
    value = owner.get(field)
    if value is None:
        return []
    if not isinstance(value, list):
        raise ManifestError(f"'{field}' is not a list")
    return value


def refuse_unknown(value: Mapping[Any, Any], known: Iterable[str], what: str) -> None:
    """Refuse the first field that is not among the known ones, by name.

    Raises:
        ManifestError: there is one.
    """
    for field in value:
        if field not in known:
            raise ManifestError(f"the stand-in kernel does not know field '{field}' of {what}")
