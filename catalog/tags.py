"""Which of a repository's tags are offered, and in which order; pure but for its log line.

A tag is *pinned* if it is a version of three numbers, with or without a variant behind it; a *sha*
is a commit's; a *prerelease* is a pinned one whose first identifier behind the version says so.
"""

import logging
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

import regex

from telorunner.conf import Settings
from telorunner.values.image import is_tag

logger = logging.getLogger(__name__)

_PINNED = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+(?:[-.].+)?", re.ASCII)
_SHA = re.compile(r"(?:sha-)?[0-9a-f]{7,}", re.ASCII | re.IGNORECASE)
# Also with what numbers it: rc1, rc.1, next.5, canary.0a1b2c3.
_PRERELEASE = re.compile(
    r"(?:rc|alpha|beta|pre|preview|next|canary|dev|nightly|snapshot)[0-9]*(?:\..*)?",
    re.ASCII | re.IGNORECASE,
)
# What one of the operator's patterns may take over all the tags of a selection: hundreds of times
# what a harmless one does, and short enough for the request that waits for it.
PATTERN_SECONDS = 0.25

_OLDEST = datetime.min.replace(tzinfo=UTC)
# The problems that the log has been told of: a selection is made after every change.
_told: set[str] = set()


@dataclass(frozen=True)
class Tag:
    """A tag as it was fetched; `updated_at` is None where nobody says when."""

    name: str
    updated_at: datetime | None = None


@dataclass(frozen=True)
class TagRules:
    """What is offered; an empty pattern says nothing, others match a whole tag."""

    is_pinned_only: bool = True
    excludes_sha: bool = True
    excludes_prerelease: bool = True
    include: str = ""
    exclude: str = ""
    limit: int = 20


@dataclass(frozen=True)
class Selection:
    """The offered tags' names; `problem` says, in words, what kept some from being looked at."""

    names: tuple[str, ...]
    problem: str = ""


def rules_of(config: Settings) -> TagRules:
    """Return the rules that the environment gives."""
    return TagRules(
        is_pinned_only=config.base_image_pinned_only,
        excludes_sha=config.base_image_exclude_sha,
        excludes_prerelease=config.base_image_exclude_prerelease,
        include=config.base_image_include,
        exclude=config.base_image_exclude,
        limit=config.base_image_limit,
    )


def select(fetched: Iterable[Tag], rules: TagRules) -> Selection:
    """Choose the offered tags, newest first; those of no date last, in their own order.

    What a pattern takes too long for, and all after it, is not offered: neither what `include`
    might not name nor what `exclude` might.
    """
    patterns = _Patterns(rules)
    chosen: dict[str, None] = {}
    for tag in sorted(fetched, key=lambda tag: tag.updated_at or _OLDEST, reverse=True):
        if len(chosen) >= rules.limit or patterns.problem:
            break
        if is_tag(tag.name) and is_of_kind(tag.name, rules) and patterns.leave(tag.name):
            chosen[tag.name] = None
    if patterns.problem and patterns.problem not in _told:
        _told.add(patterns.problem)
        logger.warning("%s", patterns.problem)
    return Selection(tuple(chosen), patterns.problem)


def is_of_kind(name: str, rules: TagRules) -> bool:
    """Tell whether a tag is of an offered kind; the operator's patterns have no say in it."""
    if rules.is_pinned_only and _PINNED.fullmatch(name) is None:
        return False
    if rules.excludes_sha and _SHA.fullmatch(name) is not None:
        return False
    return not (rules.excludes_prerelease and _is_prerelease(name))


def _is_prerelease(name: str) -> bool:
    if _PINNED.fullmatch(name) is None:
        return False
    _, _, behind = name.partition("-")
    return _PRERELEASE.fullmatch(behind.partition("-")[0]) is not None


class _Patterns:
    """The operator's two patterns during one selection."""

    def __init__(self, rules: TagRules) -> None:
        self._include = _Pattern(rules.include, "RUNNER_BASE_IMAGE_INCLUDE")
        self._exclude = _Pattern(rules.exclude, "RUNNER_BASE_IMAGE_EXCLUDE")

    @property
    def problem(self) -> str:
        return self._include.problem or self._exclude.problem

    def leave(self, name: str) -> bool:
        """Tell whether they let a tag be offered; what they cannot decide in time is not."""
        return self._include.matches(name, otherwise=True) and not (
            self._exclude.matches(name, otherwise=False)
        )


class _Pattern:
    """A regular expression and the time that is left for it."""

    def __init__(self, text: str, variable: str) -> None:
        self.problem = ""
        self._text = text
        self._variable = variable
        self._left_seconds = PATTERN_SECONDS

    def matches(self, name: str, *, otherwise: bool) -> bool:
        """Match a whole tag; `otherwise` is the answer of no pattern at all.

        Too slow a one answers the opposite of that, and says so in `problem`.
        """
        if not self._text:
            return otherwise
        # NB: this thread's own time, so that a busy machine makes no pattern slow.
        began = time.thread_time()
        try:
            is_match = regex.fullmatch(self._text, name, timeout=self._left_seconds) is not None
        except TimeoutError:
            self._left_seconds = 0.0
        else:
            self._left_seconds -= time.thread_time() - began
            if self._left_seconds > 0:
                return is_match
        self.problem = (
            f"{self._variable} takes too long to match: of the tags, {name} and those older than "
            "it are not offered."
        )
        return not otherwise
