"""The streams of /v1: a session's events, and the terminal of one of its applications."""

from sessions.consumers.events import EventStream
from sessions.consumers.terminal import TerminalSocket

__all__ = ["EventStream", "TerminalSocket"]
