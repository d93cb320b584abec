"""What is refused before an object is looked at: paths, methods, media types, credentials."""

import aiohttp
import pytest

from tests.conformance.client import Api
from tests.conformance.objects import check_refusal, make_configmap, make_failure

NOT_ALLOWED = make_failure(
    405,
    "MethodNotAllowed",
    "the server does not allow this method on the requested resource",
    {},
)
NO_RESOURCE = make_failure(404, "NotFound", "the server could not find the requested resource", {})
SERVED = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
STREAMS = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
MERGE = "application/merge-patch+json"


@pytest.mark.parametrize("resource", ["pods", "configmaps"])
async def test_an_object_that_is_not_there_is_told(
    api: Api, standing_namespace: str, resource: str
) -> None:
    path = f"/api/v1/namespaces/{standing_namespace}/{resource}/none"
    details = {"name": "none", "kind": resource}
    expected = make_failure(404, "NotFound", f'{resource} "none" not found', details)
    for method, body in (("GET", None), ("DELETE", None)):
        check_refusal(await api.request(method, path, body), expected)
    patched = await api.request("PATCH", path, {}, content_type=MERGE)
    check_refusal(patched, expected)


async def test_a_missing_object_of_a_group_is_named_with_it(
    api: Api, standing_namespace: str
) -> None:
    path = f"/apis/networking.k8s.io/v1/namespaces/{standing_namespace}/ingresses/none"
    details = {"name": "none", "group": "networking.k8s.io", "kind": "ingresses"}
    message = 'ingresses.networking.k8s.io "none" not found'
    check_refusal(await api.request("GET", path), make_failure(404, "NotFound", message, details))


async def test_a_namespace_that_is_not_there_takes_nothing_and_lists_nothing(api: Api) -> None:
    path = "/api/v1/namespaces/telo-nowhere/configmaps"
    details = {"name": "telo-nowhere", "kind": "namespaces"}
    message = 'namespaces "telo-nowhere" not found'
    expected = make_failure(404, "NotFound", message, details)
    check_refusal(await api.request("POST", path, make_configmap()), expected)
    assert (await api.ask("GET", path))["items"] == []


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "/api/v1/namespaces/default/pods"),
        ("PATCH", "/api/v1/namespaces/default/pods"),
        ("POST", "/api/v1/namespaces/default/pods/one"),
        ("POST", "/api/v1/pods"),
        ("DELETE", "/api/v1/namespaces"),
        ("OPTIONS", "/api/v1/pods"),
        ("GET", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
    ],
)
async def test_a_method_that_a_path_does_not_have_is_told(api: Api, method: str, path: str) -> None:
    body = None if method in ("DELETE", "OPTIONS", "GET") else {}
    content_type = MERGE if method == "PATCH" else "application/json"
    answer = await api.request(method, path, body, content_type=content_type)
    check_refusal(answer, NOT_ALLOWED)


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/nonsense",
        "/api/v1/namespaces/default/nonsense",
        "/api/v1/namespaces/default/nonsense/one",
        "/api/v1/namespaces/default/pods/one/nonsense",
        "/api/v1/namespaces/default/configmaps/one/status",
        "/api/v7/pods",
        "/apis/networking.k8s.io/v7/ingresses",
    ],
)
async def test_a_resource_that_is_not_served_is_told(api: Api, path: str) -> None:
    check_refusal(await api.request("GET", path), NO_RESOURCE)


@pytest.mark.parametrize("path", ["/nonsense", "/apis/nonsense/v1", "/apis/nonsense/v1/pods"])
async def test_a_path_outside_of_every_group_is_plainly_not_found(api: Api, path: str) -> None:
    answer = await api.request("GET", path)
    assert (answer.status, answer.text) == (404, b"404 page not found\n")
    assert answer.headers["Content-Type"].startswith("text/plain")


@pytest.mark.parametrize("content_type", ["text/plain", "application/xml"])
async def test_a_body_of_another_media_type_is_told(api: Api, content_type: str) -> None:
    path = "/api/v1/namespaces/default/configmaps"
    answer = await api.request("POST", path, b"{}", content_type=content_type)
    message = (
        f"the body of the request was in an unknown format - accepted media types include: {SERVED}"
    )
    check_refusal(answer, make_failure(415, "UnsupportedMediaType", message))


@pytest.mark.parametrize("content_type", ["application/json", "text/plain"])
async def test_a_patch_of_another_media_type_is_told(
    api: Api, standing_namespace: str, content_type: str
) -> None:
    path = f"/api/v1/namespaces/{standing_namespace}/serviceaccounts/default"
    answer = await api.request("PATCH", path, {}, content_type=content_type)
    expected = make_failure(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
    # The real one lists what it takes in the field that others do not have.
    assert answer.body == expected
    assert answer.status == 415


@pytest.mark.parametrize(
    ("path", "query", "streams"),
    [
        ("/api/v1/namespaces/default", {}, ""),
        ("/api/v1/configmaps", {}, f", {STREAMS}"),
        ("/api/v1/configmaps", {"watch": "1", "timeoutSeconds": "1"}, f", {STREAMS}"),
    ],
)
async def test_a_form_that_is_not_served_is_told(
    api: Api, path: str, query: dict[str, str], streams: str
) -> None:
    message = f"406: Not Acceptable\n\nAvailable representations: {SERVED}{streams}"
    expected = make_failure(406, "NotAcceptable", message, {})
    for accepted in ("application/xml", "text/html"):
        answer = await api.request("GET", path, query=query, headers={"Accept": accepted})
        # The real one writes this with line breaks where the form is none that it knows.
        check_refusal(answer, expected, is_exact=False)


async def test_a_table_of_another_version_is_not_acceptable(api: Api) -> None:
    headers = {"Accept": "application/json;as=Table;v=v2;g=meta.k8s.io"}
    answer = await api.request("GET", "/api/v1/namespaces/default", headers=headers)
    message = f"only the following media types are accepted: {SERVED}"
    check_refusal(answer, make_failure(406, "NotAcceptable", message), is_exact=False)


@pytest.mark.parametrize("accepted", ["*/*", "text/html, application/json", ""])
async def test_json_is_what_comes_where_it_is_accepted(api: Api, accepted: str) -> None:
    answer = await api.request("GET", "/api/v1/namespaces/default", headers={"Accept": accepted})
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/json")
    assert answer.body["kind"] == "Namespace"


async def test_a_token_that_nobody_issued_is_refused_everywhere(anonymous: Api) -> None:
    headers = {"Authorization": "Bearer wrong"}
    expected = make_failure(401, "Unauthorized", "Unauthorized")
    for path in ("/api/v1/pods", "/version", "/nonsense", "/livez"):
        check_refusal(await anonymous.request("GET", path, headers=headers), expected)


async def test_anybody_may_ask_whether_the_server_lives(anonymous: Api) -> None:
    for path in ("/livez", "/readyz", "/healthz"):
        answer = await anonymous.request("GET", path)
        assert (answer.status, answer.text) == (200, b"ok")


async def test_the_certificate_of_the_server_is_its_authoritys(api: Api) -> None:
    async with aiohttp.ClientSession() as stranger:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await stranger.get(f"{api.access.url}/version")


async def test_a_body_that_is_too_large_is_told(api: Api, standing_namespace: str) -> None:
    body = make_configmap(data={"x": "y" * 4 * 1024 * 1024})
    answer = await api.request("POST", f"/api/v1/namespaces/{standing_namespace}/configmaps", body)
    message = "Request entity too large: limit is 3145728"
    check_refusal(answer, make_failure(413, "RequestEntityTooLarge", message))


async def test_the_version_is_that_of_kubernetes(api: Api) -> None:
    found = await api.ask("GET", "/version")
    assert (found["major"], found["minor"], found["gitVersion"]) == ("1", "34", "v1.34.4")
    assert (found["emulationMajor"], found["emulationMinor"]) == ("1", "34")
