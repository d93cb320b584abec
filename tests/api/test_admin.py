"""The admin's list and page of sessions: for looking only, and without what is secret."""

from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib import admin
from django.test import Client

from sessions import admission, store
from sessions.admission import Admitted
from sessions.models import Bundle, Engine, Limits, Session
from tests.builders import make_new_session

pytestmark = pytest.mark.django_db

LIST_URL = "/admin/runner_sessions/session/"


def admit(**overrides: Any) -> Admitted:
    return admission.admit(make_new_session(**overrides), max_sessions=100)


def test_engine_rows_are_hidden() -> None:
    for model in (Engine, Limits, Bundle):
        assert not admin.site.is_registered(model)


def test_sessions_are_listed_with_how_they_ended(admin_client: Any) -> None:
    session_id = admit().session_id
    Session.objects.filter(id=session_id).update(
        status="failed", ended_at=datetime.now(UTC), message="<script>alert(1)</script>" * 20
    )
    page = admin_client.get(LIST_URL).content.decode()
    assert session_id in page
    assert "&lt;script&gt;" in page
    assert "<script>alert(1)" not in page
    assert page.count("alert(1)") < 10


def test_a_session_can_only_be_looked_at(admin_client: Any) -> None:
    session_id = admit(files=[{"path": "<b>.yaml", "size": 3}]).session_id
    page = admin_client.get(f"{LIST_URL}{session_id}/change/").content.decode()
    assert "&lt;b&gt;.yaml (3 bytes)" in page
    assert 'type="submit" value="Save"' not in page
    assert admin_client.get(f"{LIST_URL}add/").status_code >= 400
    assert admin_client.get(f"{LIST_URL}{session_id}/delete/").status_code >= 400
    changed = admin_client.post(f"{LIST_URL}{session_id}/change/", {"status": "stopped"})
    assert changed.status_code >= 400
    assert Session.objects.get(id=session_id).status == "starting"


def test_staff_without_the_right_are_refused_by_a_page(django_user_model: Any) -> None:
    visitor = Client()
    visitor.force_login(django_user_model.objects.create_user("ada", is_staff=True))
    refused = visitor.get(LIST_URL)
    assert refused.status_code == 403
    assert refused["content-type"].startswith("text/html")
    unknown = visitor.get("/admin/nothing/")
    assert unknown.status_code == 404
    assert unknown["content-type"].startswith("text/html")


def test_values_of_env_show_nowhere(admin_client: Any) -> None:
    sealed = store.seal_env({"SECRET_NAME": "s3cret"})
    session_id = admit(env_sealed=sealed).session_id
    for url in (LIST_URL, f"{LIST_URL}{session_id}/change/", f"{LIST_URL}{session_id}/stop/"):
        page = admin_client.get(url).content.decode()
        assert "s3cret" not in page
        assert sealed.decode() not in page
        assert "env_sealed" not in page


def test_sessions_are_found_by_id(admin_client: Any) -> None:
    wanted, other = admit().session_id, admit().session_id
    page = admin_client.get(LIST_URL, {"q": wanted}).content.decode()
    assert wanted in page
    assert f"/{other}/change/" not in page


def test_a_dropped_bundle_is_said_to_be_dropped(admin_client: Any) -> None:
    session_id = admit().session_id
    Bundle.objects.all().delete()
    page = admin_client.get(f"{LIST_URL}{session_id}/change/").content.decode()
    assert "dropped" in page


def test_pages_run_and_load_nothing_that_is_not_the_runners(admin_client: Any) -> None:
    for client, url in (
        (Client(), "/admin/login/"),
        (admin_client, "/admin/"),
        (admin_client, LIST_URL),
        (admin_client, "/admin/nothing/"),
    ):
        answer = client.get(url)
        policy = answer["content-security-policy"]
        assert "default-src 'none'; script-src 'self';" in policy
        assert "frame-ancestors 'none'" in policy
        # Which would do nothing then.
        assert "<script>" not in answer.content.decode()
        assert " onclick=" not in answer.content.decode()
    assert not Client().get("/v1/openapi.json").has_header("content-security-policy")
