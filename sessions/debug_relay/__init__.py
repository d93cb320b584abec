"""The debug relay: a kernel's event frames, read off its debug server, each of them once.

The other end is the user's code. `stream` asks it for a stream, `messages` cuts that into bounded
messages, `replay` tells what a new connection only repeats, `pace` bounds the rate, `relay` brings
them together. It knows neither the log nor the row: frames go to whoever asked for them.
"""

from sessions.debug_relay.relay import DebugRelay, DebugTarget, Frame

__all__ = ["DebugRelay", "DebugTarget", "Frame"]
