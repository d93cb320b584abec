"""What the console answers where it refuses: a page in its own look, with a way back."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from tests.serving import MANAGE, START_SECONDS

pytestmark = pytest.mark.django_db

BACK = '<a href="/admin/">To the first page</a>'


def page_of(answer: Any, status: int) -> str:
    assert answer.status_code == status
    page: str = answer.content.decode()
    assert "telorunner/admin.css" in page
    assert BACK in page
    return page


def test_an_address_without_a_page_leads_back(admin_client: Client) -> None:
    page = page_of(admin_client.get("/admin/nothing/"), 404)
    assert "There is nothing at this address, or no more." in page
    assert "nothing/" not in page


def test_who_may_not_see_a_page_is_told_who_gives_rights(django_user_model: Any) -> None:
    visitor = Client()
    visitor.force_login(django_user_model.objects.create_user("ada", is_staff=True))
    page = page_of(visitor.get("/admin/catalog/app/"), 403)
    assert "such as the group <em>operators</em>" in page


def test_a_form_that_came_from_elsewhere_is_told_which_setting_decides(
    django_user_model: Any,
) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(django_user_model.objects.create_superuser("root"))
    page = page_of(strict.post("/admin/catalog/app/add/", {"name": "one"}), 403)
    assert "DJANGO_CSRF_TRUSTED_ORIGINS" in page


def test_an_account_before_the_first_start_is_told_what_is_missing(tmp_path: Path) -> None:
    variables = {
        "RUNNER_DATA_DIR": str(tmp_path / "new"),
        "DJANGO_SUPERUSER_USERNAME": "root",
        "DJANGO_SUPERUSER_PASSWORD": "a-long-password",
    }
    done = subprocess.run(
        [sys.executable, str(MANAGE), "createsuperuser", "--noinput", "--email", ""],
        env={"PATH": os.environ["PATH"], **variables},
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "telorunner: The database has no tables yet: start the runner once" in done.stderr
    assert "Traceback" not in done.stderr
