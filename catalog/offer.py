"""What the catalog offers at one moment: frozen values, read off the rows at once.

Images are compared as parsed references, never as text: `node:1` is `docker.io/library/node:1`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from catalog import sealed, tags
from catalog.models import App, BaseImage, BaseImageTag, Terms
from telorunner.conf import Settings
from telorunner.values.image import ImageReference, parsed_or_none
from telorunner.values.pullpolicy import PullPolicy


@dataclass(frozen=True)
class OfferedApp:
    """An enabled app; `env_sealed` is `{name: sealed value}`, which `env()` opens."""

    id: int
    name: str
    title: str
    description: str
    image: str
    pull_policy: PullPolicy
    port: int | None
    allow_root: bool
    env_sealed: Mapping[str, str] = field(repr=False)

    def env(self) -> dict[str, str]:
        """Return the operator's variables.

        Raises:
            secretbox.CannotOpen: They were sealed with a key that is gone.
        """
        return sealed.open_values(self.env_sealed)

    def to_json(self) -> dict[str, str]:
        """Return what clients read of it: no image, no env."""
        texts = {"title": self.title, "description": self.description}
        return {"name": self.name, **{key: text for key, text in texts.items() if text}}


@dataclass(frozen=True)
class OfferedTerms:
    """The terms that clients must accept."""

    version: str
    title: str
    body: str

    def to_json(self) -> dict[str, str]:
        """Return `{"version", "title", "body"}`."""
        return {"version": self.version, "title": self.title, "body": self.body}


@dataclass(frozen=True)
class Offer:
    """All that is offered; `apps` by name in the operator's order, `images` the default first."""

    apps: Mapping[str, OfferedApp]
    terms: OfferedTerms | None
    images: tuple[str, ...]

    def image(self, wanted: str) -> str | None:
        """Return the offered image that a reference names, in the operator's spelling."""
        reference = parsed_or_none(wanted)
        if reference is None:
            return None
        return next((image for image in self.images if parsed_or_none(image) == reference), None)


def read_offer(config: Settings) -> Offer:
    """Read the rows."""
    terms = Terms.objects.filter(is_current=True).first()
    return Offer(
        apps={app.name: _offered(app) for app in App.objects.filter(enabled=True)},
        terms=OfferedTerms(terms.version, terms.title, terms.body) if terms else None,
        images=tuple(offered_images(config)),
    )


def _offered(app: App) -> OfferedApp:
    return OfferedApp(
        id=app.pk,
        name=app.name,
        title=app.title,
        description=app.description,
        image=app.image,
        pull_policy=PullPolicy(app.pull_policy),
        port=app.port,
        allow_root=app.allow_root,
        env_sealed=app.env,
    )


def offered_images(config: Settings) -> list[str]:
    """Return the images that sessions may run: the default, the operator's own, then the tags."""
    if not config.base_image_catalog_enabled:
        return [config.image]
    own = BaseImage.objects.filter(enabled=True, is_from_environment=False)
    named = own.values_list("reference", flat=True)
    return list(_once([config.image, *named, *offered_tags(config)]))


def offered_tags(config: Settings) -> list[str]:
    """Return the references of the fetched tags that the rules leave, newest first."""
    return [f"{config.base_image_repo}:{name}" for name in select_tags(config).names]


def select_tags(config: Settings) -> tags.Selection:
    """Choose among the tags of the newest list that no operator has hidden."""
    rows = BaseImageTag.objects.filter(
        repository=config.base_image_repo, hidden=False, position__isnull=False
    )
    fetched = [tags.Tag(row.name, row.updated_at) for row in rows]
    return tags.select(fetched, tags.rules_of(config))


def _once(references: Iterable[str]) -> Iterable[str]:
    """Leave out what names the same image as one before it, and what names none."""
    seen: set[ImageReference] = set()
    for text in references:
        reference = parsed_or_none(text)
        # The form refuses what is none; a row that came another way offers nothing.
        if reference is not None and reference not in seen:
            seen.add(reference)
            yield text
