"""The types of single variables, and the sentence where a value cannot be used.

The sentence comes behind the variable's name.
Messages never repeat a value: it may be a secret.
"""

import json
import re
from typing import Annotated
from urllib.parse import urlsplit

import regex
from pydantic import AfterValidator, BeforeValidator
from pydantic_settings import NoDecode

from telorunner.values.dns import is_dns_label
from telorunner.values.image import DEFAULT_REGISTRY, parse_image
from telorunner.values.quantity import parse_bytes, parse_cpu_millis
from telorunner.values.terms import version_problem

_BASE_URL = re.compile(r"https?://(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?", re.ASCII)
_LABEL_VALUE = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)
# What the rows of the catalog keep.
MAX_REPOSITORY_LENGTH = 255
MAX_TITLE_LENGTH = 200
# Each answer of /v1/capabilities has those of all apps.
MAX_DESCRIPTION_LENGTH = 2000


def _integer(value: object) -> object:
    # int() would also take "1_0", " 7 " and Arabic digits.
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,18}", value, re.ASCII) is None:
        raise ValueError("must be a whole number, such as 32")
    return value


def _flag(value: object) -> object:
    if isinstance(value, str):
        if value.lower() not in {"true", "false", "1", "0", "yes", "no", "on", "off"}:
            raise ValueError("must be true or false")
        return value.lower() in {"true", "1", "yes", "on"}
    return value


def _comma_list(value: object) -> object:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


def _namespace(value: str) -> str:
    if not is_dns_label(value):
        raise ValueError("must be a namespace: a lower-case DNS label of at most 63 characters")
    return value


def _image(value: str) -> str:
    parse_image(value)
    return value


def _label_value(value: str) -> str:
    if _LABEL_VALUE.fullmatch(value) is None:
        raise ValueError("must be a label value: letters, digits, '-', '_', '.', at most 63")
    return value


def _object_name(value: str) -> str:
    if (value and not all(is_dns_label(part) for part in value.split("."))) or len(value) > 253:
        raise ValueError("must be the name of a Kubernetes object")
    return value


def _origin(value: str) -> str:
    parts = urlsplit(value)
    if value != "*" and (
        parts.scheme not in {"http", "https"}
        or not parts.hostname
        # Browsers send scheme and host in lower case, and origins are compared as text.
        or value != f"{parts.scheme}://{parts.netloc}".lower()
        or "@" in parts.netloc
    ):
        raise ValueError("must be * or a comma list of origins such as https://editor.example")
    return value


def _self_url(value: str) -> str:
    problem = "must be the URL that pods reach the runner at, such as http://runner.example:8062"
    try:
        parts = urlsplit(value)
        is_address = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError as exc:
        raise ValueError(problem) from exc
    # A path, a query, credentials, or anything that has to be quoted, is more than that.
    if value and not (is_address and _BASE_URL.fullmatch(value)):
        raise ValueError(f"{problem}: scheme, host and port, without a path or credentials")
    return value


def _http_url(value: str) -> str:
    problem = "must be a URL of scheme, host and port, such as http://hub.example:8080"
    if _BASE_URL.fullmatch(value) is None:
        raise ValueError(problem)
    try:
        is_port = urlsplit(value).port != 0
    except ValueError as exc:
        raise ValueError(problem) from exc
    if not is_port:
        raise ValueError(problem)
    return value


def _pattern(value: str) -> str:
    try:
        regex.compile(value)
    except regex.error as exc:
        raise ValueError(f"must be a regular expression: {exc}") from exc
    except RecursionError:
        raise ValueError("must be a regular expression that is less deeply nested") from None
    return value


def _repository(value: str) -> str:
    problem = "must be a repository of Docker Hub, such as telorun/node, without a tag"
    try:
        reference = parse_image(value)
    except ValueError as exc:
        raise ValueError(problem) from exc
    # NB: a repository there is in a namespace, and in nothing deeper.
    is_named = reference.registry == DEFAULT_REGISTRY and reference.repository.count("/") == 1
    if not is_named or ":" in value or "@" in value or len(value) > MAX_REPOSITORY_LENGTH:
        raise ValueError(problem)
    return value


def _whole(value: str) -> str:
    # What is no UTF-8 in the environment is half a pair in Python; JSON may write one too.
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError("must be text in UTF-8 that halves no surrogate pair") from None
    return value


def _text(value: str) -> str:
    # PostgreSQL keeps none.
    if "\0" in value:
        raise ValueError("holds a NUL")
    return _whole(value)


def _title(value: str) -> str:
    if len(value) > MAX_TITLE_LENGTH:
        raise ValueError(f"must be at most {MAX_TITLE_LENGTH} characters long")
    return _text(value)


def _app_description(value: str) -> str:
    if len(value) > MAX_DESCRIPTION_LENGTH:
        raise ValueError(f"must be at most {MAX_DESCRIPTION_LENGTH} characters long")
    return _text(value)


def _terms_version(value: str) -> str:
    if problem := version_problem(value):
        raise ValueError(problem)
    return value


def _cpu(value: object) -> object:
    return parse_cpu_millis(value) if isinstance(value, str) else value


def _bytes(value: object) -> object:
    return parse_bytes(value) if isinstance(value, str) else value


def _commands(value: object) -> object:
    if not isinstance(value, str):
        return value
    problem = 'must be JSON such as {"image": ["command", "argument"]}'
    try:
        table = json.loads(value)
    except (ValueError, RecursionError) as exc:
        raise ValueError(problem) from exc
    is_table = isinstance(table, dict) and all(
        isinstance(command, list) and command and all(isinstance(part, str) for part in command)
        for command in table.values()
    )
    if not is_table:
        raise ValueError(problem)
    return {image: tuple(command) for image, command in table.items()}


Integer = Annotated[int, BeforeValidator(_integer)]
Flag = Annotated[bool, BeforeValidator(_flag)]
CommaList = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_comma_list)]
Origins = Annotated[
    tuple[Annotated[str, AfterValidator(_origin)], ...], NoDecode, BeforeValidator(_comma_list)
]
Commands = Annotated[dict[str, tuple[str, ...]], NoDecode, BeforeValidator(_commands)]
CpuMillis = Annotated[int, BeforeValidator(_cpu)]
Bytes = Annotated[int, BeforeValidator(_bytes)]
ObjectName = Annotated[str, AfterValidator(_object_name)]
Namespace = Annotated[str, AfterValidator(_namespace)]
Image = Annotated[str, AfterValidator(_image)]
LabelValue = Annotated[str, AfterValidator(_label_value)]
SelfUrl = Annotated[str, AfterValidator(_self_url)]
HttpUrl = Annotated[str, AfterValidator(_http_url)]
Pattern = Annotated[str, AfterValidator(_pattern)]
Repository = Annotated[str, AfterValidator(_repository)]
TermsVersion = Annotated[str, AfterValidator(_terms_version)]
Whole = Annotated[str, AfterValidator(_whole)]
Text = Annotated[str, AfterValidator(_text)]
Title = Annotated[str, AfterValidator(_title)]
AppDescription = Annotated[str, AfterValidator(_app_description)]
