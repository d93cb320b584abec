"""Keeps what the ingress routes by in step with the store, and tells objects how they stand.

The table follows each change at once: a request that comes after the answer to a change is routed
by it. Statuses are written by one task, which belongs to whoever calls `run()`.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from telorunner.localcluster.ingress import gateways, ingresses, status
from telorunner.localcluster.ingress.backends import find_port
from telorunner.localcluster.ingress.certificates import UnusableSecret, load_secret
from telorunner.localcluster.ingress.gateways import Attachment
from telorunner.localcluster.ingress.status import Fact
from telorunner.localcluster.ingress.table import HTTPS, Backend, Rule, SecretName, Table
from telorunner.localcluster.store import Change, Store, timestamp
from telorunner.localcluster.subscriptions import ObjectKey, key_of, subscribed

logger = logging.getLogger(__name__)

Object = dict[str, Any]
# By namespace and name.
Gateways = dict[tuple[str, str], Object]

# What rules are made of: routes, and what all routes depend on.
_ROUTES = frozenset({"ingresses", "httproutes"})
_ROUTING = _ROUTES | {"ingressclasses", "gatewayclasses", "gateways", "namespaces"}
# What statuses also tell of.
_WATCHED = _ROUTING | {"services", "secrets"}


class IngressController:
    """The routes of one cluster."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._table: Table | None = None
        # What was read off each route. There may be hundreds, of which one changes.
        self._rules: dict[ObjectKey, tuple[Rule, ...]] = {}
        self._attached: dict[ObjectKey, list[Attachment]] = {}
        # Whether what all HTTPRoutes depend on is new since their statuses were written.
        self._has_new_gateways = True
        store.observers.append(self._note)

    @property
    def table(self) -> Table:
        """Return the rules and certificates as they are now."""
        if self._table is None:
            self._table = self._build_table()
        return self._table

    async def run(self) -> None:
        """Write statuses until cancelled."""
        with subscribed(self._store, _WATCHED) as subscription:
            while True:
                keys = await subscription.next()
                try:
                    self._tend(keys)
                except Exception:
                    logger.exception("The local ingress could not write statuses.")

    def _note(self, resource: str, change: Change) -> None:
        """Drop what a change makes wrong; called inside the write."""
        if resource not in _ROUTING or _is_status_only(change):
            return
        self._table = None
        if resource in _ROUTES:
            key = key_of(resource, change.obj["metadata"])
            self._rules.pop(key, None)
            self._attached.pop(key, None)
            return
        self._rules.clear()
        self._attached.clear()
        self._has_new_gateways = True

    def _build_table(self) -> Table:
        rules: list[Rule] = []
        defaults: list[Rule] = []
        secrets: dict[str, SecretName] = {}
        for ingress in self._local_ingresses():
            rules += self._ingress_rules(ingress)
            defaults += ingresses.default_rules(ingress)
            for host, secret in ingresses.ingress_secrets(ingress):
                secrets.setdefault(host, secret)
        local = self._local_gateways()
        for gateway in local.values():
            for host, secret in gateways.gateway_secrets(gateway):
                secrets.setdefault(host, secret)
        for route in self._store.list("httproutes")[0]:
            rules += self._route_rules(route, local)
        return Table(rules, defaults=defaults, secrets=secrets)

    def _local_ingresses(self) -> Iterator[Object]:
        """Yield the Ingresses that are routed here, the oldest first."""
        classes = ingresses.local_classes(self._store.list("ingressclasses")[0])
        found = sorted(self._store.list("ingresses")[0], key=ingresses.age)
        return (one for one in found if ingresses.is_local(one, classes))

    def _local_gateways(self) -> Gateways:
        classes = gateways.local_gateway_classes(self._store.list("gatewayclasses")[0])
        return {
            (one["metadata"]["namespace"], one["metadata"]["name"]): one
            for one in self._store.list("gateways")[0]
            if one["spec"]["gatewayClassName"] in classes
        }

    def _ingress_rules(self, ingress: Object) -> tuple[Rule, ...]:
        key = key_of("ingresses", ingress["metadata"])
        if key not in self._rules:
            self._rules[key] = tuple(ingresses.ingress_rules(ingress))
        return self._rules[key]

    def _route_rules(self, route: Object, local: Gateways) -> tuple[Rule, ...]:
        key = key_of("httproutes", route["metadata"])
        if key not in self._rules:
            self._rules[key] = tuple(gateways.route_rules(route, self._attachments(route, local)))
        return self._rules[key]

    def _attachments(self, route: Object, local: Gateways) -> list[Attachment]:
        """Return how a route stands to those of its parents that are this cluster's."""
        key = key_of("httproutes", route["metadata"])
        if key not in self._attached:
            self._attached[key] = self._attach(route, local)
        return self._attached[key]

    def _attach(self, route: Object, local: Gateways) -> list[Attachment]:
        namespace = self._store.find("namespaces", "", route["metadata"]["namespace"]) or {}
        labels = (namespace.get("metadata") or {}).get("labels") or {}
        parents = [
            (parent, local.get(gateways.parent_key(route, parent) or ("", "")))
            for parent in route["spec"].get("parentRefs") or []
        ]
        return [
            gateways.attach(route, parent, gateway, labels)
            for parent, gateway in parents
            if gateway is not None
        ]

    def _tend(self, keys: Iterable[ObjectKey]) -> None:
        """Write the statuses that changed objects may have changed."""
        changed = {(key.resource, key.namespace, key.name) for key in keys}
        resources = {resource for resource, _, _ in changed}
        if resources & {"ingresses", "ingressclasses"}:
            everything = "ingressclasses" in resources
            for ingress in self._local_ingresses():
                if everything or ("ingresses", *_name(ingress)) in changed:
                    self._write("ingresses", ingress, status.ingress_status())
        if resources != {"ingresses"}:
            self._tend_gateways(changed)

    def _tend_gateways(self, changed: set[tuple[str, str, str]]) -> None:
        now = timestamp()
        classes = gateways.local_gateway_classes(self._store.list("gatewayclasses")[0])
        for gateway_class in self._store.list("gatewayclasses")[0]:
            if gateway_class["metadata"]["name"] in classes:
                found = status.class_status(gateway_class, now)
                self._write("gatewayclasses", gateway_class, found)
        local = self._local_gateways()
        attached: Counter[tuple[str, str, str]] = Counter()
        for route in self._store.list("httproutes")[0]:
            attachments = self._attachments(route, local)
            for attachment in attachments:
                key = gateways.parent_key(route, attachment.parent) or ("", "")
                attached.update((*key, listener) for listener in set(attachment.listeners))
            # NB: not all because of a Gateway's new status, which is written below for each route.
            if self._has_new_gateways or _concerns(changed, route):
                found = status.route_status(route, attachments, self._resolved(route), now)
                self._write_route(route, found)
        for (namespace, name), gateway in local.items():
            counts = {
                one["name"]: attached[namespace, name, one["name"]]
                for one in gateway["spec"]["listeners"]
            }
            found = status.gateway_status(gateway, counts, self._unusable(gateway), now)
            self._write("gateways", gateway, found)
        self._has_new_gateways = False

    def _write_route(self, route: Object, found: Object) -> None:
        # One that is nobody's gets no status, not even an empty one.
        if found["parents"] or (route.get("status") or {}).get("parents"):
            self._write("httproutes", route, found)

    def _resolved(self, route: Object) -> Fact:
        """Return whether what a route leads to is there."""
        for rule in route["spec"].get("rules") or []:
            for one in rule.get("backendRefs") or []:
                if fact := self._unresolved(route, one):
                    return fact
        return Fact("ResolvedRefs", True, "ResolvedRefs", "What it leads to is there.")

    def _unresolved(self, route: Object, reference: Object) -> Fact | None:
        namespace = route["metadata"]["namespace"]
        if (reference.get("group", ""), reference.get("kind", "Service")) != ("", "Service"):
            return Fact("ResolvedRefs", False, "InvalidKind", "Only Services can be led to.")
        if reference.get("namespace", namespace) != namespace:
            why = "A Service of another namespace cannot be led to."
            return Fact("ResolvedRefs", False, "RefNotPermitted", why)
        backend = Backend(namespace, reference["name"], reference["port"])
        if find_port(self._store, backend) is None:
            why = f"There is no Service {backend.service} with the tcp port {backend.port}."
            return Fact("ResolvedRefs", False, "BackendNotFound", why)
        return None

    def _unusable(self, gateway: Object) -> Iterator[str]:
        """Yield the names of the listeners whose certificate cannot be used."""
        for listener in gateway["spec"]["listeners"]:
            if gateways.scheme_of(listener) != HTTPS:
                continue
            name = gateways.listener_secret(gateway, listener)
            secret = name and self._store.find("secrets", name.namespace, name.name)
            try:
                load_secret(secret or {})
            except UnusableSecret:
                yield listener["name"]

    def _write(self, resource: str, obj: Object, found: Object) -> None:
        if obj.get("status") != found:
            self._store.replace(resource, {**obj, "status": found}, subresource="status")


def _is_status_only(change: Change) -> bool:
    """Say whether nothing but a status is new: generations count what rules are made of."""
    if change.type != "MODIFIED" or change.previous is None:
        return False
    return all(
        change.previous.get(field) == change.obj.get(field) for field in ("spec", "data")
    ) and _without_version(change.previous) == _without_version(change.obj)


def _without_version(obj: Object) -> Object:
    return {field: value for field, value in obj["metadata"].items() if field != "resourceVersion"}


def _name(obj: Object) -> tuple[str, str]:
    return obj["metadata"]["namespace"], obj["metadata"]["name"]


def _concerns(changed: set[tuple[str, str, str]], route: Object) -> bool:
    """Say whether a changed object is this route, or a Service that it leads to."""
    namespace, name = _name(route)
    if ("httproutes", namespace, name) in changed:
        return True
    return any(
        ("services", namespace, one["name"]) in changed
        for rule in route["spec"].get("rules") or []
        for one in rule.get("backendRefs") or []
    )
