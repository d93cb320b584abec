"""Services, routes and their classes: what is given, what a schema says, who is told of changes."""

from typing import Any

import orjson
import pytest

from telorunner.localcluster import admission, names, networkdefaults, strategies, structural
from telorunner.localcluster.networkcolumns import endpoint_slice_cells, gateway_cells
from telorunner.localcluster.patching import apply_patch
from telorunner.localcluster.resources import (
    KINDS_BY_PLURAL,
    ResourceKind,
    encoded_in_version,
    in_version,
    served_kinds,
)
from telorunner.localcluster.serviceallocation import RANGE
from telorunner.localcluster.store import Store, StoreError
from telorunner.localcluster.subscriptions import ObjectKey, subscribed

NAMESPACE = "apps"
SERVICES = KINDS_BY_PLURAL["services"]
STRATEGIC = "application/strategic-merge-patch+json"


def make_object(name: str = "web", **fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": NAMESPACE}, **fields}


def create(store: Store, resource: str, obj: dict[str, Any]) -> dict[str, Any]:
    kind = KINDS_BY_PLURAL[resource]
    new = strategies.prepare_create(store, kind, obj)
    strategies.check_new(kind, new)
    admission.validate(store, kind, NAMESPACE, new)
    return store.create(resource, new)


def make_store() -> Store:
    store = Store()
    store.create("namespaces", {"metadata": {"name": NAMESPACE}})
    return store


def make_service(name: str = "web", **spec: Any) -> dict[str, Any]:
    return make_object(name, spec={"ports": [{"port": 80}], **spec})


def replaced(store: Store, old: dict[str, Any], obj: dict[str, Any]) -> dict[str, Any]:
    new = strategies.prepare_update(store, SERVICES, old, obj)
    strategies.check_update(SERVICES, old, new)
    return store.replace("services", new)


def test_every_address_is_given_once_and_leaves_the_first_ones_free() -> None:
    store = make_store()
    found = [
        create(store, "services", make_service(f"s{number}"))["spec"]["clusterIP"]
        for number in range(100)
    ]
    assert len(set(found)) == len(found)
    assert all(names.parse_address(address) in list(RANGE)[257:-1] for address in found)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ("10.96.0.0", "the provided network does not match the current range"),
        ("10.97.0.1", "the provided network does not match the current range"),
        ("2001:db8::1", "IPv6 is not configured on this cluster"),
        ("10.96.0", "must be a valid IP address"),
    ],
)
def test_an_address_that_cannot_be_had_is_refused(asked: str, why: str) -> None:
    with pytest.raises(StoreError, match=why):
        create(make_store(), "services", make_service(clusterIP=asked))


def test_a_service_that_becomes_a_name_gives_its_address_back() -> None:
    store = make_store()
    old = create(store, "services", make_service())
    spec = {**old["spec"], "type": "ExternalName", "externalName": "a.b"}
    away = replaced(store, old, {**old, "spec": spec})
    assert not {"clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"} & set(away["spec"])
    create(store, "services", make_service("two", clusterIP=old["spec"]["clusterIP"]))
    back = replaced(store, away, make_service())
    assert back["spec"]["clusterIP"] != old["spec"]["clusterIP"]


def test_node_ports_stay_with_their_ports() -> None:
    store = make_store()
    ports = [{"name": "a", "port": 80}, {"name": "b", "port": 81}]
    old = create(store, "services", make_service(type="NodePort", ports=ports))
    had = {port["port"]: port["nodePort"] for port in old["spec"]["ports"]}
    ports = [{"name": "c", "port": 82}, {"name": "b", "port": 81}]
    new = replaced(store, old, make_service(type="NodePort", ports=ports))
    has = {port["port"]: port["nodePort"] for port in new["spec"]["ports"]}
    assert has[81] == had[81]
    assert has[82] not in had.values()


def test_a_quota_counts_what_a_service_becomes() -> None:
    store = make_store()
    quota = make_object("q", spec={"hard": {"services": "1", "services.nodeports": "0"}})
    store.create("resourcequotas", quota)
    old = create(store, "services", make_service())
    with pytest.raises(StoreError, match="exceeded quota: q, requested: services=1, used: serv"):
        create(store, "services", make_service("two"))
    admission.validate_update(store, SERVICES, old, old)
    ports = [{"port": 80, "nodePort": 30080}]
    new = {**old, "spec": {**old["spec"], "type": "NodePort", "ports": ports}}
    with pytest.raises(
        StoreError, match=r"requested: services\.nodeports=1, used: services\.nodeports"
    ):
        admission.validate_update(store, SERVICES, old, new)


def test_the_newest_default_class_is_taken() -> None:
    store = make_store()
    ingress = make_object(spec={"rules": [{"host": "a"}]})
    assert networkdefaults.with_default_class(store, ingress) == ingress
    networkdefaults.add_local_classes(store, has_gateways=True)
    found = networkdefaults.with_default_class(store, ingress)
    assert found["spec"]["ingressClassName"] == "telorunner-local"
    assert store.get("gatewayclasses", "", "telorunner-local")["spec"] == {
        "controllerName": networkdefaults.LOCAL_CONTROLLER
    }
    named = make_object(spec={"ingressClassName": "other"})
    assert networkdefaults.with_default_class(store, named) == named


def beta(plural: str) -> ResourceKind:
    return next(kind for kind in served_kinds(["v1beta1"]) if kind.plural == plural)


def test_an_object_is_shown_in_the_version_that_was_asked_for() -> None:
    store = make_store()
    made = create(store, "httproutes", make_object(spec={"hostnames": ["a"]}))
    assert made["apiVersion"] == "gateway.networking.k8s.io/v1"
    kind = beta("httproutes")
    shown = {**made, "apiVersion": "gateway.networking.k8s.io/v1beta1"}
    assert in_version(kind, made) == shown
    encoded = store.entry("httproutes", NAMESPACE, "web").encoded
    assert orjson.loads(encoded_in_version(kind, encoded)) == shown
    assert encoded_in_version(KINDS_BY_PLURAL["httproutes"], encoded) is encoded


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "list": {
            "type": "array",
            "maxItems": 2,
            "keys": ("name",),
            "items": {
                "type": "object",
                "properties": {
                    "name": {"type": "string", "minLength": 1},
                    "count": {"type": "integer", "default": 3, "enum": (3, 4)},
                },
            },
        },
        "on": {"type": "boolean", "default": True},
    },
}


def test_a_schema_fills_in_and_drops() -> None:
    given = {"list": [{"name": "a", "x": 1}, {"name": "b", "count": 4}], "y": {"z": 1}}
    kept, unknown = structural.pruned(SCHEMA, given)
    assert unknown == ["list[0].x", "y"]
    assert structural.defaulted(SCHEMA, kept) == {
        "list": [{"name": "a", "count": 3}, {"name": "b", "count": 4}],
        "on": True,
    }


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"on": 1}, 'Invalid value: "integer": on in body must be of type boolean: "integer"'),
        ({"list": [{"count": True}]}, "list[0].count in body must be of type integer"),
        ({"list": [{"count": 5}]}, 'Unsupported value: 5: supported values: "3", "4"'),
        ({"list": [{"name": ""}]}, "list[0].name in body should be at least 1 chars long"),
        ({"list": [{"name": "a"}, {"name": "a"}]}, 'Duplicate value: {"name":"a"}'),
        ({"list": [{}, {}, {}]}, "Too many: 3: must have at most 2 items"),
    ],
)
def test_a_schema_says_what_is_wrong(value: dict[str, Any], message: str) -> None:
    assert message in structural.faults(SCHEMA, value)[0]["message"]


def patched(old: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    return apply_patch(STRATEGIC, old, orjson.dumps(change))[0]


def test_a_strategic_patch_follows_what_kubectl_apply_writes() -> None:
    old = {
        "kind": "Service",
        "spec": {"ports": [{"port": 80}, {"port": 81}], "selector": {"a": "b"}},
    }
    change = {
        "spec": {
            "$setElementOrder/ports": [{"port": 82}, {"port": 81}],
            "ports": [{"port": 82}, {"$patch": "delete", "port": 80}],
            "selector": {"$patch": "replace", "c": "d"},
        }
    }
    assert patched(old, change)["spec"] == {
        "ports": [{"port": 82}, {"port": 81}],
        "selector": {"c": "d"},
    }
    kept = patched(old, {"spec": {"$retainKeys": ["ports"]}})
    assert kept["spec"] == {"ports": [{"port": 80}, {"port": 81}]}
    with_finalizers = {"kind": "Service", "metadata": {"finalizers": ["a/b", "c/d"]}}
    change = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a/b"]}}
    assert patched(with_finalizers, change)["metadata"] == {"finalizers": ["c/d"]}


@pytest.mark.parametrize(
    ("text", "count"), [("http", 0), ("8080", 1), ("a--b", 1), ("-a", 1), ("A", 2), ("a" * 16, 1)]
)
def test_the_name_of_a_port_is_checked(text: str, count: int) -> None:
    assert len(names.port_name_problems(text)) == count


def test_cells_of_what_nobody_has_looked_at_are_empty() -> None:
    metadata = {"name": "web", "creationTimestamp": None}
    found = gateway_cells({"metadata": metadata, "spec": {"gatewayClassName": "a"}})
    assert found == ["web", "a", None, None, "<unknown>"]
    shown = endpoint_slice_cells({"metadata": metadata, "addressType": "IPv4", "ports": [{}]})
    assert shown == ["web", "IPv4", "*", "<unset>", "<unknown>"]


async def test_a_subscriber_is_told_what_is_there_and_then_what_changes() -> None:
    store = make_store()
    create(store, "services", make_service())
    with subscribed(store, ["services", "ingresses"]) as news:
        web = ObjectKey("services", NAMESPACE, "web")
        assert await news.next() == (web,)
        store.create("configmaps", make_object())
        create(store, "services", make_service("two"))
        store.remove("services", NAMESPACE, "two")
        # Two changes of one object that nobody has taken yet are one.
        assert await news.next() == (ObjectKey("services", NAMESPACE, "two"),)
    assert store.observers == []
