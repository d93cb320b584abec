"""WebSocket frames of every kind, valid or not: an encoder, a reader and strategies."""

import struct
from dataclasses import dataclass

from hypothesis import strategies as st

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
_MASK = b"\x01\x02\x03\x04"
KEY = b"AAAAAAAAAAAAAAAAAAAAAA=="


@dataclass(frozen=True)
class Frame:
    """A frame that the server sent."""

    opcode: int
    payload: bytes


def frame(
    opcode: int, payload: bytes = b"", *, first: int = 0x80, masked: bool = True, size: int = -1
) -> bytes:
    """Return a frame; `size` lies about the length, `first` holds FIN and the reserved bits."""
    length = len(payload) if size < 0 else size
    bit = 0x80 if masked else 0
    if length < 126:
        head = struct.pack(">BB", first | opcode, bit | length)
    elif length < 65_536:
        head = struct.pack(">BBH", first | opcode, bit | 126, length)
    else:
        head = struct.pack(">BBQ", first | opcode, bit | 127, length)
    if not masked:
        return head + payload
    repeated = (_MASK * (len(payload) // 4 + 1))[: len(payload)]
    mixed = int.from_bytes(payload, "big") ^ int.from_bytes(repeated, "big")
    return head + _MASK + mixed.to_bytes(len(payload), "big")


def handshake(path: str, *, headers: tuple[bytes, ...] = ()) -> bytes:
    """Return a handshake."""
    lines = [
        b"GET %s HTTP/1.1" % path.encode(),
        b"host: runner",
        b"upgrade: websocket",
        b"connection: upgrade",
        b"sec-websocket-version: 13",
        b"sec-websocket-key: " + KEY,
        *headers,
    ]
    return b"\r\n".join(lines) + b"\r\n\r\n"


def read(received: bytes) -> list[Frame]:
    """Return the frames of a server; none is masked, and one that was cut is left out."""
    found = []
    while len(received) > 1:
        opcode, length, at = received[0] & 0x0F, received[1], 2
        if length == 126:
            length, at = int.from_bytes(received[2:4], "big"), 4
        elif length == 127:
            length, at = int.from_bytes(received[2:10], "big"), 10
        if len(received) < at + length:
            break
        found.append(Frame(opcode, received[at : at + length]))
        received = received[at + length :]
    return found


def is_closed(received: bytes | bytearray) -> bool:
    """Tell whether a close has come."""
    return any(one.opcode == CLOSE for one in read(bytes(received)))


_SIZES = [
    "0", "-1", "1e9", '"abc"', "true", "NaN", "null", "[]", "{}", "1.5", "10001", "9" * 400,
    "-9223372036854775809", "1e999999", '"\\ud800"', "80",
]  # fmt: skip
_RESIZES = st.one_of(
    st.tuples(st.sampled_from(_SIZES), st.sampled_from(_SIZES)).map(
        lambda size: f'{{"type":"resize","cols":{size[0]},"rows":{size[1]}}}'
    ),
    st.sampled_from(
        [
            "", "{", "[]", "null", '{"type":"resize"}', '{"type":["resize"]}', "[" * 5000, "\0",
            '{"type":"resize","cols":80}', '{"type":"resize","cols":1,"cols":2,"rows":3}', '"',
            '{"type":"resize","cols":80,"rows":24,"x":"' + "x" * 900_000 + '"}',
        ]
    ),
    st.text(max_size=30),
)  # fmt: skip
_CODES = st.one_of(
    st.sampled_from(
        [0, 999, 1000, 1001, 1003, 1004, 1005, 1006, 1015, 1016, 2999, 3000, 4404, 5000]
    ),
    st.integers(0, 65_535),
).map(lambda code: struct.pack(">H", code))

FRAMES = st.one_of(
    _RESIZES.map(lambda text: frame(TEXT, text.encode("utf-8", "surrogatepass"))),
    st.binary(max_size=200).map(lambda data: frame(BINARY, data)),
    st.binary(max_size=20).map(lambda data: frame(TEXT, data)),
    st.builds(
        lambda opcode, data, first, masked: frame(opcode, data, first=first, masked=masked),
        st.integers(0, 15),
        st.binary(max_size=130),
        st.sampled_from([0x80, 0x80, 0x00, 0xC0, 0xA0, 0x90, 0xF0]),
        st.sampled_from([True, True, True, False]),
    ),
    st.tuples(_CODES, st.binary(max_size=123)).map(lambda parts: frame(CLOSE, b"".join(parts))),
    st.sampled_from(
        [
            frame(CLOSE), frame(CLOSE, b"\x03"), frame(PING, b"x" * 125), frame(PING, b"x" * 126),
            frame(PONG, b"unasked"), frame(BINARY, b"", size=2**63),
            frame(BINARY, b"", size=2**40), frame(BINARY, b"x" * 2**21), frame(TEXT, b"x" * 2**20),
            frame(BINARY, b"x" * 300_000),
            frame(TEXT, b"\xf0\x9f", first=0) + frame(0, b"\x99\x82"), frame(0, b"lost"),
            frame(BINARY, b"a", first=0) * 2, frame(BINARY, b"a", first=0) + frame(PING, b"b"),
            frame(BINARY, b"a", first=0) + frame(0, b"b", first=0) * 1000, frame(PING) * 500,
        ]
    ),
    st.binary(max_size=30),
)  # fmt: skip
