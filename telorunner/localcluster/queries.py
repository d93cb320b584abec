"""What the query of a request asks for, checked, with the real API's messages. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from telorunner.localcluster import selectors, statuses
from telorunner.localcluster.resources import ResourceKind
from telorunner.localcluster.validation import Fault, not_allowed, unsupported

_MATCH = "resourceVersionMatch"
_NOT_WITH_CONTINUE = "resourceVersionMatch is forbidden when continue is provided"


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
        StoreError: 400 or 500, something in it cannot be read; 422, it does not go together.
    """
    is_watch = flag(query, "watch")
    check_options("ListOptions", _list_faults(query, is_watch=is_watch))
    if query.get("continue") and query.get("resourceVersion", "0") not in ("", "0"):
        why = "specifying resource version is not allowed when using continue"
        raise statuses.bad_request(why)
    revision = _version(query, is_watch=is_watch)
    return ListQuery(
        matcher=selectors.selector(
            resource, query.get("labelSelector", ""), query.get("fieldSelector", "")
        ),
        limit=integer(query, "limit") or 0,
        token=query.get("continue", ""),
        revision=revision or None,
        is_exact=query.get("resourceVersionMatch") == "Exact",
        is_watch=is_watch,
        wants_bookmarks=flag(query, "allowWatchBookmarks"),
        # Without a version a watch begins with what is there, as it always has.
        wants_initial_events=flag(query, "sendInitialEvents")
        or (not revision and "sendInitialEvents" not in query),
        timeout_seconds=integer(query, "timeoutSeconds"),
    )


def _version(query: Mapping[str, str], *, is_watch: bool) -> int | None:
    version = query.get("resourceVersion", "")
    if not version or re.fullmatch(r"\d{1,19}", version):
        return int(version) if version else None
    problem = (
        f'resourceVersion: Invalid value: "{version}":'
        f' strconv.ParseUint: parsing "{version}": invalid syntax'
    )
    if is_watch:
        raise statuses.StoreError(500, "", problem)
    raise statuses.bad_request(f"invalid resource version: {problem}")


def _list_faults(query: Mapping[str, str], *, is_watch: bool) -> list[Fault]:
    """Return what does not go together in the query of a list or watch.

    Source: ValidateListOptions of k8s.io/apimachinery/pkg/apis/meta/internalversion/validation
    """
    match, version = query.get("resourceVersionMatch", ""), query.get("resourceVersion", "")
    if is_watch:
        return _watch_faults(query, match)
    faults = []
    if match:
        if not version:
            why = "resourceVersionMatch is forbidden unless resourceVersion is provided"
            faults.append(not_allowed(_MATCH, why))
        if query.get("continue"):
            faults.append(not_allowed(_MATCH, _NOT_WITH_CONTINUE))
        if match not in ("Exact", "NotOlderThan"):
            faults.append(unsupported(_MATCH, match, ("Exact", "NotOlderThan", "")))
        if match == "Exact" and version == "0":
            why = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
            faults.append(not_allowed(_MATCH, why))
    if "sendInitialEvents" in query:
        why = "sendInitialEvents is forbidden for list"
        faults.append(not_allowed("sendInitialEvents", why))
    return faults


def _watch_faults(query: Mapping[str, str], match: str) -> list[Fault]:
    faults = []
    if "sendInitialEvents" not in query:
        if match:
            why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
            faults.append(not_allowed(_MATCH, why))
    elif match != "NotOlderThan":
        why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        faults.append(not_allowed(_MATCH, why))
        if match:
            faults.append(unsupported(_MATCH, match, ("NotOlderThan",)))
    if query.get("continue"):
        faults.append(not_allowed(_MATCH, _NOT_WITH_CONTINUE))
    return faults


def check_options(name: str, faults: list[Fault]) -> None:
    """Refuse options with faults; `name` is their kind.

    Raises:
        StoreError: 422, there are some.
    """
    if faults:
        raise statuses.invalid(ResourceKind("", name, group="meta.k8s.io"), "", faults)


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
    return name in query and query[name].lower() not in ("0", "false")
