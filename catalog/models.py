"""The rows that operators curate: apps, usage terms, base images and their tags.

Every change of them raises the number of `Revision` in the same transaction, by which each process
notices within a second that what it has cached is old.
"""

from typing import Any, ClassVar, TypeVar

from django.db import models, transaction
from django.db.models import F, Q

from catalog import changes
from telorunner.conf.types import MAX_REPOSITORY_LENGTH, MAX_TITLE_LENGTH
from telorunner.values.dns import MAX_LABEL_LENGTH
from telorunner.values.image import MAX_REFERENCE_LENGTH, MAX_TAG_LENGTH
from telorunner.values.port import MAX_PORT
from telorunner.values.pullpolicy import PullPolicy
from telorunner.values.terms import MAX_VERSION_LENGTH

# Of what is told of fetching the tags.
MAX_PROBLEM_LENGTH = 500
MAX_SOURCE_LENGTH = 512

ENVIRONMENT_HELP = "Managed by the environment of the runner; read-only here."

Row = TypeVar("Row", bound=models.Model)


class Revision(models.Model):
    """The one row that says how often the catalog has changed."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    number = models.PositiveBigIntegerField(default=0)

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(name="catalog_revision_is_one_row", condition=Q(id=1)),
        ]

    def __str__(self) -> str:
        return str(self.number)

    @classmethod
    def rise(cls) -> None:
        """Note a change; the caller holds the transaction."""
        row = cls.objects.filter(id=1)
        if not row.update(number=F("number") + 1):
            # NB: another process may insert it at this moment, and is then waited for.
            Revision.objects.bulk_create([Revision(id=1)], ignore_conflicts=True)
            row.update(number=F("number") + 1)
        changes.note_on_commit()


class CatalogQuerySet(models.QuerySet[Row]):
    """Rows whose changes are noted."""

    def update(self, **values: Any) -> int:
        """Change all of them."""
        with transaction.atomic(using=self.db):
            Revision.rise()
            return super().update(**values)

    update.alters_data = True  # type: ignore[attr-defined] # as Django marks its own

    def delete(self) -> tuple[int, dict[str, int]]:
        """Delete all of them."""
        with transaction.atomic(using=self.db):
            Revision.rise()
            return super().delete()

    delete.alters_data = True  # type: ignore[attr-defined]
    delete.queryset_only = True  # type: ignore[attr-defined]

    def bulk_create(self, *args: Any, **options: Any) -> list[Row]:
        """Insert several at once."""
        with transaction.atomic(using=self.db):
            Revision.rise()
            return super().bulk_create(*args, **options)


class CatalogRow(models.Model):
    """A row whose changes are noted."""

    objects = CatalogQuerySet.as_manager()

    class Meta:
        abstract = True

    def save(self, *args: Any, **options: Any) -> None:
        """Write the row."""
        with transaction.atomic():
            Revision.rise()
            super().save(*args, **options)

    def delete(self, *args: Any, **options: Any) -> tuple[int, dict[str, int]]:
        """Delete the row."""
        with transaction.atomic():
            Revision.rise()
            return super().delete(*args, **options)


class App(CatalogRow):
    """An application that clients may start by its name."""

    name = models.CharField(
        max_length=MAX_LABEL_LENGTH,
        unique=True,
        help_text="What clients start it by: a lower-case DNS label, such as code-helper.",
    )
    title = models.CharField(max_length=MAX_TITLE_LENGTH, blank=True, help_text="What people read.")
    description = models.TextField(blank=True, help_text="One or two sentences for people.")
    image = models.CharField(
        max_length=MAX_REFERENCE_LENGTH,
        help_text="Such as registry.example/team/app:1.2. It runs with its own entrypoint.",
    )
    pull_policy = models.CharField(
        max_length=8,
        choices=[(policy, policy) for policy in PullPolicy],
        default=PullPolicy.MISSING,
        help_text="When nodes pull the image: missing is IfNotPresent.",
    )
    port = models.PositiveIntegerField(
        null=True,
        blank=True,
        help_text="Where it serves as an agent of watch sessions.",
    )
    # {name: value sealed by telorunner.sealing}; names are no secrets, values are never shown.
    env = models.JSONField(default=dict, blank=True, editable=False)
    allow_root = models.BooleanField(
        default=False,
        help_text="Let the image run as root, where the session namespace admits that.",
    )
    enabled = models.BooleanField(default=True, help_text="Offered to clients, and may start.")
    position = models.IntegerField(default=0, help_text="Lower ones come first.")
    is_from_environment = models.BooleanField(default=False, help_text=ENVIRONMENT_HELP)
    # RUNNER_APPS has an app of this name too, which this one stands before.
    shadows_environment = models.BooleanField(default=False, editable=False)

    class Meta:
        ordering: ClassVar = ["position", "name"]
        constraints: ClassVar = [
            models.CheckConstraint(
                name="app_port_is_a_port", condition=Q(port=None) | Q(port__range=(1, MAX_PORT))
            ),
        ]

    def __str__(self) -> str:
        return self.name


class Terms(CatalogRow):
    """A version of the usage terms; what clients must accept is the current one, if any is."""

    title = models.CharField(max_length=MAX_TITLE_LENGTH, default="Usage agreement")
    body = models.TextField(help_text="Markdown.")
    version = models.CharField(
        max_length=MAX_VERSION_LENGTH,
        unique=True,
        blank=True,
        help_text="What clients accept. Left empty, it is derived from the text.",
    )
    is_current = models.BooleanField(default=False)
    is_from_environment = models.BooleanField(default=False, help_text=ENVIRONMENT_HELP)
    created_at = models.DateTimeField(auto_now_add=True)
    # How many sessions were created with it accepted.
    accepted_count = models.PositiveBigIntegerField("sessions under it", default=0, editable=False)

    class Meta:
        verbose_name_plural = "terms"
        ordering: ClassVar = ["-is_current", "-created_at"]
        constraints: ClassVar = [
            # Two operators who publish at once: the second's transaction waits or fails.
            models.UniqueConstraint(
                fields=["is_current"], condition=Q(is_current=True), name="terms_one_current"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.title} ({self.version})"


class BaseImage(CatalogRow):
    """An image that operators offer for sessions, beside the tags of the repository."""

    reference = models.CharField(
        max_length=MAX_REFERENCE_LENGTH,
        unique=True,
        help_text="Such as registry.example/team/telo:1.2.",
    )
    position = models.IntegerField(default=0, help_text="Lower ones come first.")
    enabled = models.BooleanField(default=True, help_text="Offered to clients.")
    # The row of RUNNER_IMAGE: the default, which stands first.
    is_from_environment = models.BooleanField(default=False, help_text=ENVIRONMENT_HELP)

    class Meta:
        ordering: ClassVar = ["-is_from_environment", "position", "reference"]

    def __str__(self) -> str:
        return self.reference


class BaseImageTag(CatalogRow):
    """A tag of the repository, as it was fetched last."""

    repository = models.CharField(max_length=MAX_REPOSITORY_LENGTH)
    name = models.CharField(max_length=MAX_TAG_LENGTH)
    # None: Docker Hub did not say.
    updated_at = models.DateTimeField(null=True, blank=True)
    # Its place in the fetched list; None: it is not in the newest list any more.
    position = models.PositiveIntegerField(null=True, blank=True)
    hidden = models.BooleanField(default=False, help_text="Not offered, whatever the rules say.")

    class Meta:
        ordering: ClassVar = ["position"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["repository", "name"], name="base_image_tag_once"),
        ]

    def __str__(self) -> str:
        return f"{self.repository}:{self.name}"


class TagRefresh(models.Model):
    """The one row about fetching the repository's tags: who does it, when, and how it went."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    # The repository and address that the tags are of: others make them worthless.
    source = models.CharField(max_length=MAX_SOURCE_LENGTH, blank=True)
    etag = models.CharField(max_length=256, blank=True)
    asked_at = models.DateTimeField(null=True, blank=True)
    # The process that fetches, and until when the others leave it to it.
    claim = models.CharField(max_length=32, blank=True)
    claimed_until = models.DateTimeField(null=True, blank=True)
    tried_at = models.DateTimeField(null=True, blank=True)
    succeeded_at = models.DateTimeField(null=True, blank=True)
    # Docker Hub may say when to come again.
    not_before = models.DateTimeField(null=True, blank=True)
    # Why the last try failed, in words; empty: it did not.
    problem = models.CharField(max_length=MAX_PROBLEM_LENGTH, blank=True)
    # How many tries have failed one after the other: each waits longer for the next.
    failures = models.PositiveIntegerField(default=0)

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(name="tag_refresh_is_one_row", condition=Q(id=1)),
        ]

    def __str__(self) -> str:
        return "tag refresh"
