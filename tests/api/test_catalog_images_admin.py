"""The admin's lists of base images and tags: what they show, allow and refuse."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from threading import Barrier
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission
from django.db import connections
from django.db.models.signals import post_delete, pre_save
from django.test import Client
from django.utils import timezone

from catalog import actions
from catalog.models import BaseImage, BaseImageTag, Revision, TagRefresh
from catalog.offer import offered_images
from telorunner.conf import Settings
from tests.builders import make_settings
from tests.managed import managed_meanwhile, told

pytestmark = pytest.mark.django_db

IMAGES_URL = "/admin/catalog/baseimage/"
TAGS_URL = "/admin/catalog/baseimagetag/"
NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
BUTTON = "Refresh now"
ROUNDS = 5


@pytest.fixture(autouse=True)
def config(settings: Any, db: None) -> Settings:
    """The settings that the pages go by, and the row that a boot makes of them."""
    BaseImage.objects.create(reference="telorun/node:1.0.0-slim", is_from_environment=True)
    return switch(settings)


def switch(settings: Any, **overrides: Any) -> Settings:
    config = make_settings(image="telorun/node:1.0.0-slim", **overrides)
    settings.RUNNER = config
    return config


def add_tags(*names: str) -> list[int]:
    """Make tags, the first one the newest; return their ids."""
    return [
        BaseImageTag.objects.create(
            repository="telorun/node",
            name=name,
            position=place,
            updated_at=NOON - timedelta(minutes=place),
        ).pk
        for place, name in enumerate(names)
    ]


def page(client: Client, url: str, query: dict[str, Any] | None = None) -> str:
    answer = client.get(url, query or {})
    assert answer.status_code == 200
    return answer.content.decode()


def act(client: Client, url: str, action: str, ids: list[int]) -> str:
    """Send an action on selected rows; return the page that follows."""
    body = {"action": action, "_selected_action": ids}
    answer = client.post(url, body, follow=True)
    assert answer.redirect_chain == [(url, 302)]
    return answer.content.decode()


def staff(django_user_model: Any, *permissions: str) -> Client:
    """Return the client of somebody who may do just this."""
    user = django_user_model.objects.create_user("ada", is_staff=True)
    for codename in permissions:
        user.user_permissions.add(Permission.objects.get(codename=codename))
    client = Client()
    client.force_login(user)
    return client


def revision() -> int:
    return Revision.objects.get(id=1).number


def add_image(client: Client, reference: str, **values: Any) -> Any:
    body = {"reference": reference, "position": 0, "enabled": "on", **values}
    return client.post(f"{IMAGES_URL}add/", body)


def test_an_operators_own_image_is_added_and_offered(admin_client: Any, config: Settings) -> None:
    assert add_image(admin_client, " registry.example/team/telo:1.2 ").status_code == 302
    row = BaseImage.objects.get(is_from_environment=False)
    assert row.reference == "registry.example/team/telo:1.2"
    assert offered_images(config) == ["telorun/node:1.0.0-slim", row.reference]
    # NB: behind the message of what was added, which names it too.
    _, _, shown = page(admin_client, IMAGES_URL).partition('id="changelist"')
    assert shown.index(f">{config.image}</a>") < shown.index(f">{row.reference}</a>")
    assert "first: it is RUNNER_IMAGE" in shown
    assert ">offered</td>" in shown


def test_an_image_can_be_changed_and_deleted(admin_client: Any, config: Settings) -> None:
    row = BaseImage.objects.create(reference="own.example/a:1")
    url = f"{IMAGES_URL}{row.pk}/change/"
    # Its own spelling is no double of itself.
    body = {"reference": "own.example/a:1", "position": 3}
    assert admin_client.post(url, body).status_code == 302
    row.refresh_from_db()
    assert (row.position, row.enabled) == (3, False)
    assert "no: not enabled" in page(admin_client, IMAGES_URL)
    assert offered_images(config) == [config.image]
    assert admin_client.post(f"{IMAGES_URL}{row.pk}/delete/", {"post": "yes"}).status_code == 302
    assert not BaseImage.objects.filter(pk=row.pk).exists()


@pytest.mark.parametrize(
    "reference", ["registry/UPPER:1", "a b", "a:b:c", "https://own.example/a", "a@sha256:1", ""]
)
def test_what_is_no_reference_is_refused_in_words(admin_client: Any, reference: str) -> None:
    answer = add_image(admin_client, reference)
    assert answer.status_code == 200
    shown = answer.content.decode()
    if reference:
        assert "This must be an image reference such as registry.example/team/telo:1.2" in shown
    assert BaseImage.objects.count() == 1


@pytest.mark.parametrize(
    "double",
    ["own", "own:latest", "library/own", "docker.io/own", "docker.io/library/own:latest"],
)
def test_the_same_image_in_another_spelling_is_refused(admin_client: Any, double: str) -> None:
    BaseImage.objects.create(reference="own", enabled=False)
    shown = add_image(admin_client, double).content.decode()
    assert "The list has this image already, as own." in shown
    assert BaseImage.objects.count() == 2


def test_the_default_image_is_refused_as_an_entry(admin_client: Any) -> None:
    shown = add_image(admin_client, "docker.io/telorun/node:1.0.0-slim").content.decode()
    assert "This is the image of RUNNER_IMAGE, telorun/node:1.0.0-slim" in shown
    assert BaseImage.objects.count() == 1


def test_an_entry_cannot_become_a_double(admin_client: Any) -> None:
    BaseImage.objects.create(reference="own:1")
    other = BaseImage.objects.create(reference="own:2")
    answer = admin_client.post(
        f"{IMAGES_URL}{other.pk}/change/", {"reference": "docker.io/own:1", "position": 0}
    )
    assert "The list has this image already, as own:1." in answer.content.decode()
    other.refresh_from_db()
    assert other.reference == "own:2"


def test_the_environments_image_can_only_be_looked_at(admin_client: Any) -> None:
    row = BaseImage.objects.get()
    url = f"{IMAGES_URL}{row.pk}/change/"
    shown = page(admin_client, url)
    assert "environment: RUNNER_IMAGE" in shown
    assert 'name="reference"' not in shown
    assert 'name="_save"' not in shown
    body = {"reference": "evil.example/a:1", "position": 0}
    assert admin_client.post(url, body).status_code == 403
    assert admin_client.post(f"{IMAGES_URL}{row.pk}/delete/", {"post": "yes"}).status_code == 403
    told = act(admin_client, IMAGES_URL, "delete_selected", [row.pk])
    assert "is managed by the environment of the runner: change RUNNER_IMAGE" in told
    assert BaseImage.objects.get().reference == row.reference


def test_a_forged_mark_of_the_environment_is_ignored(admin_client: Any) -> None:
    add_image(admin_client, "own:1", is_from_environment="on")
    assert not BaseImage.objects.get(reference="own:1").is_from_environment


def test_own_images_are_deleted_together_after_a_confirmation(admin_client: Any) -> None:
    ids = [BaseImage.objects.create(reference=f"own:{number}").pk for number in (1, 2)]
    body = {"action": "delete_selected", "_selected_action": ids}
    asked = admin_client.post(IMAGES_URL, body)
    assert "Are you sure" in asked.content.decode()
    assert BaseImage.objects.count() == 3
    admin_client.post(IMAGES_URL, {**body, "post": "yes"})
    assert BaseImage.objects.get().is_from_environment


def refusal(image: BaseImage) -> tuple[str, str]:
    """Return why an entry is not saved, and which field it is about."""
    with pytest.raises(actions.ChangeRefused) as caught:
        actions.save_base_image(image)
    return caught.value.message, caught.value.field


def test_actions_refuse_what_no_form_was_asked_about() -> None:
    BaseImage.objects.create(reference="own:1")
    managed = BaseImage.objects.get(is_from_environment=True)
    is_managed = actions.IMAGE_IS_MANAGED.format(reference=managed.reference)
    managed.is_from_environment = False
    assert refusal(managed) == (is_managed, "")
    with pytest.raises(actions.ChangeRefused) as caught:
        actions.delete_base_image(managed.pk)
    assert caught.value.message == is_managed
    there = "The list has this image already, as own:1."
    assert refusal(BaseImage(reference="docker.io/own:1")) == (there, "reference")
    message, field = refusal(BaseImage(reference="a b"))
    assert field == "reference"
    assert message.startswith("This must be an image reference such as ")
    assert BaseImage.objects.count() == 2


def test_an_image_that_is_gone_is_not_written_again() -> None:
    stale = BaseImage.objects.create(reference="own:1")
    actions.delete_base_image(stale.pk)
    actions.delete_base_image(stale.pk)
    assert refusal(BaseImage(pk=stale.pk, reference="own:1")) == (
        "Somebody has deleted this image meanwhile.",
        "",
    )
    assert BaseImage.objects.count() == 1


def test_a_deletion_that_is_refused_after_the_question_says_so(admin_client: Any) -> None:
    row = BaseImage.objects.create(reference="own:1")
    with managed_meanwhile(pre_save, LogEntry, BaseImage.objects.filter(reference="own:1")):
        url = f"{IMAGES_URL}{row.pk}/delete/"
        answer = admin_client.post(url, {"post": "yes"}, follow=True)
    assert answer.redirect_chain == [(IMAGES_URL, 302)]
    assert told(answer) == [actions.IMAGE_IS_MANAGED.format(reference="own:1")]
    assert BaseImage.objects.filter(pk=row.pk).exists()
    assert not LogEntry.objects.exists()


def test_images_are_deleted_together_or_not_at_all(admin_client: Any) -> None:
    ids = [BaseImage.objects.create(reference=one).pk for one in ("own:1", "own:2")]
    body = {"action": "delete_selected", "_selected_action": ids, "post": "yes"}
    with managed_meanwhile(post_delete, BaseImage, BaseImage.objects.filter(reference="own:2")):
        answer = admin_client.post(IMAGES_URL, body, follow=True)
    assert told(answer) == [actions.IMAGE_IS_MANAGED.format(reference="own:2")]
    assert BaseImage.objects.filter(pk__in=ids).count() == 2
    assert not LogEntry.objects.exists()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("second", ["own", "docker.io/library/own:latest"])
def test_two_admins_who_add_an_image_at_once_have_it_once(
    django_user_model: Any, second: str
) -> None:
    user = django_user_model.objects.create_superuser("adder")
    clients = [Client(), Client()]
    for client in clients:
        client.force_login(user)
    for _ in range(ROUNDS):
        BaseImage.objects.filter(is_from_environment=False).delete()
        barrier = Barrier(2)

        def add(client: Client, reference: str, barrier: Barrier = barrier) -> Any:
            try:
                barrier.wait(timeout=10)
                return add_image(client, reference)
            finally:
                connections.close_all()

        with ThreadPoolExecutor(2) as pool:
            answers = list(pool.map(add, clients, ["own", second]))
        assert sorted(answer.status_code for answer in answers) == [200, 302]
        refused = next(answer for answer in answers if answer.status_code == 200)
        assert "The list has this image already, as " in refused.content.decode()
        assert BaseImage.objects.filter(is_from_environment=False).count() == 1


def test_tags_are_listed_newest_first_with_why_they_are_not_offered(
    admin_client: Any, settings: Any
) -> None:
    switch(settings, base_image_limit=1)
    add_tags("1.2.0-rc1", "1.1.0", "latest", "1.0.9")
    BaseImageTag.objects.create(repository="telorun/node", name="1.0.8-undated", position=9)
    shown = page(admin_client, TAGS_URL)
    names = ["1.2.0-rc1", "1.1.0", "latest", "1.0.9", "1.0.8-undated"]
    places = [shown.index(f">{name}</a>") for name in names]
    assert places == sorted(places)
    for words in ("no: a prerelease", "no: not a full version", "no: beyond the limit"):
        assert f">{words}</td>" in shown
    assert ">offered</td>" in shown


def test_a_tags_page_names_the_variable_that_keeps_it_back(admin_client: Any) -> None:
    candidate, offered = add_tags("1.2.0-rc1", "1.1.0")
    shown = page(admin_client, f"{TAGS_URL}{candidate}/change/")
    assert "no: a prerelease (RUNNER_BASE_IMAGE_EXCLUDE_PRERELEASE)" in shown
    assert "RUNNER_BASE_IMAGE" not in page(admin_client, f"{TAGS_URL}{offered}/change/")


def test_tags_are_hidden_and_shown_again(admin_client: Any, config: Settings) -> None:
    first, second, other = add_tags("1.2.0", "1.1.0", "1.0.9")
    told = act(admin_client, TAGS_URL, "hide_tags", [first, second])
    assert "2 tags are hidden from the next request on." in told
    assert "no: hidden" in told
    assert offered_images(config) == [config.image, "telorun/node:1.0.9"]
    told = act(admin_client, TAGS_URL, "show_tags", [first, other])
    assert "1 tag is left to the rules again." in told
    assert offered_images(config) == [
        config.image,
        "telorun/node:1.2.0",
        "telorun/node:1.0.9",
    ]
    said = LogEntry.objects.order_by("pk").values_list("object_id", "change_message")
    assert list(said) == [
        (str(first), "Hidden."),
        (str(second), "Hidden."),
        (str(first), "Shown again."),
    ]


def test_hiding_what_is_hidden_changes_nothing(admin_client: Any) -> None:
    ids = add_tags("1.2.0")
    act(admin_client, TAGS_URL, "hide_tags", ids)
    number = revision()
    told = act(admin_client, TAGS_URL, "hide_tags", ids)
    assert "0 tags are hidden from the next request on." in told
    assert revision() == number


def test_a_tags_page_changes_its_mark_and_nothing_else(admin_client: Any) -> None:
    (tag_id,) = add_tags("1.2.0")
    url = f"{TAGS_URL}{tag_id}/change/"
    before = BaseImageTag.objects.values().get()
    body = {"hidden": "on", "name": "evil", "repository": "evil/node", "position": 9}
    assert admin_client.post(url, body).status_code == 302
    assert BaseImageTag.objects.values().get() == {**before, "hidden": True}
    assert admin_client.post(url, {}).status_code == 302
    assert BaseImageTag.objects.values().get() == before


def test_what_a_fetch_changed_meanwhile_is_not_written_over(admin_user: Any, rf: Any) -> None:
    add_tags("1.2.0")
    # NB: the row as a request has read it, before a fetch gave the tag a new place.
    read_before = BaseImageTag.objects.get()
    BaseImageTag.objects.update(position=7)
    read_before.hidden = True
    request = rf.post(TAGS_URL)
    request.user = admin_user
    tags = admin.site.get_model_admin(BaseImageTag)
    tags.save_model(request, read_before, form=None, change=True)
    row = BaseImageTag.objects.get()
    assert (row.position, row.hidden) == (7, True)


def test_tags_cannot_be_added_or_deleted(admin_client: Any) -> None:
    (tag_id,) = add_tags("1.2.0")
    assert admin_client.get(f"{TAGS_URL}add/").status_code == 403
    assert admin_client.post(f"{TAGS_URL}add/", {"name": "1"}).status_code == 403
    assert admin_client.post(f"{TAGS_URL}{tag_id}/delete/", {"post": "yes"}).status_code == 403
    act(admin_client, TAGS_URL, "delete_selected", [tag_id])
    assert BaseImageTag.objects.count() == 1


def test_tags_are_filtered_and_found(admin_client: Any) -> None:
    ids = add_tags("1.2.0", "1.1.0", "latest")
    act(admin_client, TAGS_URL, "hide_tags", ids[1:2])

    def listed(**query: Any) -> set[str]:
        shown = page(admin_client, TAGS_URL, query)
        return {name for name in ("1.2.0", "1.1.0", "latest") if f">{name}</a>" in shown}

    assert listed() == {"1.2.0", "1.1.0", "latest"}
    assert listed(offered="yes") == {"1.2.0"}
    assert listed(offered="no") == {"1.1.0", "latest"}
    assert listed(hidden__exact="1") == {"1.1.0"}
    assert listed(q="late") == {"latest"}


@pytest.mark.parametrize("url", [IMAGES_URL, TAGS_URL])
def test_the_state_of_the_last_refresh_stands_above_the_list(admin_client: Any, url: str) -> None:
    shown = page(admin_client, url)
    assert "Tags of telorun/node" in shown
    assert "none yet" in shown
    add_tags("1.2.0", "1.1.0")
    TagRefresh.objects.create(
        source="https://hub.docker.com telorun/node",
        tried_at=NOON,
        succeeded_at=NOON - timedelta(hours=1),
        not_before=timezone.now() + timedelta(hours=1),
        problem="Docker Hub answered 429 <b>.",
        failures=1,
    )
    shown = page(admin_client, url)
    assert "The last try failed, so the last good list is kept" in shown
    assert "Docker Hub answered 429 &lt;b&gt;." in shown
    assert "2026-11-30 12:00:00 UTC: failed" in shown
    assert "2026-11-30 11:00:00 UTC" in shown
    assert "2 tags," in shown
    assert "Docker Hub wants not to be asked before" in shown
    assert "3 images, telorun/node:1.0.0-slim first" in shown


@pytest.mark.parametrize("url", [IMAGES_URL, TAGS_URL])
def test_the_button_asks_for_a_refresh_with_an_empty_list_too(admin_client: Any, url: str) -> None:
    assert BUTTON in page(admin_client, url)
    answer = admin_client.post(f"{url}?q=none", {"action": "refresh_base_images"}, follow=True)
    # Back to the list as it was filtered.
    assert answer.redirect_chain == [(f"{url}?q=none", 302)]
    assert "The tags are fetched anew" in answer.content.decode()
    asked_at = TagRefresh.objects.get().asked_at
    assert asked_at is not None
    assert timezone.now() - asked_at < timedelta(minutes=1)


def test_the_action_asks_for_a_refresh_too(admin_client: Any) -> None:
    ids = add_tags("1.2.0")
    assert 'value="refresh_base_images"' in page(admin_client, TAGS_URL)
    assert "The tags are fetched anew" in act(admin_client, TAGS_URL, "refresh_base_images", ids)
    assert TagRefresh.objects.get().asked_at is not None
    assert not BaseImageTag.objects.get().hidden


def test_a_refresh_waits_for_as_long_as_docker_hub_wants(admin_client: Any) -> None:
    TagRefresh.objects.create(
        source="https://hub.docker.com telorun/node",
        not_before=timezone.now() + timedelta(hours=1),
        failures=1,
    )
    told = act(admin_client, TAGS_URL, "refresh_base_images", [])
    assert "Docker Hub wants not to be asked before" in told


@pytest.mark.parametrize("url", [IMAGES_URL, TAGS_URL])
def test_switched_off_is_said_and_nothing_is_fetched(
    admin_client: Any, settings: Any, url: str
) -> None:
    add_tags("1.2.0")
    BaseImage.objects.create(reference="own:1")
    switch(settings, base_image_catalog_enabled=False)
    shown = page(admin_client, url)
    assert "Base images are switched off: RUNNER_BASE_IMAGE_CATALOG_ENABLED is false." in shown
    assert ">no: switched off</td>" in shown
    assert BUTTON not in shown
    told = act(admin_client, url, "refresh_base_images", [])
    assert "RUNNER_BASE_IMAGE_CATALOG_ENABLED is false" in told
    assert not TagRefresh.objects.exists()


@pytest.mark.parametrize(
    "path",
    [
        f"{TAGS_URL}?action=refresh_base_images",
        f"{IMAGES_URL}?action=refresh_base_images",
        f"{TAGS_URL}?action=hide_tags&_selected_action=1",
        IMAGES_URL,
        TAGS_URL,
    ],
)
def test_looking_changes_nothing(admin_client: Any, path: str) -> None:
    add_tags("1.2.0")
    number = revision()
    admin_client.get(path)
    assert revision() == number
    assert not TagRefresh.objects.exists()
    assert not BaseImageTag.objects.get().hidden


@pytest.mark.parametrize("action", ["refresh_base_images", "hide_tags"])
def test_a_form_of_another_site_is_refused(admin_user: Any, action: str) -> None:
    ids = add_tags("1.2.0")
    client = Client(enforce_csrf_checks=True)
    client.force_login(admin_user)
    answer = client.post(TAGS_URL, {"action": action, "_selected_action": ids})
    assert answer.status_code == 403
    assert not TagRefresh.objects.exists()
    assert not BaseImageTag.objects.get().hidden


def test_who_may_only_look_has_no_button_and_no_action(django_user_model: Any) -> None:
    visitor = staff(django_user_model, "view_baseimagetag", "view_baseimage")
    ids = add_tags("1.2.0")
    for url in (TAGS_URL, IMAGES_URL):
        shown = page(visitor, url)
        assert BUTTON not in shown
        assert 'value="refresh_base_images"' not in shown
        assert visitor.post(url, {"action": "refresh_base_images"}).status_code == 403
    assert 'value="hide_tags"' not in page(visitor, TAGS_URL)
    visitor.post(TAGS_URL, {"action": "hide_tags", "_selected_action": ids})
    assert visitor.post(f"{TAGS_URL}{ids[0]}/change/", {"hidden": "on"}).status_code == 403
    assert add_image(visitor, "own:1").status_code == 403
    assert not TagRefresh.objects.exists()
    assert not BaseImageTag.objects.get().hidden


def test_who_may_change_tags_may_hide_and_refresh(django_user_model: Any) -> None:
    operator = staff(django_user_model, "view_baseimagetag", "change_baseimagetag")
    ids = add_tags("1.2.0")
    assert "1 tag is hidden" in act(operator, TAGS_URL, "hide_tags", ids)
    act(operator, TAGS_URL, "refresh_base_images", [])
    assert TagRefresh.objects.get().asked_at is not None
    assert operator.get(IMAGES_URL).status_code == 403


def test_who_may_nothing_is_refused(django_user_model: Any) -> None:
    visitor = staff(django_user_model)
    for url in (TAGS_URL, IMAGES_URL):
        assert visitor.get(url).status_code == 403
        assert visitor.post(url, {"action": "refresh_base_images"}).status_code == 403
    assert not TagRefresh.objects.exists()


def test_the_number_of_queries_does_not_grow_with_the_tags(
    admin_client: Any, django_assert_max_num_queries: Any
) -> None:
    add_tags(*(f"1.{number}.0" for number in range(150)))
    with django_assert_max_num_queries(25):
        page(admin_client, TAGS_URL)
