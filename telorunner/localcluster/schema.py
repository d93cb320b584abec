"""What each kind's objects are made of: their fields and the types these have in Go.

`schema.txt` has one line a type, made from the OpenAPI document of Kubernetes 1.34; the
conformance tests compare it with a real cluster's. The Gateway API's kinds have schemas of their
own, in `gatewayschema`. Pure.
"""

from functools import cache
from importlib.resources import files

from telorunner.localcluster.resources import ResourceKind

Fields = dict[str, str]

SCHEMA_FILE = "schema.txt"
METADATA_TYPE = "v1.ObjectMeta"


def text() -> str:
    """Return the table of types as it is written."""
    return files(__package__).joinpath(SCHEMA_FILE).read_text()


@cache
def types() -> dict[str, Fields]:
    """Return the fields of each type by its name, as in `{"v1.ConfigMap": {"data": ...}}`."""
    found = {}
    for line in text().splitlines():
        name, *fields = line.split(" ")
        found[name] = dict(field.split("=", 1) for field in fields)
    return found


def type_of(kind: ResourceKind) -> str | None:
    """Return the name of a kind's type, None where it is custom and has a schema instead."""
    return None if kind.is_custom else f"{kind.version}.{kind.kind}"
