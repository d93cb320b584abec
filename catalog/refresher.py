"""The task that keeps the repository's tags fresh: it waits until they are due, and fetches them.

It survives whatever fails and ends only by being cancelled; where several processes run one, one of
them fetches. It starts no task of its own but to give a claim back.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime

from django.utils import timezone

from catalog import dockerhub, refreshrow
from catalog.dockerhub import HubUnavailable
from catalog.refreshrow import Claim
from telorunner import aio
from telorunner.conf import Settings
from telorunner.database import access
from telorunner.errors import Unavailable

logger = logging.getLogger(__name__)

# NB: looked for, not waited for: another process can ask only by the database, and SQLite tells
# nobody of a change. One row read by its key is a fraction of a millisecond's work.
LOOK_SECONDS = 1.0
MAX_PAUSE_SECONDS = 10.0
RELEASE_SECONDS = 2.0

_UNEXPECTED = "Fetching the tags failed for a reason that only the log knows."
_ACTION = {"action": "refresh tags"}


class Refresher:
    """Fetches the tags whenever they are due, for as long as the process lives."""

    def __init__(self, config: Settings, *, now: Callable[[], datetime] = timezone.now) -> None:
        """Take the clock that processes agree on as `now`."""
        self._config = config
        self._now = now
        self._pause = aio.Backoff(first_seconds=LOOK_SECONDS, cap_seconds=MAX_PAUSE_SECONDS)
        self._is_failing = False
        self._is_stuck = False

    async def run(self) -> None:
        """Fetch until cancelled; end at once where the catalog of base images is switched off."""
        if not self._config.base_image_catalog_enabled:
            return
        while True:
            pause_seconds = await self._look()
            await asyncio.sleep(pause_seconds)

    async def _look(self) -> float:
        """Fetch if that is due; return the seconds until the next look."""
        try:
            claimed = await self._claim()
            if claimed is not None:
                await self._refresh(claimed)
        except Unavailable as exc:
            if not self._is_stuck:
                logger.warning("Refreshing the base images waits: %s", exc.message, extra=_ACTION)
            self._is_stuck = True
            return self._pause.next_delay()
        except Exception:
            if not self._is_stuck:
                logger.exception("Refreshing the base images failed.", extra=_ACTION)
            self._is_stuck = True
            return self._pause.next_delay()
        self._is_stuck = False
        self._pause.reset()
        return LOOK_SECONDS

    async def _claim(self) -> Claim | None:
        # NB: read first, for a write would take SQLite's one turn every second.
        if not await access.aread(refreshrow.is_due, self._config, self._now()):
            return None
        return await access.awrite(refreshrow.claim, self._config, self._now())

    async def _refresh(self, claimed: Claim) -> None:
        try:
            await self._fetch(claimed)
        except asyncio.CancelledError:
            # Else the next process would wait until the claim expires.
            with suppress(Exception):
                await aio.finish(
                    access.awrite(refreshrow.release, claimed),
                    name="release the refresh of tags",
                    timeout_seconds=RELEASE_SECONDS,
                )
            raise

    async def _fetch(self, claimed: Claim) -> None:
        url, repository = self._config.base_image_api_url, self._config.base_image_repo
        try:
            fetched = await dockerhub.fetch_tags(url, repository, etag=claimed.etag)
        except HubUnavailable as exc:
            level = logging.INFO if self._is_failing else logging.WARNING
            logger.log(
                level, "The tags of %s stay as they are: %s", repository, exc.message, extra=_ACTION
            )
            await self._fail(claimed, exc.message, exc.retry_after_seconds)
        except Exception:
            logger.exception("Fetching the tags of %s failed.", repository, extra=_ACTION)
            await self._fail(claimed, _UNEXPECTED)
        else:
            await self._succeed(claimed, fetched)

    async def _fail(self, claimed: Claim, problem: str, retry_after_seconds: float = 0.0) -> None:
        self._is_failing = True
        await access.awrite(
            refreshrow.record_failure,
            claimed,
            problem,
            self._now(),
            retry_after_seconds=retry_after_seconds,
        )

    async def _succeed(self, claimed: Claim, fetched: dockerhub.Fetched | None) -> None:
        is_changed = False
        if fetched is None:
            await access.awrite(refreshrow.record_same, claimed, self._now())
        else:
            is_changed = await access.awrite(
                refreshrow.record_list, self._config, claimed, fetched, self._now()
            )
        if is_changed or self._is_failing:
            repository = self._config.base_image_repo
            logger.info("The tags of %s have been fetched.", repository, extra=_ACTION)
        self._is_failing = False
