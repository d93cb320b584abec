"""What keeps texts from being names, addresses and ports, in the words of the real API. Pure.

Each function returns sentences that say what keeps a text from being what it should be; an empty
list means that nothing does.
"""

import ipaddress
import re
from typing import Any

from telorunner.localcluster import gojson
from telorunner.localcluster.validation import (
    MAX_LABEL_LENGTH,
    MAX_SUBDOMAIN_LENGTH,
    NOT_A_LABEL,
    NOT_A_SUBDOMAIN,
    SUBDOMAIN,
    Fault,
    label_faults,
    wrong,
)

PROTOCOLS = ("SCTP", "TCP", "UDP")
DNS1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
NOT_DNS1035 = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an"
    " alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123',"
    f" regex used for validation is '{DNS1035}')"
)
NOT_A_PORT = "must be between 1 and 65535, inclusive"
NOT_AN_ADDRESS = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
NOT_A_NETWORK = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
_MAX_PORT_NAME_LENGTH = 15
_NOT_A_PORT_NAME = "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"
_WILDCARD = rf"\*\.{SUBDOMAIN}"
_NOT_A_WILDCARD = (
    "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which"
    " must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric"
    f" character (e.g. '*.example.com', regex used for validation is '{_WILDCARD}')"
)


def too_long_problem(text: str, limit: int) -> list[str]:
    """Return the sentence about a text of more than `limit` characters."""
    return [f"must be no more than {limit} characters"] if len(text) > limit else []


def subdomain_problems(text: str) -> list[str]:
    """Return what keeps a text from being a DNS subdomain."""
    problems = too_long_problem(text, MAX_SUBDOMAIN_LENGTH)
    return problems if re.fullmatch(SUBDOMAIN, text) else [*problems, NOT_A_SUBDOMAIN]


def wildcard_problems(text: str) -> list[str]:
    """Return what keeps a text from being `*.` and a DNS subdomain."""
    problems = too_long_problem(text, MAX_SUBDOMAIN_LENGTH)
    return problems if re.fullmatch(_WILDCARD, text) else [*problems, _NOT_A_WILDCARD]


def host_problems(text: str) -> list[str]:
    """Return what keeps a text from being a host name, perhaps with a wildcard."""
    return wildcard_problems(text) if "*" in text else subdomain_problems(text)


def service_name_problems(text: str) -> list[str]:
    """Return what keeps a text from being the name of a Service."""
    problems = too_long_problem(text, MAX_LABEL_LENGTH)
    return problems if re.fullmatch(DNS1035, text) else [*problems, NOT_DNS1035]


def namespace_problems(text: str) -> list[str]:
    """Return what keeps a text from being the name of a namespace."""
    problems = too_long_problem(text, MAX_LABEL_LENGTH)
    return [*problems, *(NOT_A_LABEL for _ in label_faults("", text)[len(problems) :])]


def path_segment_problems(text: str) -> list[str]:
    """Return what keeps a text from standing between two slashes of a path."""
    if text in (".", ".."):
        return [f"may not be '{text}'"]
    return [f"may not contain '{part}'" for part in ("/", "%") if part in text]


def port_name_problems(text: str) -> list[str]:
    """Return what keeps a text from being the name of a port in a container.

    Source: https://datatracker.ietf.org/doc/html/rfc6335#section-5.1
    """
    checks = (
        (
            len(text) > _MAX_PORT_NAME_LENGTH,
            f"must be no more than {_MAX_PORT_NAME_LENGTH} characters",
        ),
        (not re.fullmatch("[-a-z0-9]+", text), _NOT_A_PORT_NAME),
        (not re.search("[a-z]", text), "must contain at least one letter (a-z)"),
        ("--" in text, "must not contain consecutive hyphens"),
        (text.startswith("-") or text.endswith("-"), "must not begin or end with a hyphen"),
    )
    return [problem for is_wrong, problem in checks if is_wrong]


def is_address(text: str) -> bool:
    """Say whether a text is an IP address; leading zeros are taken, as the real API takes them."""
    return parse_address(text) is not None


def parse_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address that a text stands for, None where it is none."""
    if re.fullmatch(r"\d{1,20}(\.\d{1,20}){3}", text):
        text = ".".join(str(int(part)) for part in text.split("."))
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    # An IPv4 address in the form of an IPv6 one is taken for the former.
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def is_network(text: str) -> bool:
    """Say whether a text is an address and the length of its prefix."""
    address, slash, length = text.partition("/")
    found = parse_address(address)
    limit = 128 if ":" in address else 32
    return bool(found and slash and re.fullmatch(r"\d{1,3}", length) and int(length) <= limit)


def strict_address_problems(text: str) -> list[str]:
    """Return what keeps a text from being an address by the rules for newer fields."""
    address = parse_address(text)
    if address is None:
        return [NOT_AN_ADDRESS]
    if ":" in text:
        return ["must not be an IPv4-mapped IPv6 address"] if address.version == 4 else []
    return ["must not have leading 0s"] if str(address) != text else []


def address_warnings(field: str, text: str) -> list[str]:
    """Return what a client is warned of that writes an address in another than the usual form."""
    address = parse_address(text)
    if address is None or str(address) == text:
        return []
    if address.version == 4:
        return [
            f"{field}: non-standard IP address {gojson.quoted(text)} will be considered invalid in"
            f" a future Kubernetes release: use {gojson.quoted(str(address))}"
        ]
    return [
        f"{field}: IPv6 address {gojson.quoted(text)} should be in RFC 5952 canonical format"
        f" ({gojson.quoted(str(address))})"
    ]


def point_faults(field: str, point: dict[str, Any]) -> list[Fault]:
    """Return what is wrong with an address at which traffic is said to come in."""
    address, host = point.get("ip"), point.get("hostname")
    faults = []
    if address and not is_address(address):
        faults.append(wrong(f"{field}.ip", address, NOT_AN_ADDRESS))
    return [*faults, *(host_faults(f"{field}.hostname", host) if host else ())]


def host_faults(field: str, host: str) -> list[Fault]:
    """Return what keeps a text from being the name of a host."""
    faults = [wrong(field, host, why) for why in subdomain_problems(host)]
    if is_address(host):
        faults.append(wrong(field, host, "must be a DNS name, not an IP address"))
    return faults


def special_address_faults(field: str, text: str, *, may_be_loopback: bool = False) -> list[Fault]:
    """Return the fault of an address that no pod can have; those on loopback are ours to allow."""
    address = parse_address(text)
    if address is None:
        return [wrong(field, text, "must be a valid IP address")]
    is_local_multicast = address.is_multicast and (
        address in ipaddress.ip_network("224.0.0.0/24")
        if address.version == 4
        else address in ipaddress.ip_network("ff02::/16")
    )
    checks = (
        (address.is_unspecified, f"may not be unspecified ({text})"),
        (
            address.is_loopback and not may_be_loopback,
            "may not be in the loopback range (127.0.0.0/8, ::1/128)",
        ),
        (
            address.is_link_local,
            "may not be in the link-local range (169.254.0.0/16, fe80::/10)",
        ),
        (
            is_local_multicast,
            "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)",
        ),
    )
    return [wrong(field, text, why) for is_wrong, why in checks if is_wrong]
