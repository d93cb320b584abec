"""The vocabulary of a session: status, phase, and which status may follow which; no Django."""

from enum import StrEnum


class Mode(StrEnum):
    """What kind of session it is."""

    RUN = "run"


class StatusKind(StrEnum):
    """The kind of a status object, as clients read it."""

    STARTING = "starting"
    RUNNING = "running"
    EXITED = "exited"
    FAILED = "failed"
    STOPPED = "stopped"

    @property
    def is_terminal(self) -> bool:
        """Whether nothing can follow this status."""
        return self in TERMINAL


TERMINAL = frozenset({StatusKind.EXITED, StatusKind.FAILED, StatusKind.STOPPED})
LIVE = frozenset(StatusKind) - TERMINAL

# A very short run goes from `starting` to its end without `running`.
_FOLLOWS: dict[StatusKind, frozenset[StatusKind]] = {
    StatusKind.STARTING: frozenset({StatusKind.RUNNING}) | TERMINAL,
    StatusKind.RUNNING: TERMINAL,
    StatusKind.EXITED: frozenset(),
    StatusKind.FAILED: frozenset(),
    StatusKind.STOPPED: frozenset(),
}


def allowed_before(new: StatusKind) -> frozenset[StatusKind]:
    """Return every status that `new` may follow: the condition of the UPDATE that writes it."""
    return frozenset(old for old, following in _FOLLOWS.items() if new in following)


class Phase(StrEnum):
    """The step of a start that a progress event is about."""

    PROVISION = "provision"
    BOOT = "boot"


class IoMode(StrEnum):
    """How an application's input and output are carried."""

    TTY = "tty"
    STREAMS = "streams"


class Protocol(StrEnum):
    """The transport of a declared port."""

    TCP = "tcp"
    UDP = "udp"


class Delivery(StrEnum):
    """How a bundle reaches its pod: in a ConfigMap, or fetched from the runner by its URL.

    A session of a catalog app has none: its image is the application.
    """

    INLINE = "inline"
    FETCH = "fetch"
    NONE = "none"
