"""What is streamed: a session's events, an application's terminal, and the bundle to its pod."""

from sessions.consumers.bundle import send_bundle
from sessions.consumers.events import EventStream
from sessions.consumers.terminal import TerminalSocket

__all__ = ["EventStream", "TerminalSocket", "send_bundle"]
