"""What sessions may run: one computed list, in order, that references are compared with parsed."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from catalog import cache
from catalog.actions import set_tags_hidden
from catalog.models import BaseImage, BaseImageTag
from catalog.offer import offered_images, read_offer
from catalog.standing import (
    ImageStanding,
    TagStanding,
    image_standing,
    tag_standings,
)
from telorunner.conf import Settings
from tests.builders import make_settings

pytestmark = pytest.mark.usefixtures("transactional_db")

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
DIGEST = "sha256:" + "0" * 64
DEFAULT = "telorun/node:latest-slim"


def add_tags(*names: str, repository: str = "telorun/node") -> None:
    """Make tags as a fetch does, the first one the newest."""
    BaseImageTag.objects.bulk_create(
        BaseImageTag(
            repository=repository,
            name=name,
            position=place,
            updated_at=NOON - timedelta(minutes=place),
        )
        for place, name in enumerate(names)
    )


def add_images(*references: str, **values: Any) -> None:
    for position, reference in enumerate(references):
        BaseImage.objects.create(reference=reference, **{"position": position, **values})


def offered(**overrides: Any) -> list[str]:
    return offered_images(make_settings(**overrides))


def by_name(config: Settings) -> dict[str, TagStanding]:
    names = dict(BaseImageTag.objects.values_list("pk", "name"))
    return {names[pk]: how for how, ids in tag_standings(config).items() for pk in ids}


def test_the_default_is_first_then_operators_own_then_the_tags() -> None:
    add_tags("1.2.3", "1.2.2")
    BaseImage.objects.create(reference="second.example/a:1", position=2)
    BaseImage.objects.create(reference="first.example/z:1", position=1)
    BaseImage.objects.create(reference="first.example/b:1", position=1)
    assert offered() == [
        DEFAULT,
        "first.example/b:1",
        "first.example/z:1",
        "second.example/a:1",
        "telorun/node:1.2.3",
        "telorun/node:1.2.2",
    ]


def test_without_anything_else_there_is_the_default() -> None:
    assert offered() == [DEFAULT]


def test_the_environments_row_adds_nothing_to_the_default() -> None:
    BaseImage.objects.create(reference="node:of-another-process", is_from_environment=True)
    assert offered() == [DEFAULT]


@pytest.mark.parametrize(
    "spellings",
    [
        [
            "telorun/node:1.2.3",
            "docker.io/telorun/node:1.2.3",
            "index.docker.io/telorun/node:1.2.3",
        ],
        ["node", "library/node", "docker.io/node:latest", "docker.io/library/node:latest"],
    ],
)
def test_spellings_of_one_image_are_offered_once(spellings: Sequence[str]) -> None:
    add_tags("1.2.3")
    add_images(*spellings)
    images = offered(base_image_pinned_only=False)
    assert sum(image in spellings for image in images) == 1
    # The operator's first one stands before the tag.
    assert images[1] == spellings[0]


def test_the_default_in_another_spelling_is_offered_once() -> None:
    add_tags("1.2.3")
    add_images("docker.io/telorun/node:1.2.3")
    assert offered(image="telorun/node:1.2.3") == ["telorun/node:1.2.3"]


def test_a_default_among_the_tags_takes_no_place_of_the_limit_from_the_others() -> None:
    add_tags("1.2.3", "1.2.2", "1.2.1")
    add_images("own.example/a:1")
    assert offered(image="telorun/node:0.0.1", base_image_limit=2) == [
        "telorun/node:0.0.1",
        "own.example/a:1",
        "telorun/node:1.2.3",
        "telorun/node:1.2.2",
    ]
    assert offered(base_image_limit=0) == [DEFAULT, "own.example/a:1"]


def test_disabled_and_hidden_ones_are_not_offered() -> None:
    add_tags("1.2.3", "1.2.2")
    add_images("own.example/off:1", enabled=False)
    BaseImageTag.objects.filter(name="1.2.3").update(hidden=True)
    assert offered() == [DEFAULT, "telorun/node:1.2.2"]


def test_tags_that_are_gone_or_of_another_repository_are_not_offered() -> None:
    add_tags("1.2.3", "1.2.2")
    add_tags("9.9.9", repository="other/node")
    BaseImageTag.objects.filter(name="1.2.3").update(position=None)
    assert offered() == [DEFAULT, "telorun/node:1.2.2"]


def test_a_row_that_is_no_image_is_not_offered() -> None:
    add_images("NO image")
    add_tags("1.2.3\n")
    assert offered(base_image_pinned_only=False) == [DEFAULT]


def test_switched_off_leaves_the_default_alone() -> None:
    add_tags("1.2.3")
    add_images("own.example/a:1")
    config = make_settings(base_image_catalog_enabled=False)
    assert offered_images(config) == [DEFAULT]
    assert read_offer(config).image("telorun/node:1.2.3") is None
    assert read_offer(config).image(f"docker.io/{DEFAULT}") == DEFAULT


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("telorun/node:1.2.3", "telorun/node:1.2.3"),
        ("docker.io/telorun/node:1.2.3", "telorun/node:1.2.3"),
        ("index.docker.io/telorun/node:1.2.3", "telorun/node:1.2.3"),
        ("docker.io/library/own", "own:latest"),
        ("own", "own:latest"),
        ("own:latest", "own:latest"),
        # Each begins, ends or goes on as one that is offered, or only looks like it.
        ("telorun/node:1.2.3-evil", None),
        ("telorun/node:1.2.30", None),
        ("telorun/node:1.2", None),
        (f"telorun/node:1.2.3@{DIGEST}", None),
        (f"telorun/node@{DIGEST}", None),
        ("evil.example/telorun/node:1.2.3", None),
        ("docker.io.evil.example/telorun/node:1.2.3", None),
        ("docker.io:443/telorun/node:1.2.3", None),
        ("localhost/telorun/node:1.2.3", None),
        ("telorun/node", None),
        ("telorun/node:latest", None),
        ("telorun/node/evil:1.2.3", None),
        ("evil/telorun/node:1.2.3", None),
        ("telorun/node1.2.3", None),
        ("telorun/node:1.2.3 ", None),
        (" telorun/node:1.2.3", None),
        ("telorun/node:1.2.3\n", None),
        ("telorun/node:1.2.3\0", None),
        ("Telorun/node:1.2.3", None),
        ("telorun//node:1.2.3", None),
        ("./telorun/node:1.2.3", None),
        ("telorun/../telorun/node:1.2.3", None),
        ("http://docker.io/telorun/node:1.2.3", None),
        ("team/own", None),
        ("own:Latest", None),
        ("", None),
        ("own.example:5000/app:1", "own.example:5000/app:1"),
        ("own.example/app:1", None),
        ("own.example:5001/app:1", None),
        (f"pinned.example/app@{DIGEST}", f"pinned.example/app@{DIGEST}"),
        ("pinned.example/app", None),
        ("pinned.example/app:latest", None),
        (f"pinned.example/app:1@{DIGEST}", None),
        (f"pinned.example/app@sha256:{'1' * 64}", None),
    ],
)
def test_an_image_is_admitted_only_as_one_that_is_offered(wanted: str, found: str | None) -> None:
    add_tags("1.2.3")
    add_images("own:latest", "own.example:5000/app:1", f"pinned.example/app@{DIGEST}")
    assert cache.current_offer(make_settings()).image(wanted) == found


def test_hiding_counts_from_the_next_request_on() -> None:
    add_tags("1.2.3")
    config = make_settings()
    assert cache.current_offer(config).image("telorun/node:1.2.3")
    ids = list(BaseImageTag.objects.values_list("pk", flat=True))
    assert [tag.name for tag in set_tags_hidden(ids, is_hidden=True)] == ["1.2.3"]
    assert cache.current_offer(config).image("telorun/node:1.2.3") is None
    assert set_tags_hidden(ids, is_hidden=True) == []
    assert len(set_tags_hidden(ids, is_hidden=False)) == 1
    assert cache.current_offer(config).image("telorun/node:1.2.3")


def test_each_tag_says_why_it_is_not_offered() -> None:
    add_tags(
        "1.2.6-rc1",
        "1.2.5",
        "latest",
        "sha-0123abc",
        "1.2.4-slim",
        "1.2.3",
        "1.2.2-hidden",
        "1.2.1-gone",
        "1.2.0-debug",
        "1.1.0",
        "not a tag",
    )
    add_tags("9.9.9", repository="other/node")
    BaseImageTag.objects.filter(name="1.2.2-hidden").update(hidden=True)
    BaseImageTag.objects.filter(name="1.2.1-gone").update(position=None, hidden=True)
    config = make_settings(base_image_limit=3, base_image_exclude=".*-debug")
    assert by_name(config) == {
        "1.2.6-rc1": TagStanding.PRERELEASE,
        "1.2.5": TagStanding.OFFERED,
        "latest": TagStanding.UNPINNED,
        "sha-0123abc": TagStanding.SHA,
        "1.2.4-slim": TagStanding.OFFERED,
        "1.2.3": TagStanding.OFFERED,
        "1.2.2-hidden": TagStanding.HIDDEN,
        "1.2.1-gone": TagStanding.GONE,
        "1.2.0-debug": TagStanding.FILTERED,
        "1.1.0": TagStanding.BEYOND,
        "not a tag": TagStanding.MALFORMED,
        "9.9.9": TagStanding.FOREIGN,
    }


@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"base_image_limit": 0},
        {"base_image_limit": 2},
        {"base_image_pinned_only": False},
        {"base_image_exclude_sha": False, "base_image_pinned_only": False},
        {"base_image_exclude_prerelease": False, "base_image_limit": 4},
        {"base_image_include": r"1\.2\..*"},
        {"base_image_exclude": r".*-slim"},
        {"base_image_catalog_enabled": False},
    ],
)
def test_what_is_said_to_be_offered_is_what_is(overrides: dict[str, Any]) -> None:
    add_tags("2.0.0-rc.1", "1.2.5", "latest", "0123abcd", "1.2.4-slim", "1.1.3", "1.2.2", "slim")
    BaseImageTag.objects.filter(name="1.2.2").update(hidden=True)
    config = make_settings(**overrides)
    said = {f"telorun/node:{name}" for name, how in by_name(config).items() if how == "offered"}
    assert said == set(offered_images(config)) - {DEFAULT}


def test_each_entry_says_why_it_is_not_offered() -> None:
    config = make_settings()

    def how(reference: str, config: Settings = config, **values: Any) -> ImageStanding:
        return image_standing(BaseImage(reference=reference, **values), config)

    assert how("own:1") is ImageStanding.OFFERED
    assert how("own:1", enabled=False) is ImageStanding.DISABLED
    assert how("NO image") is ImageStanding.MALFORMED
    assert how(DEFAULT, is_from_environment=True) is ImageStanding.DEFAULT
    # The default is offered whatever an operator's own entry says.
    assert how(f"docker.io/{DEFAULT}", enabled=False) is ImageStanding.DEFAULT
    assert how("node:of-another-process", is_from_environment=True) is ImageStanding.FORMER
    off = make_settings(base_image_catalog_enabled=False)
    assert how("own:1", off) is ImageStanding.OFF
    assert how(DEFAULT, off) is ImageStanding.DEFAULT
