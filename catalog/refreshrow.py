"""The database's side of fetching the repository's tags: who does it, when, and what came of it.

One row, `TagRefresh`, is shared by all processes. A process *claims* the refresh by one conditional
UPDATE, fetches, and *records* what came of it; a claim expires, so that a process that was killed
blocks nobody. A failure leaves the last good list as it is.

The functions are synchronous, and a transaction is their caller's: `telorunner.database.access`.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db.models import F
from django.utils import timezone

from catalog import dockerhub, offer
from catalog.models import (
    MAX_PROBLEM_LENGTH,
    MAX_SOURCE_LENGTH,
    BaseImageTag,
    CatalogQuerySet,
    TagRefresh,
)
from catalog.tags import Tag
from telorunner.conf import Settings

# All pages at their slowest, and the time to record them.
CLAIM_SECONDS = dockerhub.MAX_PAGES * dockerhub.REQUEST_SECONDS + 40.0
# After a failure: twice as long each time, up to the regular interval.
FIRST_RETRY_SECONDS = 30.0
# Two processes of different repositories, as during a roll-out, take turns no faster than this.
OTHER_SOURCE_SECONDS = 10.0

_ROW = 1


@dataclass(frozen=True)
class Claim:
    """The right to fetch, until it expires.

    `asked_at` is the wish that it answers, if any; `etag` is that of the list which is kept.
    """

    token: str = field(repr=False)
    asked_at: datetime | None = None
    etag: str = ""


@dataclass(frozen=True)
class RefreshState:
    """What operators see of the refresh.

    `next_at` is None where there is none to come: it runs, is due at once, or is switched off.
    `refused_until` is until when Docker Hub wants to be left alone, also by who asks for it.
    `filter_problem` says what keeps tags out of the offer that the rules may have wanted in it.
    """

    repository: str
    is_enabled: bool
    is_running: bool = False
    is_asked: bool = False
    tried_at: datetime | None = None
    succeeded_at: datetime | None = None
    next_at: datetime | None = None
    refused_until: datetime | None = None
    problem: str = ""
    tag_count: int = 0
    filter_problem: str = ""


def is_due(config: Settings, now: datetime) -> bool:
    """Tell whether a process may try to claim the refresh; only reads."""
    row = TagRefresh.objects.filter(id=_ROW).first()
    return row is None or _due_at(row, config, now) <= now


def claim(config: Settings, now: datetime) -> Claim | None:
    """Claim the refresh if it is due; None: it is not, or another process was quicker."""
    row, _ = TagRefresh.objects.get_or_create(id=_ROW)
    return None if _due_at(row, config, now) > now else _take(row, config, now)


def _take(row: TagRefresh, config: Settings, now: datetime) -> Claim | None:
    """Claim what was due when the row was read."""
    changes = {} if _is_same_source(row, config) else _anew(config)
    token = uuid.uuid4().hex
    # NB: whoever claimed or recorded since the row was read has changed one of these.
    unchanged = TagRefresh.objects.filter(id=_ROW, claim=row.claim, tried_at=row.tried_at)
    until = now + timedelta(seconds=CLAIM_SECONDS)
    if not unchanged.update(claim=token, claimed_until=until, **changes):
        return None
    # What was not modified is worth nothing where the rows are gone.
    etag = str(changes.get("etag", row.etag))
    return Claim(token, row.asked_at, etag if _listed(config).exists() else "")


def release(claimed: Claim) -> None:
    """Give a claim back without having tried, for any process to take at once."""
    TagRefresh.objects.filter(id=_ROW, claim=claimed.token).update(
        claim="", claimed_until=None, tried_at=None
    )


def record_list(
    config: Settings, claimed: Claim, fetched: dockerhub.Fetched, now: datetime
) -> bool:
    """Replace the list; False: it is the same, or the claim has expired and was taken over."""
    if not _finish(claimed, now, etag=fetched.etag, succeeded_at=now):
        return False
    return _replace(config.base_image_repo, fetched.tags)


def record_same(claimed: Claim, now: datetime) -> None:
    """Note that the list which is kept is still the one."""
    _finish(claimed, now, succeeded_at=now)


def record_failure(
    claimed: Claim, problem: str, now: datetime, *, retry_after_seconds: float = 0.0
) -> None:
    """Note why there is no new list, and how long Docker Hub wants not to be asked."""
    until = now + timedelta(seconds=retry_after_seconds) if retry_after_seconds else None
    problem = problem[:MAX_PROBLEM_LENGTH]
    _finish(claimed, now, problem=problem, not_before=until, failures=F("failures") + 1)


def ask(config: Settings, now: datetime | None = None) -> datetime | None:
    """Ask for a refresh now; it begins within two seconds, in whichever process is first.

    Docker Hub's wish to be left alone comes before the operator's: then it begins at the time that
    is returned.
    """
    now = now or timezone.now()
    row, _ = TagRefresh.objects.get_or_create(id=_ROW)
    TagRefresh.objects.filter(id=_ROW).update(asked_at=now)
    return _refused_until(row, config, now)


def read_state(config: Settings, now: datetime | None = None) -> RefreshState:
    """Return what there is to know about the refresh of the configured repository."""
    now = now or timezone.now()
    state = RefreshState(config.base_image_repo, config.base_image_catalog_enabled)
    if not state.is_enabled:
        return state
    row = TagRefresh.objects.filter(id=_ROW).first() or TagRefresh()
    is_same = _is_same_source(row, config)
    is_running = is_same and _is_claimed(row, now)
    next_at = _due_at(row, config, now)
    return RefreshState(
        repository=config.base_image_repo,
        is_enabled=True,
        is_running=is_running,
        is_asked=row.asked_at is not None,
        tried_at=row.tried_at if is_same else None,
        succeeded_at=row.succeeded_at if is_same else None,
        next_at=None if is_running or next_at <= now else next_at,
        refused_until=_refused_until(row, config, now),
        problem=row.problem if is_same else "",
        tag_count=_listed(config).count(),
        filter_problem=offer.select_tags(config).problem,
    )


def _due_at(row: TagRefresh, config: Settings, now: datetime) -> datetime:
    """Return when a process may begin; up to `now`: at once."""
    due = now
    if row.claim:
        # It is being fetched, or whoever wanted to is gone.
        due = row.claimed_until or now
    elif row.tried_at is not None and row.asked_at is None:
        due = row.tried_at + timedelta(seconds=_interval_seconds(row, config))
    return max(due, _refused_until(row, config, now) or due)


def _interval_seconds(row: TagRefresh, config: Settings) -> float:
    regular = float(config.base_image_refresh_seconds)
    if not _is_same_source(row, config):
        return min(OTHER_SOURCE_SECONDS, regular)
    if not row.failures:
        return regular
    # NB: the exponent is capped so that failures of weeks cannot overflow a float.
    return min(FIRST_RETRY_SECONDS * 2.0 ** min(row.failures - 1, 60), regular)


def _refused_until(row: TagRefresh, config: Settings, now: datetime) -> datetime | None:
    """Return until when Docker Hub wants not to be asked; None: it may be asked now."""
    is_same_hub = row.source.partition(" ")[0] == _source(config).partition(" ")[0]
    if row.not_before is None or row.not_before <= now or not is_same_hub:
        return None
    return row.not_before


def _source(config: Settings) -> str:
    return f"{config.base_image_api_url} {config.base_image_repo}"[:MAX_SOURCE_LENGTH]


def _is_same_source(row: TagRefresh, config: Settings) -> bool:
    return row.source == _source(config)


def _is_claimed(row: TagRefresh, now: datetime) -> bool:
    return bool(row.claim) and row.claimed_until is not None and row.claimed_until > now


def _anew(config: Settings) -> dict[str, object]:
    """Return what the row becomes where it was about another repository or address.

    The other repository's tags stay, for a process that still runs with it; they are offered
    nowhere else.
    """
    return {
        "source": _source(config),
        "etag": "",
        "succeeded_at": None,
        "not_before": None,
        "problem": "",
        "failures": 0,
    }


def _finish(claimed: Claim, now: datetime, **found: object) -> bool:
    """End a claim; False: it has expired, and another process has taken over."""
    outcome = {"problem": "", "failures": 0, "not_before": None, **found}
    mine = TagRefresh.objects.filter(id=_ROW, claim=claimed.token)
    if not mine.update(claim="", claimed_until=None, tried_at=now, **outcome):
        return False
    # NB: that very wish and no other: what was asked for while the fetch ran may be about what it
    # came too early for. Which is older is not compared, for each time is of its process's clock.
    if claimed.asked_at is not None:
        TagRefresh.objects.filter(id=_ROW, asked_at=claimed.asked_at).update(asked_at=None)
    return True


def _listed(config: Settings) -> CatalogQuerySet[BaseImageTag]:
    return BaseImageTag.objects.filter(repository=config.base_image_repo, position__isnull=False)


def _replace(repository: str, fetched: Sequence[Tag]) -> bool:
    """Make the rows of a repository those of a list; what is hidden stays hidden.

    Nothing is written where nothing has changed: each write would make every process read the
    whole catalog anew.
    """
    rows = BaseImageTag.objects.filter(repository=repository)
    wanted = {tag.name: (place, tag.updated_at) for place, tag in enumerate(fetched)}
    known = {row.name: row for row in rows}
    changed = [
        BaseImageTag(repository=repository, name=name, position=place, updated_at=updated_at)
        for name, (place, updated_at) in wanted.items()
        if name not in known
        or (known[name].position, known[name].updated_at) != (place, updated_at)
    ]
    gone = [row for row in known.values() if row.name not in wanted and row.position is not None]
    if changed:
        BaseImageTag.objects.bulk_create(
            changed,
            update_conflicts=True,
            unique_fields=["repository", "name"],
            update_fields=["position", "updated_at"],
        )
    if gone:
        vanished = rows.exclude(name__in=list(wanted))
        # Their rows are kept only for an operator's word on them, should they come back.
        vanished.filter(hidden=False).delete()
        vanished.filter(position__isnull=False).update(position=None)
    return bool(changed or gone)
