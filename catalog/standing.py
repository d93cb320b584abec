"""How base images and fetched tags stand: offered, or why not.

It says of single rows what `catalog.offer` computes of all of them, which alone decides.
"""

from dataclasses import replace
from enum import StrEnum

from catalog import tags
from catalog.models import BaseImage, BaseImageTag
from telorunner.conf import Settings
from telorunner.values.image import ImageReference, is_tag, parsed_or_none

_NO_RULES = tags.TagRules(is_pinned_only=False, excludes_sha=False, excludes_prerelease=False)


class TagStanding(StrEnum):
    """Whether a tag is offered, and else why not."""

    OFFERED = "offered"
    OFF = "off"
    FOREIGN = "foreign"
    GONE = "gone"
    HIDDEN = "hidden"
    MALFORMED = "malformed"
    SHA = "sha"
    PRERELEASE = "prerelease"
    UNPINNED = "unpinned"
    FILTERED = "filtered"
    BEYOND = "beyond"


class ImageStanding(StrEnum):
    """Whether a base image is offered, and else why not."""

    DEFAULT = "default"
    OFFERED = "offered"
    OFF = "off"
    FORMER = "former"
    DISABLED = "disabled"
    MALFORMED = "malformed"


# In the words of the lists.
TAG_WORDS = {
    TagStanding.OFFERED: "offered",
    TagStanding.OFF: "no: switched off",
    TagStanding.FOREIGN: "no: of another repository",
    TagStanding.GONE: "no: not in the newest list",
    TagStanding.HIDDEN: "no: hidden",
    TagStanding.MALFORMED: "no: not a tag by its form",
    TagStanding.SHA: "no: a commit's",
    TagStanding.PRERELEASE: "no: a prerelease",
    TagStanding.UNPINNED: "no: not a full version",
    TagStanding.FILTERED: "no: left out by a pattern",
    TagStanding.BEYOND: "no: beyond the limit",
}
# What to change where it should be offered; the page of a single tag has room for it.
TAG_VARIABLES = {
    TagStanding.OFF: "RUNNER_BASE_IMAGE_CATALOG_ENABLED",
    TagStanding.FOREIGN: "RUNNER_BASE_IMAGE_REPO",
    TagStanding.SHA: "RUNNER_BASE_IMAGE_EXCLUDE_SHA",
    TagStanding.PRERELEASE: "RUNNER_BASE_IMAGE_EXCLUDE_PRERELEASE",
    TagStanding.UNPINNED: "RUNNER_BASE_IMAGE_PINNED_ONLY",
    TagStanding.FILTERED: "RUNNER_BASE_IMAGE_INCLUDE, RUNNER_BASE_IMAGE_EXCLUDE",
    TagStanding.BEYOND: "RUNNER_BASE_IMAGE_LIMIT",
}
IMAGE_WORDS = {
    ImageStanding.DEFAULT: "first: it is RUNNER_IMAGE",
    ImageStanding.OFFERED: "offered",
    ImageStanding.OFF: "no: switched off",
    ImageStanding.FORMER: "no: RUNNER_IMAGE is another one",
    ImageStanding.DISABLED: "no: not enabled",
    ImageStanding.MALFORMED: "no: it is no image reference",
}


def tag_standings(config: Settings) -> dict[TagStanding, list[int]]:
    """Return the ids of the fetched tags by how they stand."""
    found: dict[TagStanding, list[int]] = {}
    rules = tags.rules_of(config)
    left: list[BaseImageTag] = []
    for row in BaseImageTag.objects.all():
        standing = _row_standing(row, config) or _kind_standing(row.name, rules)
        if standing is None:
            left.append(row)
        else:
            found.setdefault(standing, []).append(row.pk)
    # NB: without the limit: what is within it are the first ones of these.
    unlimited = replace(rules, limit=len(left))
    names = tags.select((tags.Tag(row.name, row.updated_at) for row in left), unlimited).names
    places = {name: place for place, name in enumerate(names)}
    for row in left:
        standing = _place_standing(places.get(row.name), rules.limit)
        found.setdefault(standing, []).append(row.pk)
    return found


def image_standing(row: BaseImage, config: Settings) -> ImageStanding:
    """Return how an entry of the base images stands."""
    reference = parsed_or_none(row.reference)
    if reference is None:
        return ImageStanding.MALFORMED
    if reference == parsed_or_none(config.image):
        return ImageStanding.DEFAULT
    if not config.base_image_catalog_enabled:
        return ImageStanding.OFF
    if row.is_from_environment:
        return ImageStanding.FORMER
    return ImageStanding.OFFERED if row.enabled else ImageStanding.DISABLED


def same_image(reference: ImageReference, *, except_id: int | None) -> BaseImage | None:
    """Return another entry that names the same image, however it is spelled."""
    others = (row for row in BaseImage.objects.all() if row.pk != except_id)
    return next((row for row in others if parsed_or_none(row.reference) == reference), None)


def _row_standing(row: BaseImageTag, config: Settings) -> TagStanding | None:
    if not config.base_image_catalog_enabled:
        return TagStanding.OFF
    if row.repository != config.base_image_repo:
        return TagStanding.FOREIGN
    if row.position is None:
        return TagStanding.GONE
    if row.hidden:
        return TagStanding.HIDDEN
    return None if is_tag(row.name) else TagStanding.MALFORMED


def _kind_standing(name: str, rules: tags.TagRules) -> TagStanding | None:
    """Return what kind of tag it is that the rules leave out; the most particular comes first."""
    by_kind = {
        TagStanding.SHA: replace(_NO_RULES, excludes_sha=rules.excludes_sha),
        TagStanding.PRERELEASE: replace(_NO_RULES, excludes_prerelease=rules.excludes_prerelease),
        TagStanding.UNPINNED: replace(_NO_RULES, is_pinned_only=rules.is_pinned_only),
    }
    return next((kind for kind, rule in by_kind.items() if not tags.is_of_kind(name, rule)), None)


def _place_standing(place: int | None, limit: int) -> TagStanding:
    if place is None:
        return TagStanding.FILTERED
    return TagStanding.OFFERED if place < limit else TagStanding.BEYOND
