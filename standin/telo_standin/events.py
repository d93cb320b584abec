"""The debug stream's frames: a bounded ring that any number of subscribers read."""

import threading
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

RING_FRAMES = 5000
# How long the end waits for subscribers to take the last frames.
DRAIN_SECONDS = 1.0


class Events:
    """Frames in order; a subscriber first gets the ring, then what follows."""

    def __init__(self) -> None:
        self._frames: deque[dict[str, Any]] = deque(maxlen=RING_FRAMES)
        self._count = 0
        self._readers = 0
        self._is_closed = False
        self._last = datetime.min.replace(tzinfo=UTC)
        self._changed = threading.Condition()

    def emit(self, event: str, payload: Mapping[str, Any] | None = None) -> None:
        """Publish an event; never waits for a subscriber."""
        with self._changed:
            # Timestamps always rise, so that a subscriber can tell a replayed frame by its own.
            self._last = max(datetime.now(UTC), self._last + timedelta(microseconds=1))
            timestamp = self._last.isoformat(timespec="microseconds").replace("+00:00", "Z")
            frame: dict[str, Any] = {"kind": "event", "timestamp": timestamp, "event": event}
            if payload is not None:
                frame["payload"] = dict(payload)
            self._frames.append(frame)
            self._count += 1
            self._changed.notify_all()

    def subscribe(self) -> None:
        """Count a subscriber, whom ``close`` waits for."""
        with self._changed:
            self._readers += 1

    def unsubscribe(self) -> None:
        """Forget a subscriber."""
        with self._changed:
            self._readers -= 1
            self._changed.notify_all()

    def after(self, seen: int, timeout_seconds: float) -> tuple[int, list[dict[str, Any]] | None]:
        """Wait for frames after the first ``seen`` of all.

        Returns:
            The new count and the frames; no frames after the time-out; None at the end.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._count > seen or self._is_closed, timeout=timeout_seconds
            )
            missing = min(self._count - seen, len(self._frames))
            if not missing and self._is_closed:
                return self._count, None
            return self._count, list(self._frames)[len(self._frames) - missing :]

    def close(self) -> None:
        """End the stream and wait, for a bounded time, until the subscribers have it all."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._readers == 0, timeout=DRAIN_SECONDS)
