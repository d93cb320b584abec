"""Finds what a request is for by its host, path, method and headers. Pure.

The most specific host decides alone: where no path of it matches, a less specific host is not
asked, only a default backend. Paths are compared as they were sent, byte by byte.

Source: https://kubernetes.io/docs/concepts/services-networking/ingress/#multiple-matches
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

HTTP, HTTPS = "http", "https"
# No name is longer, and no rule has one that is.
# Source: RFC 1035, section 2.3.4
_MAX_HOST_LENGTH = 253
BOTH = frozenset({HTTP, HTTPS})
ANY_HOST = ""


@dataclass(frozen=True)
class Backend:
    """A port of a Service, by its number or its name; of several the weights decide."""

    namespace: str
    service: str
    port: int | str
    weight: int = 1


@dataclass(frozen=True)
class SecretName:
    """A Secret with a certificate."""

    namespace: str
    name: str


@dataclass(frozen=True)
class Rule:
    """A condition on requests, and where those go that satisfy it.

    `host` is lower-case, "*.x" for what is below x, "" for all; with `is_deep` the star stands
    for several labels. `age` puts rules that say the same in an order.
    """

    host: str
    path: str
    backends: tuple[Backend, ...]
    is_exact: bool = False
    is_deep: bool = False
    schemes: frozenset[str] = BOTH
    method: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    age: tuple[str | int, ...] = ()

    def matches(self, asked: "Asked") -> bool:
        """Say whether a request for this rule's host is meant."""
        if self.method and self.method != asked.method:
            return False
        if any(asked.headers.get(name) != value for name, value in self.headers):
            return False
        if self.is_exact:
            return asked.path == self.path
        prefix = self.path.rstrip("/")
        return asked.path == prefix or asked.path.startswith(f"{prefix}/")


@dataclass(frozen=True)
class Asked:
    """What of a request decides where it goes; header names are lower-case."""

    scheme: str
    host: str
    path: str
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)


class Table:
    """All rules and certificates of one moment."""

    def __init__(
        self,
        rules: Iterable[Rule] = (),
        *,
        defaults: Iterable[Rule] = (),
        secrets: Mapping[str, SecretName] | None = None,
    ) -> None:
        """Put rules in order; `defaults` are for what no other takes, `secrets` are by host."""
        self._rules: dict[tuple[str, str], list[Rule]] = {}
        self._defaults = sorted(defaults, key=_rank)
        self._secrets = dict(secrets or {})
        for rule in sorted(rules, key=_rank):
            for scheme in rule.schemes:
                self._rules.setdefault((scheme, rule.host), []).append(rule)

    def find(self, asked: Asked) -> Rule | None:
        """Return the rule for a request, None where there is none."""
        rules = self._of_host(asked.scheme, asked.host)
        found = next((rule for rule in rules if rule.matches(asked)), None)
        return found or next((rule for rule in self._defaults if rule.matches(asked)), None)

    def secret_for(self, host: str) -> SecretName | None:
        """Return the Secret with the certificate of a host."""
        found = (self._secrets.get(name) for name in _candidates(host))
        return next((secret for secret in found if secret is not None), None)

    def _of_host(self, scheme: str, host: str) -> list[Rule]:
        """Return the rules of the most specific host that has some."""
        # The star of an Ingress stands for one label, so only the first star may be one of these.
        is_deeper = False
        for name in _candidates(host):
            rules = self._rules.get((scheme, name), [])
            if is_deeper and name != ANY_HOST:
                rules = [rule for rule in rules if rule.is_deep]
            if rules:
                return rules
            is_deeper = is_deeper or name.startswith("*.")
        return []


def normal_host(authority: str) -> str:
    """Return the host of a Host header as rules have it: lower-case, without port or end dot."""
    host = authority.strip().lower()
    if host.startswith("["):
        address, _, port = host[1:].partition("]")
        # Nothing else stands in brackets, and nothing but a port behind them.
        return address if ":" in address and port[:1] in ("", ":") else host
    return host.partition(":")[0].removesuffix(".")


def _candidates(host: str) -> Iterator[str]:
    """Yield a host and what stands for it, the most specific first."""
    # NB: whoever asks decides how many labels there are, and each one costs a copy of the rest.
    rest = host if len(host) <= _MAX_HOST_LENGTH else ""
    if rest:
        yield rest
    while "." in rest:
        rest = rest.partition(".")[2]
        yield f"*.{rest}"
    yield ANY_HOST


def _rank(rule: Rule) -> tuple[bool, int, bool, int, tuple[str | int, ...]]:
    """Return what puts the rule first that is to win."""
    length = len(rule.path.rstrip("/"))
    return (not rule.is_exact, -length, not rule.method, -len(rule.headers), rule.age)
