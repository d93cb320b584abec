"""The terminal socket, which OpenAPI has no words for: messages, frames and close codes."""

from sessions.log import MAX_CHUNK_BYTES
from sessions.openapi.answers import IO_MODE, Schema, one_of, record, reference

_GAP = record(
    {"type": {"const": "gap"}, "reason": {"const": "buffer_evicted"}},
    description="Output after `lastSeq` is no longer kept; what follows is what is left.",
)
_SEQ = record(
    {
        "type": {"const": "seq"},
        "seq": {"type": "integer", "minimum": 0, "description": "`lastSeq` as it was understood."},
        "app": {"type": "string", "minLength": 1},
        "io": IO_MODE,
    },
    description="The first message of the server: which app this is, and where output goes on.",
)
_ERROR = record(
    {
        "type": {"const": "error"},
        "error": {"const": "resize_unsupported"},
        "io": {"const": "streams"},
    },
    description="The answer to `resize` where the app has streams instead of a terminal.",
)
_RESIZE = record(
    {
        "type": {"const": "resize"},
        "cols": {"type": "integer", "description": "Taken as 1 to 10,000."},
        "rows": {"type": "integer", "description": "Taken as 1 to 10,000."},
    },
    description="The size of the client's window. At most one per 50 ms counts, the last wins.",
)

CLOSE_CODES: dict[int, str] = {
    1000: "The session has ended and all its output was sent.",
    1011: "Something failed inside the runner; connect again with `lastSeq`.",
    1012: "The runner is going down; connect again with `lastSeq`.",
    1013: "Too slow, or the runner cannot serve just now; connect again with `lastSeq`, later.",
    4403: "`forbidden_origin`: the runner has a list of origins, and this one is not on it.",
    4404: "`not_found`: no such session or app, or several apps and none named.",
    4410: "`nothing_to_replay`: the session has ended and none of its output is kept.",
}

# The extension of the operation: everything about the socket in one place.
SOCKET: Schema = {
    "server": {
        "text": {"schema": reference("TerminalMessage")},
        "binary": {
            "description": "One chunk of output.",
            "layout": [
                {
                    "name": "seq",
                    "type": "uint32",
                    "byteOrder": "big-endian",
                    "description": "Number of the chunk, per session and app, from 1, by 1.",
                },
                {
                    "name": "stream",
                    "type": "uint8",
                    "description": "0: terminal; 1: stdout; 2: stderr.",
                },
                {"name": "payload", "type": "bytes", "maxLength": MAX_CHUNK_BYTES},
            ],
        },
    },
    "client": {
        "text": {"schema": reference("Resize"), "description": "Any other text is ignored."},
        "binary": {
            "description": "Bytes typed into the application, as they are, in order and never "
            "twice. Where the way to the container broke and some may be lost, a line that begins "
            "with `[telorunner]` says so among the output."
        },
    },
    "closeCodes": {str(code): meaning for code, meaning in CLOSE_CODES.items()},
}


def components() -> dict[str, Schema]:
    """Return the components of text messages."""
    return {
        "TerminalSeq": _SEQ,
        "TerminalGap": _GAP,
        "TerminalError": _ERROR,
        "TerminalMessage": one_of(
            "type", {"seq": "TerminalSeq", "gap": "TerminalGap", "error": "TerminalError"}
        ),
        "Resize": _RESIZE,
    }
