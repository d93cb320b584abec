"""What the environment gives the catalog at boot: apps, usage terms and the default image.

All of it is one transaction of a process that takes its turn: several may boot at once. What
differs is written, so that a boot with the same environment changes nothing. An operator's own
entry is never overwritten: it stands, and what it stands before is reported.
"""

import logging
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from catalog import sealed
from catalog.models import App, BaseImage, Revision, Terms
from telorunner import secretbox
from telorunner.conf import Settings
from telorunner.conf.catalog import SeededApp
from telorunner.database import access
from telorunner.errors import ConfigError
from telorunner.values import terms
from telorunner.values.image import parse_image, parsed_or_none
from telorunner.values.pullpolicy import PullPolicy

logger = logging.getLogger(__name__)

# NB: a character has 4 bytes at most, and an end of a line, which is one of them, may have 2; in
# front may stand a sign of 3.
_MAX_TERMS_BYTES = 4 * terms.MAX_BODY_LENGTH + 3


@dataclass(frozen=True)
class _GivenTerms:
    """The terms as the environment gives them; `body` has LF line ends."""

    title: str
    body: str
    version: str


def seed(config: Settings) -> None:
    """Bring the catalog's rows of the environment in line with it.

    Raises:
        ConfigError: The terms or their file cannot be used, or their version is of another text.
        Unavailable: The database cannot be reached.
    """
    given = _read_terms(config)
    for report in access.write(_seed, config, given):
        logger.warning("%s", report, extra={"action": "seed"})


def _seed(config: Settings, given: _GivenTerms | None) -> list[str]:
    # NB: first, and in the order in which an operator's change takes its locks: a second process
    # that boots now waits here until this one has written, and then finds nothing to do.
    Revision.objects.select_for_update().get_or_create(id=1)
    return [
        *_seed_apps(config.apps),
        *_seed_terms(given),
        *_seed_image(config.image),
    ]


def _seed_apps(given: Mapping[str, SeededApp]) -> Iterator[str]:
    """Write the apps of RUNNER_APPS; yield what operators' own apps stand before."""
    rows = {app.name: app for app in App.objects.all()}
    for position, (name, seeded) in enumerate(given.items()):
        row = rows.get(name)
        if row is None or row.is_from_environment:
            _write_app(row or App(name=name, is_from_environment=True), seeded, position)
            continue
        _write(row, {"shadows_environment": True})
        yield (
            f"RUNNER_APPS gives an app {name}, and an operator's own app of this name stands "
            "before it: rename or delete that one in the admin, then restart."
        )
    for name in rows.keys() - given.keys():
        if rows[name].is_from_environment:
            # NB: locked, as a create may be about to name it; see `actions.delete_app`.
            App.objects.select_for_update().get(pk=rows[name].pk).delete()
        else:
            _write(rows[name], {"shadows_environment": False})


def _write_app(row: App, seeded: SeededApp, position: int) -> None:
    values: dict[str, Any] = {
        "title": seeded.title,
        "description": seeded.description,
        "image": seeded.image,
        "pull_policy": PullPolicy(seeded.pull_policy),
        "port": seeded.port,
        "allow_root": False,
        "enabled": True,
        "position": position,
    }
    # NB: sealed values differ each time: what they hold is compared.
    if _opened(row.env) != seeded.env:
        values["env"] = {name: sealed.seal_value(value) for name, value in seeded.env.items()}
    _write(row, values)


def _opened(env: Mapping[str, str]) -> dict[str, str] | None:
    """Return an app's variables; None: their key is gone."""
    try:
        return sealed.open_values(env)
    except secretbox.CannotOpen:
        return None


def _read_terms(config: Settings) -> _GivenTerms | None:
    """Return the terms that the environment gives, if it gives any; a file wins over a body."""
    variable, body = "RUNNER_TERMS_BODY", config.terms_body
    if config.terms_file is not None:
        variable, body = "RUNNER_TERMS_FILE", _read_file(config.terms_file)
    body = terms.normalise(body)
    if problem := terms.body_problem(body):
        raise ConfigError(f"{variable}: {problem}")
    if not body.strip():
        return None
    version = config.terms_version or terms.derive_version(body)
    return _GivenTerms(config.terms_title, body, version)


def _read_file(path: Path) -> str:
    try:
        # NB: opening a pipe would wait for somebody to write into it.
        if not stat.S_ISREG(path.stat().st_mode):
            raise ConfigError("RUNNER_TERMS_FILE: must be a file, not a folder or a device")
        with path.open("rb") as file:
            content = file.read(_MAX_TERMS_BYTES + 1)
    except OSError as exc:
        raise ConfigError(f"RUNNER_TERMS_FILE: cannot be read: {exc.strerror}") from exc
    if len(content) > _MAX_TERMS_BYTES:
        raise ConfigError(f"RUNNER_TERMS_FILE: {terms.TOO_LONG}")
    try:
        # Editors that mark UTF-8 by a sign in front do not mean it as text.
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise ConfigError("RUNNER_TERMS_FILE: must be a file of text in UTF-8") from exc
    if "\0" in text:
        raise ConfigError("RUNNER_TERMS_FILE: holds a NUL")
    return text


def _seed_terms(given: _GivenTerms | None) -> Iterator[str]:
    """Write the environment's terms, and make them current unless operators' own terms are."""
    row = None if given is None else _terms_row(given)
    for former in Terms.objects.filter(is_from_environment=True):
        if former != row:
            # It stays in the history, as any former version does.
            _write(former, {"is_from_environment": False, "is_current": False})
    if given is None or row is None:
        return
    own = Terms.objects.filter(is_current=True, is_from_environment=False).first()
    if own is not None and own == row:
        # An operator has published the very same.
        return
    values = {"title": given.title, "is_from_environment": True, "is_current": own is None}
    _write(row, values)
    if own is not None:
        yield (
            f"The environment gives usage terms ({given.version}), and an operator's own "
            f"({own.version}) are current: withdraw those in the admin, then restart."
        )


def _terms_row(given: _GivenTerms) -> Terms:
    """Return the row of the terms' version, which may be new."""
    row = Terms.objects.filter(version=given.version).first()
    if row is None:
        return Terms(version=given.version, body=given.body)
    if terms.normalise(row.body) != given.body:
        raise ConfigError(
            "RUNNER_TERMS_VERSION: must be another one, for there are terms of this version with "
            "another text"
        )
    return row


def _seed_image(reference: str) -> Iterator[str]:
    """Write the row of RUNNER_IMAGE, unless an operator's own names the same image."""
    wanted = parse_image(reference)
    own = BaseImage.objects.filter(is_from_environment=False)
    same = next((row for row in own if parsed_or_none(row.reference) == wanted), None)
    rows = list(BaseImage.objects.filter(is_from_environment=True).order_by("id"))
    kept = None if same or not rows else rows[0]
    for row in rows:
        if row != kept:
            row.delete()
    if same is None:
        row = kept or BaseImage(is_from_environment=True)
        _write(row, {"reference": reference, "position": 0, "enabled": True})
    else:
        yield (
            f"RUNNER_IMAGE is among the operators' own base images, as {same.reference}: it is "
            "offered first all the same, and the entry may be deleted in the admin."
        )


def _write(row: App | Terms | BaseImage, values: Mapping[str, Any]) -> None:
    """Save a row that is new, or whose values differ; the rest is no change."""
    different = [name for name, value in values.items() if getattr(row, name) != value]
    if different or row.pk is None:
        for name in different:
            setattr(row, name, values[name])
        # NB: nothing else of a row that is there: a create may have counted an acceptance since.
        row.save(update_fields=different if row.pk else None)
