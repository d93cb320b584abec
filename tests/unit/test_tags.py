"""Which tags are offered: what each real-world name is, and how a list is chosen from."""

import itertools
import logging
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from catalog import tags
from catalog.tags import Tag, TagRules, select

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ANY_KIND = TagRules(is_pinned_only=False, excludes_sha=False, excludes_prerelease=False)

PINNED = "pinned"
PRERELEASE = "prerelease"
SHA = "sha"
OTHER = "other"
NO_TAG = "no tag"

KINDS = {
    # What the runner's own images are called.
    "latest": OTHER,
    "latest-slim": OTHER,
    "slim": OTHER,
    "1.2.3": PINNED,
    "1.2.3-slim": PINNED,
    "0.9.1-rust-1.95.0": PINNED,
    "0.9.1-rust-1.95.0-slim": PINNED,
    "0.0.0": PINNED,
    "10.20.30": PINNED,
    "1.2": OTHER,
    "1": OTHER,
    "1-slim": OTHER,
    "1.2-slim": OTHER,
    "v1.2.3": OTHER,
    "1.2.3.4": PINNED,
    "1.2.3.4-slim": PINNED,
    # Those of Node, Python, PostgreSQL, Ubuntu, nginx and others.
    "22.11.0-alpine3.20": PINNED,
    "1.2.3-alpine3.20": PINNED,
    "22.11.0-bookworm-slim": PINNED,
    "lts-alpine": OTHER,
    "current-bullseye": OTHER,
    "3.13.0": PINNED,
    "3.13.0rc1": OTHER,
    "3.13.0a1-slim": OTHER,
    "3.12-windowsservercore-ltsc2022": OTHER,
    "17.2": OTHER,
    "17beta1-alpine": OTHER,
    "bookworm": OTHER,
    "22.04": OTHER,
    "noble-20241011": OTHER,
    "1.27.2-alpine-perl": PINNED,
    "mainline": OTHER,
    "stable-musl": OTHER,
    "2.4.62-trixie": PINNED,
    "8.0.404-1-nanoserver-1809": PINNED,
    "edge": OTHER,
    "nightly": OTHER,
    "nightly-2024-01-01": OTHER,
    "master": OTHER,
    "pr-123": OTHER,
    "canary": OTHER,
    "1.2.3_4": OTHER,
    # Commits.
    "sha-0a1b2c3": SHA,
    "0a1b2c3": SHA,
    "0a1b2c3d4e5f60718293a4b5c6d7e8f901234567": SHA,
    "SHA-0A1B2C3": SHA,
    "ABCDEF01": SHA,
    "20240101": SHA,
    "deadbeef": SHA,
    "sha-0a1b2c": OTHER,
    "0a1b2c": OTHER,
    "sha-0a1b2c3-slim": OTHER,
    "sha256-0a1b2c3": OTHER,
    "main-0a1b2c3": OTHER,
    "0a1b2cg": OTHER,
    # Prereleases, and what only looks like one.
    "1.2.3-rc.1": PRERELEASE,
    "1.2.3-rc1": PRERELEASE,
    "1.2.3-rc1-slim": PRERELEASE,
    "1.2.3-rc": PRERELEASE,
    "1.2.3-RC2": PRERELEASE,
    "1.2.3-alpha": PRERELEASE,
    "1.2.3-alpha.1.2": PRERELEASE,
    "1.2.3-beta": PRERELEASE,
    "1.2.3-beta-slim": PRERELEASE,
    "1.2.3-pre": PRERELEASE,
    "1.2.3-preview.7": PRERELEASE,
    "1.2.3-next.5": PRERELEASE,
    "1.2.3-canary.0a1b2c3": PRERELEASE,
    "1.2.3-canary-0a1b2c3": PRERELEASE,
    "1.2.3-dev": PRERELEASE,
    "1.2.3-dev.20240101": PRERELEASE,
    "1.2.3-nightly20240101": PRERELEASE,
    "1.2.3-SNAPSHOT": PRERELEASE,
    "1.2.3.4-rc1": PRERELEASE,
    "1.2.3-developer": PINNED,
    "1.2.3-prebuilt": PINNED,
    "1.2.3-rct1": PINNED,
    "1.2.3-alphabet": PINNED,
    "1.2.3-nextcloud": PINNED,
    "1.2.3-slim-rc1": PINNED,
    "1.2.3-1-rc1": PINNED,
    "1.2-rc1": OTHER,
    "1.2.3-": OTHER,
    "1.2.3.": OTHER,
    # What is no tag at all.
    "": NO_TAG,
    "-1.2.3": NO_TAG,
    ".1.2.3": NO_TAG,
    "1.2.3 ": NO_TAG,
    "1.2.3\n": NO_TAG,
    "1.2.3+build": NO_TAG,
    "1.2.3/slim": NO_TAG,
    "1.2.3@sha256": NO_TAG,
    # Arabic digits.
    "\u0661.\u0662.\u0663": NO_TAG,
    "1.2.3-é": NO_TAG,
    "1.2.3-" + "x" * 123: NO_TAG,
    "1.2.3-" + "x" * 122: PINNED,
}
REAL_NAMES = [name for name, kind in KINDS.items() if kind != NO_TAG]


def listed(*names: str) -> list[Tag]:
    """Return tags that were updated an hour before one another."""
    return [Tag(name, NOW - timedelta(hours=place)) for place, name in enumerate(names)]


def chosen(*names: str, rules: TagRules) -> list[str]:
    return list(select(listed(*names), rules).names)


def is_offered(name: str, rules: TagRules) -> bool:
    return chosen(name, rules=rules) == [name]


@pytest.fixture(autouse=True)
def _nothing_told() -> None:
    tags._told.clear()


def test_the_table_is_of_the_real_world() -> None:
    assert len(REAL_NAMES) >= 60


@pytest.mark.parametrize(("name", "kind"), KINDS.items(), ids=[repr(name)[:40] for name in KINDS])
def test_each_name_is_of_its_kind(name: str, kind: str) -> None:
    """Each rule alone leaves out its own kind; what is no tag is left out without any rule."""
    assert is_offered(name, ANY_KIND) == (kind != NO_TAG)
    pinned_only = replace(ANY_KIND, is_pinned_only=True)
    assert is_offered(name, pinned_only) == (kind in {PINNED, PRERELEASE})
    without_sha = replace(ANY_KIND, excludes_sha=True)
    assert is_offered(name, without_sha) == (kind not in {SHA, NO_TAG})
    without_prerelease = replace(ANY_KIND, excludes_prerelease=True)
    assert is_offered(name, without_prerelease) == (kind not in {PRERELEASE, NO_TAG})
    assert is_offered(name, TagRules()) == (kind == PINNED)


def test_the_newest_come_first_and_those_of_no_date_last_in_their_own_order() -> None:
    fetched = [
        Tag("1.0.0"),
        Tag("1.0.1", NOW - timedelta(days=2)),
        Tag("0.9.0"),
        Tag("1.0.3", NOW),
        Tag("1.0.2", NOW - timedelta(days=1)),
    ]
    assert select(fetched, TagRules()).names == ("1.0.3", "1.0.2", "1.0.1", "1.0.0", "0.9.0")


def test_tags_of_the_same_moment_keep_their_order() -> None:
    names = ["1.0.2", "1.0.9", "1.0.0", "1.0.5"]
    fetched = [Tag(name, NOW) for name in names]
    assert list(select(fetched, TagRules()).names) == names


def test_the_limit_counts_what_is_offered_only() -> None:
    names = [f"1.0.{number}" for number in range(30)]
    mixed = list(itertools.chain.from_iterable((f"sha-000000{n}", n) for n in names))
    assert chosen(*mixed, rules=TagRules()) == names[:20]
    assert chosen(*mixed, rules=TagRules(limit=3)) == names[:3]
    assert chosen(*mixed, rules=TagRules(limit=0)) == []
    assert chosen(*mixed, rules=TagRules(limit=200)) == names


def test_a_name_that_is_there_twice_is_offered_once() -> None:
    assert chosen("1.0.1", "1.0.0", "1.0.1", rules=TagRules()) == ["1.0.1", "1.0.0"]


@pytest.mark.parametrize(
    ("include", "exclude", "expected"),
    [
        # Unanchored: it must be the whole tag.
        ("slim", "", []),
        (".*slim", "", ["1.0.1-slim"]),
        (r"1\.0\.\d+", "", ["1.0.2", "1.0.0"]),
        ("1.0.2|1.0", "", ["1.0.2"]),
        ("", "slim", ["1.0.2", "1.0.1-slim", "1.0.0"]),
        ("", ".*-slim", ["1.0.2", "1.0.0"]),
        (r"1\..*", r"1\.0\.0", ["1.0.2", "1.0.1-slim"]),
        ("^1.0.2$", "", ["1.0.2"]),
        ("(?i)1.0.1-SLIM", "", ["1.0.1-slim"]),
    ],
)
def test_patterns_match_a_whole_tag(include: str, exclude: str, expected: list[str]) -> None:
    rules = TagRules(include=include, exclude=exclude)
    assert chosen("1.0.2", "1.0.1-slim", "1.0.0", rules=rules) == expected


# Each way to cut a run of a's in ones and twos is tried: more than there is time for.
HOPELESS = "(a|aa)+c"
LONG = "a" * 120


@pytest.mark.parametrize("field", ["include", "exclude"])
def test_a_pattern_that_never_ends_costs_one_time_out_for_all_tags(
    field: str, caplog: pytest.LogCaptureFixture
) -> None:
    rules = replace(ANY_KIND, limit=200)
    if field == "include":
        rules = replace(rules, include=f"{HOPELESS}|.*z")
    else:
        rules = replace(rules, exclude=HOPELESS)
    names = ["1.0.0-z", *(f"{LONG}-{number}" for number in range(199)), "2.0.0-z"]
    began = time.thread_time()
    selection = select(listed(*names), rules)
    assert time.thread_time() - began < 4 * tags.PATTERN_SECONDS
    # What was decided before it stays; all behind it is not offered, whichever pattern it is.
    assert selection.names == ("1.0.0-z",)
    assert f"RUNNER_BASE_IMAGE_{field.upper()} takes too long" in selection.problem
    assert f"{LONG}-0 " in selection.problem
    select(listed(*names), rules)
    told = [record for record in caplog.records if record.name == tags.__name__]
    assert [record.levelno for record in told] == [logging.WARNING]


def test_a_pattern_that_is_slow_for_each_tag_is_bounded_over_all_of_them() -> None:
    """Each takes some 10 ms: none runs out of time by itself."""
    names = [f"{'a' * 24}{number}" for number in range(2000)]
    began = time.thread_time()
    selection = select(listed(*names), replace(ANY_KIND, exclude=HOPELESS, limit=2000))
    assert time.thread_time() - began < 4 * tags.PATTERN_SECONDS
    assert selection.problem
    assert 0 < len(selection.names) < len(names)


@pytest.mark.parametrize("pattern", ["(a+)+$", "(.*)*x", "(a|a)*b"])
def test_the_usual_evil_patterns_and_a_tag_of_10_kb_are_bounded(pattern: str) -> None:
    names = ["a" * 10_000, "a" * 127 + "-", "aaa"]
    began = time.thread_time()
    selection = select(listed(*names), replace(ANY_KIND, include=f"{pattern}|aaa"))
    assert time.thread_time() - began < 4 * tags.PATTERN_SECONDS
    assert "a" * 10_000 not in selection.names
    assert selection.problem or "aaa" in selection.names
