"""The variables of public routes: where sessions get their hosts, and how a host is asked."""

import re
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, NoDecode

from telorunner.conf.types import Flag, Integer, Namespace, ObjectName
from telorunner.values.dns import is_dns_label
from telorunner.values.publichost import MAX_PORT, base_domain_problem, ends_in_number

RoutingMode = Literal["auto", "ingress", "gateway", "none"]

_HTTPS_PORT = 443
_RESOLVE = "resolve"
_ADDRESS = re.compile(
    r"(?:(?P<scheme>https?)://)?(?P<host>[A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})",
    re.ASCII,
)


@dataclass(frozen=True)
class ProbeAddress:
    """Where public hosts are asked; an empty host means wherever DNS says that they are.

    An IPv6 address is in `host` without its brackets.
    """

    scheme: Literal["http", "https"]
    host: str
    port: int


def _base_domain(value: str) -> str:
    if value and (problem := base_domain_problem(value)):
        raise ValueError(problem)
    return value


def _is_host(text: str) -> bool:
    try:
        return ip_address(text.strip("[]")).version == (6 if text.startswith("[") else 4)
    except ValueError:
        name = text.lower()
        return all(map(is_dns_label, name.split("."))) and not ends_in_number(name)


def _probe_address(value: object) -> object:
    if not isinstance(value, str):
        return value
    if value == _RESOLVE:
        return ProbeAddress("https", "", _HTTPS_PORT)
    match = _ADDRESS.fullmatch(value)
    if match is None or not (_is_host(match["host"]) and 1 <= int(match["port"]) <= MAX_PORT):
        raise ValueError(
            "must be host:port of what takes requests for public hosts, such as "
            "gateway.example:443 or http://10.0.0.1:8080, or resolve to ask DNS for each host"
        )
    scheme: Literal["http", "https"] = "http" if match["scheme"] == "http" else "https"
    return ProbeAddress(scheme, match["host"].strip("[]"), int(match["port"]))


BaseDomain = Annotated[str, AfterValidator(_base_domain)]
ProbedAt = Annotated[ProbeAddress | None, NoDecode, BeforeValidator(_probe_address)]


class RoutingVariables(BaseSettings):
    """The part of the configuration that is about public routes."""

    routing_mode: RoutingMode = Field(default="auto", validation_alias="SESSION_ROUTING_MODE")
    routing_base_domain: BaseDomain = Field(
        default="", validation_alias="SESSION_ROUTING_BASE_DOMAIN"
    )
    route_ready_timeout_seconds: Annotated[Integer, Field(ge=1, le=86_400)] = Field(
        default=60, validation_alias="SESSION_ROUTE_READY_TIMEOUT_SECONDS"
    )
    # NB: before `route_probe`, whose validator looks at it.
    route_probe_address: ProbedAt = Field(
        default=None, validation_alias="SESSION_ROUTE_PROBE_ADDRESS"
    )
    route_probe: Flag | None = Field(default=None, validation_alias="SESSION_ROUTE_PROBE")
    ingress_class: ObjectName = Field(default="", validation_alias="SESSION_INGRESS_CLASS")
    ingress_tls_secret: ObjectName = Field(
        default="", validation_alias="SESSION_INGRESS_TLS_SECRET"
    )
    gateway_name: ObjectName = Field(default="", validation_alias="SESSION_GATEWAY_NAME")
    # None: the sessions' own namespace.
    gateway_namespace: Namespace | None = Field(
        default=None, validation_alias="SESSION_GATEWAY_NAMESPACE"
    )
    gateway_section_name: ObjectName = Field(
        default="", validation_alias="SESSION_GATEWAY_SECTION_NAME"
    )

    @field_validator("route_probe")
    @classmethod
    def _has_an_address(cls, value: bool | None, info: ValidationInfo) -> bool | None:
        # An address that is itself refused is not in `data`.
        if value and info.data.get("route_probe_address", value) is None:
            raise ValueError("cannot be true unless SESSION_ROUTE_PROBE_ADDRESS is set")
        return value

    @property
    def is_route_probing(self) -> bool:
        """Whether public hosts are asked: where an address is set, unless it was turned off."""
        return self.route_probe_address is not None and self.route_probe is not False
