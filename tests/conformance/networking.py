"""The smallest objects of the network that both clusters take, and where they are in the API."""

from typing import Any

from tests.conformance.client import Api, Object

GATEWAY = "gateway.networking.k8s.io"
NOT_DNS1035 = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an"
    " alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123',"
    " regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
NOT_A_PORT = "must be between 1 and 65535, inclusive"


def services(namespace: str) -> str:
    """Return the path of a namespace's Services."""
    return f"/api/v1/namespaces/{namespace}/services"


def ingresses(namespace: str) -> str:
    """Return the path of a namespace's Ingresses."""
    return f"/apis/networking.k8s.io/v1/namespaces/{namespace}/ingresses"


def endpoint_slices(namespace: str) -> str:
    """Return the path of a namespace's EndpointSlices."""
    return f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"


def gateway_path(version: str, namespace: str, plural: str) -> str:
    """Return the path of a namespace's objects of one kind of the Gateway API."""
    return f"/apis/{GATEWAY}/{version}/namespaces/{namespace}/{plural}"


def make_service(name: str = "web", *ports: Object, **spec: Any) -> Object:
    """Return a Service of one port that selects nothing."""
    found = list(ports) or [{"name": "p80", "port": 80}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"app": "nobody"}, "ports": found, **spec},
    }


def make_backend(port: Object | None = None, name: str = "web") -> Object:
    """Return the backend of an Ingress."""
    return {"service": {"name": name, "port": {"number": 80} if port is None else port}}


def make_ingress(*paths: Object, name: str = "web", host: str = "a.example", **spec: Any) -> Object:
    """Return an Ingress with one rule."""
    found = list(paths) or [{"path": "/", "pathType": "Prefix", "backend": make_backend()}]
    rules = [{"host": host, "http": {"paths": found}}]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"name": name},
        "spec": {"ingressClassName": "nobody", "rules": rules, **spec},
    }


def make_slice(name: str = "web-1", **fields: Any) -> Object:
    """Return an EndpointSlice of one endpoint, with an address that no pod has."""
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["192.0.2.1"]}],
        "ports": [{"name": "p80", "port": 8080}],
        **fields,
    }


def make_route(name: str = "web", version: str = "v1", **spec: Any) -> Object:
    """Return an HTTPRoute of a Gateway that is not there."""
    return {
        "apiVersion": f"{GATEWAY}/{version}",
        "kind": "HTTPRoute",
        "metadata": {"name": name},
        "spec": {
            "parentRefs": [{"name": "nobody"}],
            "hostnames": ["a.example"],
            "rules": [{"backendRefs": [{"name": "web", "port": 80}]}],
            **spec,
        },
    }


async def make_owner(api: Api, namespace: str, name: str = "owner") -> Object:
    """Create a ConfigMap and return the reference by which it owns something."""
    body = {"metadata": {"name": name}}
    made = await api.ask("POST", f"/api/v1/namespaces/{namespace}/configmaps", body)
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": made["metadata"]["uid"]}
