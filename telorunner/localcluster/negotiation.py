"""In which form a client wants its answer: as the object, as a table or as metadata alone. Pure."""

import re
from enum import Enum
from typing import Any

from aiohttp import web

from telorunner.localcluster import statuses

_JSON = ("application/json", "*/*", "")
_SERVED = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
_SERVED_STREAMS = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
_META = {"g": "meta.k8s.io", "v": "v1"}


class Form(Enum):
    """A form of an answer."""

    OBJECT = "object"
    TABLE = "table"
    METADATA = "metadata"


_FORMS = {
    "": Form.OBJECT,
    "Table": Form.TABLE,
    "PartialObjectMetadata": Form.METADATA,
    "PartialObjectMetadataList": Form.METADATA,
}


def accepted_form(request: web.Request, *, is_collection: bool = False) -> Form:
    """Return the first form of the Accept header that is served.

    Raises:
        StoreError: 406, none is.
    """
    accepted = request.headers.get("Accept", "")
    is_known = False
    for clause in accepted.split(","):
        media_type, *parameters = [part.strip() for part in clause.split(";")]
        if media_type not in _JSON:
            continue
        is_known = True
        given = dict(re.findall(r"([a-z]+)=([^;]*)", ";".join(parameters)))
        form = _FORMS.get(given.get("as", ""))
        if form is Form.OBJECT or (form is not None and _is_meta(given)):
            return form
    if is_known:
        message = f"only the following media types are accepted: {_SERVED}"
        raise statuses.StoreError(406, "NotAcceptable", message)
    served = f"{_SERVED}, {_SERVED_STREAMS}" if is_collection else _SERVED
    message = f"406: Not Acceptable\n\nAvailable representations: {served}"
    raise statuses.StoreError(406, "NotAcceptable", message, {})


def _is_meta(given: dict[str, str]) -> bool:
    return all(given.get(name) == value for name, value in _META.items())


def partial(obj: dict[str, Any]) -> dict[str, Any]:
    """Return an object with its metadata alone."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": obj["metadata"],
    }
