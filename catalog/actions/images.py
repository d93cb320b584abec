"""What operators may do with base images and with the tags that were fetched."""

from collections.abc import Iterable

from django.db import transaction

from catalog import standing
from catalog.actions.refusal import ChangeRefused
from catalog.models import BaseImage, BaseImageTag, Revision
from telorunner.values.image import parse_image

IMAGE_IS_GONE = "Somebody has deleted this image meanwhile."
IMAGE_IS_MANAGED = (
    "{reference} is managed by the environment of the runner: change RUNNER_IMAGE and restart the "
    "runner."
)
NO_IMAGE = "This must be an image reference such as registry.example/team/telo:1.2 ({problem})."
IMAGE_IS_THERE = "The list has this image already, as {reference}."
IMAGE_IS_DEFAULT = "This is the image of RUNNER_IMAGE, {reference}, which is offered first anyway."

# What an operator says of a base image.
IMAGE_FIELDS = ("reference", "position", "enabled")


def save_base_image(image: BaseImage) -> None:
    """Write an entry of the base images.

    Raises:
        ChangeRefused: The environment manages it, it is gone, or it names no image or one that
            another entry names.
    """
    with transaction.atomic():
        stored = check_base_image(image.pk, image.reference)
        image.save(update_fields=IMAGE_FIELDS if stored else None)


def check_base_image(image_id: int | None, reference: str) -> BaseImage | None:
    """Return an entry as it is now, None for a new one; the caller holds the transaction.

    Raises:
        ChangeRefused: As `save_base_image` says.
    """
    # NB: first, so that nobody adds the same image between this and the caller's writing it.
    Revision.rise()
    stored = None if image_id is None else _open_image(image_id)
    try:
        wanted = parse_image(reference)
    except ValueError as exc:
        raise ChangeRefused(NO_IMAGE.format(problem=exc), field="reference") from exc
    if same := standing.same_image(wanted, except_id=image_id):
        sentence = IMAGE_IS_DEFAULT if same.is_from_environment else IMAGE_IS_THERE
        raise ChangeRefused(sentence.format(reference=same.reference), field="reference")
    return stored


def delete_base_image(image_id: int) -> None:
    """Delete an entry of the base images; sessions that run the image go on.

    Raises:
        ChangeRefused: The environment manages it.
    """
    with transaction.atomic():
        Revision.rise()
        image = BaseImage.objects.filter(pk=image_id).first()
        if image is None:
            return
        if image.is_from_environment:
            raise ChangeRefused(IMAGE_IS_MANAGED.format(reference=image.reference))
        image.delete()


def set_tags_hidden(tag_ids: Iterable[int], *, is_hidden: bool) -> list[BaseImageTag]:
    """Hide tags from the offer, or show them again; return those that were not so already."""
    with transaction.atomic():
        rows = BaseImageTag.objects.filter(pk__in=list(tag_ids), hidden=not is_hidden)
        changed = list(rows)
        if changed:
            rows.update(hidden=is_hidden)
    return changed


def _open_image(image_id: int) -> BaseImage:
    """Return an entry that operators may change."""
    stored = BaseImage.objects.filter(pk=image_id).first()
    if stored is None:
        raise ChangeRefused(IMAGE_IS_GONE)
    if stored.is_from_environment:
        raise ChangeRefused(IMAGE_IS_MANAGED.format(reference=stored.reference))
    return stored
