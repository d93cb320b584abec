"""Where the local ingress sends requests as objects come and go, its certificates and statuses."""

import asyncio
import logging
import ssl
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from telorunner.localcluster.networkdefaults import LOCAL_CLASS
from telorunner.localcluster.resources import GATEWAY_GROUP
from tests.cluster.ingress_harness import (
    HOST,
    NAMESPACE,
    WAIT_SECONDS,
    App,
    Bench,
    Object,
    Talk,
    ask_for,
    make_ingress,
    make_secret,
    make_service,
    make_slice,
    open_app,
    open_bench,
    say,
)
from tests.engine.gateways import Certificates

OTHER_HOST = "127.0.0.2"


async def tell_port(app: App, talk: Talk) -> None:
    await talk.send(say("200 OK", body=str(app.port).encode()))


async def tell_head(app: App, talk: Talk) -> None:
    await talk.send(say("200 OK", body=app.heads[-1]))


def make_pod(name: str, address: str = HOST, **more: Any) -> Object:
    """Return a pod that is ready, unless `more` says otherwise of its status."""
    containers = [{"name": "c", "ports": [{"name": "web", "containerPort": 8080}]}]
    ready = {"type": "Ready", "status": "True"}
    return {
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": name}},
        "spec": {"containers": containers},
        "status": {"phase": "Running", "podIP": address, "conditions": [ready], **more},
    }


def make_route(route: str, *hosts: str, service: str, **parent: str) -> Object:
    rule = {
        "matches": [{"path": {"type": "PathPrefix", "value": "/"}}],
        "backendRefs": [{"group": "", "kind": "Service", "name": service, "port": 80, "weight": 1}],
    }
    reference = {"group": GATEWAY_GROUP, "kind": "Gateway", "name": "gw", **parent}
    return {
        "metadata": {"name": route, "namespace": NAMESPACE, "generation": 1},
        "spec": {"parentRefs": [reference], "hostnames": list(hosts), "rules": [rule]},
    }


def make_gateway(*listeners: Object) -> Object:
    return {
        "metadata": {"name": "gw", "namespace": NAMESPACE, "generation": 1},
        "spec": {"gatewayClassName": LOCAL_CLASS, "listeners": list(listeners)},
    }


HTTP_LISTENER = {"name": "http", "port": 80, "protocol": "HTTP"}


async def until(bench: Bench, resource: str, name: str, condition: Any) -> Object:
    """Wait until an object's status is as a condition wants it, and return that status."""
    async with asyncio.timeout(WAIT_SECONDS):
        revision = bench.store.revision
        status = bench.store.get(resource, NAMESPACE, name).get("status") or {}
        if condition(status):
            return dict(status)
        async for _, obj in bench.store.watch(resource, NAMESPACE, revision):
            status = obj.get("status") or {}
            if obj["metadata"]["name"] == name and condition(status):
                return dict(status)
    raise AssertionError("a watch ended by itself")


def reasons(status: Object) -> dict[str, str]:
    """Return the reasons of a route's conditions under its only parent."""
    parents = status.get("parents") or [{"conditions": []}]
    return {one["type"]: one["reason"] for one in parents[0]["conditions"]}


def is_accepted(status: Object) -> bool:
    return reasons(status).get("Accepted") == "Accepted"


async def ask_port(bench: Bench, host: str) -> int:
    return int((await bench.ask(ask_for(host=host))).body)


async def test_two_pods_with_the_same_port_have_a_host_each() -> None:
    async with (
        open_bench() as bench,
        open_app(tell_port) as app,
        # The same port on another address of this machine, as pods have it.
        open_app(tell_head, OTHER_HOST, app.port),
    ):
        target = {"name": "p", "port": 8080, "targetPort": app.port, "protocol": "TCP"}
        for name, address in (("one", HOST), ("two", OTHER_HOST)):
            bench.store.create("pods", make_pod(name, address))
            service = make_service(name, selector={"app": name}, ports=[target])
            bench.store.create("services", service)
            backend = {"service": {"name": name, "port": {"name": "p"}}}
            paths = [{"path": "/", "pathType": "Prefix", "backend": backend}]
            rules = [{"host": f"{name}.test", "http": {"paths": paths}}]
            ingress = make_ingress(name, "x.test", name, rules=rules)
            bench.store.create("ingresses", ingress)
        assert await ask_port(bench, "one.test") == app.port
        answer = await bench.ask(ask_for(host="two.test"))
        assert answer.body.startswith(b"GET / HTTP/1.1\r\nHost: two.test\r\n")


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({}, 200),
        ({"conditions": [{"type": "Ready", "status": "False"}]}, 503),
        ({"conditions": []}, 503),
        ({"phase": "Failed"}, 503),
        ({"podIP": ""}, 503),
    ],
)
async def test_only_pods_that_are_ready_get_requests(change: Object, status: int) -> None:
    async with open_bench() as bench, open_app(tell_port) as app:
        pod = make_pod("one", **change)
        pod["spec"]["containers"][0]["ports"][0]["containerPort"] = app.port
        bench.store.create("pods", pod)
        ports = [{"name": "http", "port": 80, "targetPort": "web", "protocol": "TCP"}]
        service = make_service("one", selector={"app": "one"}, ports=ports)
        bench.store.create("services", service)
        bench.store.create("ingresses", make_ingress("one", "a.test", "one"))
        assert (await bench.ask(ask_for())).status == status


async def test_a_pod_that_is_being_deleted_gets_no_more_requests() -> None:
    async with open_bench() as bench, open_app(tell_port) as app:
        service = make_service("one", app.port, selector={"app": "one"})
        bench.store.create("services", service)
        bench.store.create("ingresses", make_ingress("one", "a.test", "one"))
        pod = bench.store.create("pods", make_pod("one"))
        assert (await bench.ask(ask_for())).status == 200
        metadata = {**pod["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
        bench.store.replace("pods", {**pod, "metadata": metadata})
        assert (await bench.ask(ask_for())).status == 503


async def test_endpoints_take_turns_and_those_that_are_not_ready_get_none() -> None:
    async with (
        open_bench() as bench,
        open_app(tell_port) as one,
        open_app(tell_port) as two,
        open_app(tell_port) as three,
    ):
        bench.lead("a.test", one.port, two.port)
        unready = make_slice("app", (HOST, three.port))
        unready["endpoints"][0]["conditions"] = {"ready": False}
        bench.store.create("endpointslices", unready)
        turns = Counter([await ask_port(bench, "a.test") for _ in range(10)])
    assert turns == {one.port: 5, two.port: 5}


async def test_a_route_that_is_deleted_is_gone_for_the_next_request() -> None:
    async with open_bench() as bench, open_app(tell_port) as app, bench.talk() as talk:
        for _ in range(20):
            bench.lead("a.test", app.port)
            await talk.send(ask_for())
            assert (await talk.read_answer()).status == 200
            bench.store.remove("ingresses", NAMESPACE, "app")
            await talk.send(ask_for())
            assert (await talk.read_answer()).status == 404
            bench.store.remove("services", NAMESPACE, "app")
            bench.store.remove("endpointslices", NAMESPACE, f"app-{app.port}")


async def test_an_ingress_is_told_where_it_is_and_one_of_another_class_is_not() -> None:
    async with open_bench() as bench:
        bench.store.create("ingresses", make_ingress("other", "b.test", "x", ingressClassName="y"))
        bench.store.create("ingresses", make_ingress("ours", "a.test", "x"))
        status = await until(bench, "ingresses", "ours", bool)
        assert status == {"loadBalancer": {"ingress": [{"ip": "127.0.0.1"}]}}
        assert "status" not in bench.store.get("ingresses", NAMESPACE, "other")
        assert (await bench.ask(ask_for(host="b.test"))).status == 404


async def test_a_route_of_a_gateway_is_accepted_and_routed() -> None:
    async with open_bench() as bench, open_app(tell_port) as app:
        bench.store.create("httproutes", make_route("r", "a.test", service="app"))
        bench.store.create("gateways", make_gateway(HTTP_LISTENER))
        status = await until(bench, "httproutes", "r", lambda found: len(reasons(found)) == 2)
        assert reasons(status) == {"Accepted": "Accepted", "ResolvedRefs": "BackendNotFound"}
        assert (await bench.ask(ask_for())).status == 503
        bench.store.create("services", make_service("app"))
        bench.store.create("endpointslices", make_slice("app", (HOST, app.port)))
        await until(
            bench, "httproutes", "r", lambda found: reasons(found)["ResolvedRefs"] == "ResolvedRefs"
        )
        assert await ask_port(bench, "a.test") == app.port
        gateway = await until(
            bench, "gateways", "gw", lambda found: found.get("listeners", [{}])[0].get("name")
        )
        assert gateway["addresses"] == [{"type": "IPAddress", "value": "127.0.0.1"}]
        assert gateway["listeners"][0]["attachedRoutes"] == 1
        bench.store.remove("httproutes", NAMESPACE, "r")
        assert (await bench.ask(ask_for())).status == 404
        await until(bench, "gateways", "gw", lambda one: not one["listeners"][0]["attachedRoutes"])


async def test_a_route_is_refused_by_a_listener_for_other_hosts() -> None:
    async with open_bench() as bench:
        bench.store.create("gateways", make_gateway({**HTTP_LISTENER, "hostname": "*.b.test"}))
        bench.store.create("httproutes", make_route("r", "a.test", service="app"))
        bench.store.create("httproutes", make_route("x", "a.test", service="app", name="nobody's"))
        status = await until(bench, "httproutes", "r", reasons)
        assert reasons(status)["Accepted"] == "NoMatchingListenerHostname"
        assert "status" not in bench.store.get("httproutes", NAMESPACE, "x")
        assert (await bench.ask(ask_for())).status == 404


async def test_whatever_a_route_depends_on_counts_for_the_next_request() -> None:
    # What was read off a route once is kept, and must not be kept too long.
    namespaces = {"from": "Selector", "selector": {"matchLabels": {"team": "a"}}}
    picky = {**HTTP_LISTENER, "allowedRoutes": {"namespaces": namespaces}}
    async with open_bench() as bench, open_app(tell_port) as app:
        bench.store.create("services", make_service("app"))
        bench.store.create("endpointslices", make_slice("app", (HOST, app.port)))
        bench.store.create("gateways", make_gateway(picky))
        bench.store.create("httproutes", make_route("r", "a.test", service="app"))
        await until(bench, "httproutes", "r", is_accepted)
        assert await ask_port(bench, "a.test") == app.port

        labels = {"metadata": {"name": NAMESPACE, "labels": {"team": "b"}}}
        bench.store.replace("namespaces", labels)
        assert (await bench.ask(ask_for())).status == 404
        refused = await until(bench, "httproutes", "r", lambda found: not is_accepted(found))
        assert reasons(refused)["Accepted"] == "NotAllowedByListeners"

        bench.store.replace("gateways", make_gateway(HTTP_LISTENER))
        assert await ask_port(bench, "a.test") == app.port
        await until(bench, "httproutes", "r", is_accepted)

        bench.store.replace("httproutes", make_route("r", "b.test", service="app"))
        assert (await bench.ask(ask_for())).status == 404
        assert await ask_port(bench, "b.test") == app.port


async def test_the_certificate_is_the_one_of_the_name_that_is_asked_for(tmp_path: Path) -> None:
    certificates = Certificates.make(tmp_path)
    async with open_bench() as bench, open_app(tell_head) as app:
        bench.store.create("services", make_service("app"))
        bench.store.create("endpointslices", make_slice("app", (HOST, app.port)))
        for name in ("a.test", "b.test"):
            bench.store.create("secrets", certified(certificates, name, name))
            tls = [{"hosts": [name], "secretName": name}]
            bench.store.create("ingresses", make_ingress(name, name, "app", tls=tls))
        bench.store.create("ingresses", make_ingress("plain", "c.test", "app"))
        for name in ("a.test", "b.test"):
            body = (await ask_securely(bench, certificates, name)).decode()
            assert "X-Forwarded-Proto: https\r\n" in body
            assert f"Host: {name}\r\n" in body
        for name in ("c.test", "other.test"):
            with pytest.raises(ssl.SSLCertVerificationError):
                await ask_securely(bench, certificates, name)


async def test_a_certificate_that_is_changed_counts_for_the_next_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certificates, others = Certificates.make(tmp_path / "a"), Certificates.make(tmp_path / "b")
    async with open_bench() as bench, open_app(tell_head) as app:
        bench.lead("x.test", app.port)
        tls = [{"hosts": ["a.test"], "secretName": "s"}]
        bench.store.create("ingresses", make_ingress("a", "a.test", "app", tls=tls))
        with pytest.raises(ssl.SSLCertVerificationError):
            await ask_securely(bench, certificates, "a.test")
        bench.store.create("secrets", certified(certificates, "s", "a.test"))
        await ask_securely(bench, certificates, "a.test")
        bench.store.replace("secrets", certified(others, "s", "a.test"))
        with pytest.raises(ssl.SSLCertVerificationError):
            await ask_securely(bench, certificates, "a.test")
        await ask_securely(bench, others, "a.test")
        broken = make_secret("s", b"no certificate", b"a very secret key")
        bench.store.replace("secrets", broken)
        with caplog.at_level(logging.WARNING), pytest.raises(ssl.SSLCertVerificationError):
            await ask_securely(bench, others, "a.test")
    told = [record.getMessage() for record in caplog.records if "Secret" in record.getMessage()]
    assert told == ["The Secret apps/s: tls.crt and tls.key are no certificate and its key."]


async def test_a_listener_with_tls_takes_its_certificate_and_only_its_own_routes(
    tmp_path: Path,
) -> None:
    certificates = Certificates.make(tmp_path)
    secure = {
        "name": "tls",
        "port": 443,
        "protocol": "HTTPS",
        "hostname": "*.apps.test",
        "tls": {"mode": "Terminate", "certificateRefs": [{"name": "s"}]},
    }
    async with open_bench() as bench, open_app(tell_head) as app:
        bench.store.create("gateways", make_gateway(HTTP_LISTENER, secure))
        bench.store.create("services", make_service("app"))
        bench.store.create("endpointslices", make_slice("app", (HOST, app.port)))
        route = make_route("r", "a.apps.test", service="app", sectionName="tls")
        bench.store.create("httproutes", route)

        def reason_of(status: Object) -> str:
            listeners = status.get("listeners") or [{}, {"conditions": []}]
            found = {one["type"]: one["reason"] for one in listeners[1]["conditions"]}
            return found.get("ResolvedRefs", "")

        await until(
            bench, "gateways", "gw", lambda found: reason_of(found) == "InvalidCertificateRef"
        )
        bench.store.create("secrets", certified(certificates, "s", "*.apps.test"))
        await until(bench, "gateways", "gw", lambda found: reason_of(found) == "ResolvedRefs")
        await ask_securely(bench, certificates, "a.apps.test")
        # It was not put on the other listener.
        assert (await bench.ask(ask_for(host="a.apps.test"))).status == 404


def certified(certificates: Certificates, secret: str, host: str) -> Object:
    """Return a Secret with a certificate for a host."""
    return make_secret(secret, *certificates.pair(host))


async def ask_securely(bench: Bench, certificates: Certificates, host: str) -> bytes:
    """Make a request over TLS, with the name checked, and return the body of the answer."""
    streams = await asyncio.open_connection(
        *bench.https, ssl=certificates.client(), server_hostname=host
    )
    talk = Talk(streams)
    try:
        await talk.send(ask_for(host=host))
        answer = await talk.read_answer()
    finally:
        talk.leave()
    assert answer.status == 200
    return answer.body
