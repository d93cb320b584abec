"""The little of HTTP/1.1 and WebSocket that clients on raw sockets need; pure."""

HEAD_END = b"\r\n\r\n"


def get_request(path: str, *, is_socket: bool) -> bytes:
    """Return the request for a stream, or for the upgrade to a socket."""
    lines = [f"GET {path} HTTP/1.1", "host: bench"]
    if is_socket:
        lines += [
            "connection: upgrade",
            "upgrade: websocket",
            "sec-websocket-version: 13",
            "sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==",
        ]
    else:
        lines.append("connection: close")
    return "\r\n".join([*lines, "", ""]).encode()


def post_request(path: str, body: str) -> bytes:
    """Return a request with a JSON body; its connection is kept."""
    content = body.encode()
    head = (
        f"POST {path} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
        f"content-length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


def is_whole(answer: bytes) -> bool:
    """Tell whether an answer is complete; one that is no 201 breaks the measurement."""
    head, end, body = answer.partition(HEAD_END)
    if not end:
        return False
    if b" 201 " not in head.split(b"\r\n", 1)[0]:
        raise RuntimeError(answer[:400].decode("latin-1"))
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return len(body) >= int(line.split(b":")[1])
    raise RuntimeError("an answer without a length")


def masked(payload: bytes) -> bytes:
    """Return a client's binary frame of at most 125 bytes; the mask is all zeros."""
    return bytes((0x82, 0x80 | len(payload))) + bytes(4) + payload
