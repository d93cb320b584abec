"""Public hosts of sessions: `<port>-<sessionId>.<baseDomain>`, and which base domains fit; pure.

One label before the base domain, so that one wildcard record and one wildcard certificate cover
every session.

Source: RFC 1035, section 2.3.4 (lengths); RFC 1123, section 2.1 (labels);
https://gateway-api.sigs.k8s.io/reference/spec/#hostname (what an HTTPRoute takes as a host)
"""

import re

from telorunner.values.dns import MAX_LABEL_LENGTH, is_dns_label

MAX_HOST_LENGTH = 253
MAX_PORT = 65_535
# Of the ids that `sessions` gives, which this layer does not know; a test holds both together.
SESSION_ID_LENGTH = 12

LONGEST_FIRST_LABEL = f"{MAX_PORT}-{'x' * SESSION_ID_LENGTH}"
MAX_BASE_DOMAIN_LENGTH = MAX_HOST_LENGTH - len(LONGEST_FIRST_LABEL) - len(".")

_FORM = "must be a domain such as apps.example.com"
# Browsers take a name that ends so for an IPv4 address.
# Source: https://url.spec.whatwg.org/#ends-in-a-number-checker
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)


def hostname(port: int, session_id: str, base_domain: str) -> str:
    """Return the public host of one port of a session."""
    return f"{port}-{session_id}.{base_domain}"


def ends_in_number(host: str) -> bool:
    """Tell whether a host is no name but an IPv4 address, or what would be read as one."""
    return _NUMBER.fullmatch(host.rpartition(".")[2]) is not None


def base_domain_problem(text: str) -> str:
    """Return why sessions cannot have their hosts under a domain; empty: they can."""
    labels = text.split(".")
    if text != text.lower():
        return f"{_FORM}, in lower case"
    if text.startswith("*."):
        return f"{_FORM}, without *: a host for each session is put in front of it"
    if "" in labels:
        return f"{_FORM}, without a dot at its ends or two in a row"
    if any(len(label) > MAX_LABEL_LENGTH for label in labels):
        return f"{_FORM}: between its dots at most {MAX_LABEL_LENGTH} characters"
    if not all(is_dns_label(label) for label in labels):
        return f"{_FORM}: letters, digits and '-' between dots, without scheme, port or path"
    if ends_in_number(text):
        return f"{_FORM}, not an address"
    if len(text) > MAX_BASE_DOMAIN_LENGTH:
        return (
            f"{_FORM}, of at most {MAX_BASE_DOMAIN_LENGTH} characters: with a session's port and "
            f"id in front a host has at most {MAX_HOST_LENGTH}"
        )
    return ""
