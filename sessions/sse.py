"""Server-sent events: encoding and parsing; pure.

An event is encoded once, when it is published, to everything but its `id:` line; a reader's frame
is that line put in front.

Source: https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

HEARTBEAT = b": heartbeat\n\n"
GAP = b'event: gap\ndata: {"reason":"buffer_evicted"}\n\n'


def encode(event: Mapping[str, Any]) -> bytes:
    """Return the frame of an event without its id; `event["type"]` names it.

    JSON escapes every control character, so no value can end a line and forge another event.
    """
    return b"event: %s\ndata: %s\n\n" % (str(event["type"]).encode(), orjson.dumps(event))


def frame(sequence: int, encoded: bytes) -> bytes:
    """Return the whole frame: the id line and what `encode()` returned."""
    return b"id: %d\n%s" % (sequence, encoded)


@dataclass(frozen=True)
class Message:
    """One parsed message; `event` is "message" where the stream names none, `data` is its text."""

    event: str
    data: str
    last_event_id: str


def parse(text: str) -> Iterator[Message]:
    """Yield the messages of a whole stream; comments are passed over."""
    event, last_event_id = "", ""
    data: list[str] = []
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        if not line:
            if data:
                yield Message(event or "message", "\n".join(data), last_event_id)
            event, data = "", []
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            event = value
        elif name == "data":
            data.append(value)
        elif name == "id" and "\0" not in value:
            last_event_id = value
