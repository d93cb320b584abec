"""What is told of a public host; pure."""

from dataclasses import dataclass
from enum import StrEnum


class RouteState(StrEnum):
    """The state of a public host, as clients read it."""

    PENDING = "pending"
    PROGRAMMED = "programmed"
    UNPROGRAMMED = "unprogrammed"


@dataclass(frozen=True)
class RouteNews:
    """A host is in this state from now on; `reason` says why, where it is not as it should be.

    `lost` is the uid of its route or of its Service, where somebody has deleted that: only
    a new publish brings it back. Each loss has its own, so that none is taken for one told before.
    """

    host: str
    port: int
    state: RouteState
    reason: str = ""
    lost: str = ""
