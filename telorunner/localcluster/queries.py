"""What the query of a request asks for, checked, with the real API's messages. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from telorunner.localcluster import selectors, statuses


@dataclass(frozen=True)
class ListQuery:
    """The query of a list, watch or collection deletion.

    `revision` is None where no resource version is asked for, `timeout_seconds` where no end is.
    """

    matcher: selectors.Matcher | None
    limit: int
    token: str
    revision: int | None
    is_exact: bool
    is_watch: bool
    wants_bookmarks: bool
    wants_initial_events: bool
    timeout_seconds: int | None


def list_query(resource: str, query: Mapping[str, str]) -> ListQuery:
    """Read the query of a list or watch.

    Raises:
        StoreError: 400, something in it cannot be read.
    """
    version = query.get("resourceVersion", "")
    if version and not re.fullmatch(r"\d{1,19}", version):
        raise statuses.bad_request(
            f'invalid resource version: resourceVersion: Invalid value: "{version}":'
            f' strconv.ParseUint: parsing "{version}": invalid syntax'
        )
    revision = int(version) if version else None
    return ListQuery(
        matcher=selectors.selector(
            resource, query.get("labelSelector", ""), query.get("fieldSelector", "")
        ),
        limit=integer(query, "limit") or 0,
        token=query.get("continue", ""),
        revision=revision or None,
        is_exact=query.get("resourceVersionMatch") == "Exact",
        is_watch=flag(query, "watch"),
        wants_bookmarks=flag(query, "allowWatchBookmarks"),
        # Without a version a watch begins with what is there, as it always has.
        wants_initial_events=flag(query, "sendInitialEvents") or not revision,
        timeout_seconds=integer(query, "timeoutSeconds"),
    )


def integer(query: Mapping[str, str], name: str) -> int | None:
    """Return a number of the query, None where it is absent.

    Raises:
        StoreError: 400, it is no number.
    """
    text = query.get(name, "")
    if not text:
        return None
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
        message = f'strconv.ParseInt: parsing "{text}": invalid syntax'
        raise statuses.bad_request(message)
    return int(text)


def flag(query: Mapping[str, str], name: str) -> bool:
    """Return a truth value of the query, False where it is absent."""
    return query.get(name, "").lower() in ("1", "true", "t")
