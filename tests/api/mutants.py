"""Strategies: requests that were valid before they were mutated, each into bytes of its own."""

import copy
import json
from typing import Any

from hypothesis import strategies as st

from tests.builders import IMAGE, create_body
from tests.offered import APP_NAME


class Token(str):
    """JSON as it is written, which the encoder would refuse or write otherwise."""

    __slots__ = ()


VALID: list[tuple[bytes, dict[str, Any]]] = [
    (b"/v1/sessions", create_body()),
    (
        b"/v1/sessions",
        create_body(
            env={"A": "b", "PATH": "/x"},
            ports=[{"port": 80, "protocol": "tcp"}, {"port": 53, "protocol": "udp"}],
            inspect=True,
            limits={"cpu": "100m", "memory": "64Mi", "ephemeralStorage": "1Gi", "ttlSeconds": 60},
            mode="run",
            apps=[
                {
                    "name": "web",
                    "entryRelativePath": "telo.yaml",
                    "ports": [{"port": 81, "protocol": "tcp"}],
                    "io": "tty",
                }
            ],
        ),
    ),
    (
        f"/v1/apps/{APP_NAME}/sessions".encode(),
        {"env": {"A": "b"}, "ports": [{"port": 80, "protocol": "tcp"}], "inspect": True},
    ),
    (b"/v1/probe", {"config": {"image": IMAGE, "pullPolicy": "missing"}}),
]

QUANTITIES = [
    "1e999999", "1e-999999", "NaN", "Infinity", "-inf", "1 Gi", "\u0661\u0662\u0668Mi", "\uff11Gi",
    "0x10", "1_000", "+", "--1", "-1", "1Ki i", "1E5Gi", "1e1000", "", " 1", "1\n", "1Mi\0",
    "\xbd", "1,5", "9" * 65, "1e5e5", "1ki", "Gi", ".", "1..0", "\u221e", "null", "0", "-0", "1n",
    "1Zi", "1e+", "9" * 100_000,
]  # fmt: skip

_TOKENS = [
    "NaN", "Infinity", "-Infinity", "1e999999", "-1e999999", "1e-999999", "9" * 5000, "-0", "00",
    "1.0", "80.0", "1e2", "9223372036854775808", "-1", "2147483648", "18446744073709551616",
    '"\\ud800"', '"\\udc00\\ud800"', '"\\u0000"', '"\\uD83D\\uDE00"', '{"a": 1, "a": 2}',
    '"' + "x" * 100_000 + '"', "[" * 900 + "]" * 900, '{"a":' * 900 + "1" + "}" * 900, "true",
    "false", "null", "[]", "{}", '""', '"a"', "[null]", '{"": {}}', "[" * 100_000, "'a'",
    "[" + ",".join(["{}"] * 20_001) + "]", "{" + ",".join(f'"{n}":1' for n in range(999)) + "}",
]  # fmt: skip
_ODD_TEXTS = [
    "..", "../x", "/", "a/../../b", "a//b", "\0", "a\\b", "x" * 256, "x/" * 3000, ".", "\u2028",
    "a\nb", "\r\n\r\n", "\x1b[31m", "\x7f", "\ufeff", "\U0001d56c", "e\u0301", "__proto__", "$ref",
    "%00", "🙂" * 2000, "'; DROP TABLE x; --", "{{7*7}}", "%s%n", "id: 1\n\ndata: x", "LD_PRELOAD",
    "=",
]  # fmt: skip
_PLAIN = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**30), 10**30),
    st.floats(),
    st.text(max_size=40),
    st.text(st.characters(codec=None, categories=["Cs", "Cc", "Co", "Cn", "Zs"]), max_size=8),
)
_VALUES = st.one_of(
    st.sampled_from(_TOKENS).map(Token),
    st.sampled_from(_ODD_TEXTS),
    st.sampled_from(QUANTITIES),
    _PLAIN,
    st.recursive(
        _PLAIN,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
        max_leaves=6,
    ),
)
_KEYS = st.one_of(
    st.sampled_from(_ODD_TEXTS),
    st.sampled_from(["env", "bundle", "config", "Bundle", "entry_relative_path", "agent", "a/b~c"]),
    st.text(max_size=20),
)


def encode(node: Any) -> str:
    """Write JSON, tokens as they are, and surrogates as escapes."""
    if isinstance(node, Token):
        return str(node)
    if isinstance(node, dict):
        return "{" + ",".join(f"{json.dumps(k)}:{encode(v)}" for k, v in node.items()) + "}"
    if isinstance(node, list):
        return "[" + ",".join(encode(item) for item in node) + "]"
    return json.dumps(node)


def _containers(node: Any) -> list[Any]:
    found = [node] if isinstance(node, dict | list) else []
    inner = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    for item in inner:
        found += _containers(item)
    return found


def _mutate(draw: st.DrawFn, tree: Any) -> None:
    """Change one thing anywhere in a tree."""
    place = draw(st.sampled_from(_containers(tree)))
    keys = list(place) if isinstance(place, dict) else list(range(len(place)))
    kind = draw(st.sampled_from(["replace", "replace", "replace", "remove", "add", "double"]))
    if kind == "add" or not keys:
        if isinstance(place, list):
            place.insert(draw(st.integers(0, len(place))), draw(_VALUES))
        else:
            place[draw(_KEYS)] = draw(_VALUES)
        return
    key = draw(st.sampled_from(keys))
    if kind == "replace":
        place[key] = draw(_VALUES)
    elif kind == "remove":
        del place[key]
    elif isinstance(place, list):
        place.append(copy.deepcopy(place[key]))
    else:
        # The same key twice: the second one is written behind the first one's value.
        twice = f"{encode(place[key])},{json.dumps(key)}:{encode(draw(_VALUES))}"
        place[key] = Token(twice)


@st.composite
def bodies(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """Return a target and JSON with one to three changes, or bytes that are none."""
    target, valid = draw(st.sampled_from(VALID))
    tree = copy.deepcopy(valid)
    for _ in range(draw(st.integers(1, 3))):
        _mutate(draw, tree)
    body = encode(tree).encode(draw(st.sampled_from(["utf-8"] * 12 + ["utf-16", "utf-8-sig"])))
    kind = draw(st.sampled_from(["whole"] * 8 + ["cut", "spliced", "noise"]))
    if kind == "cut":
        body = body[: draw(st.integers(1, len(body)))]
    elif kind == "spliced":
        at = draw(st.integers(0, len(body)))
        body = body[:at] + draw(st.binary(max_size=8)) + body[at:]
    elif kind == "noise":
        body = draw(st.binary(min_size=1, max_size=200))
    return target, body


CONTENT_TYPES = st.one_of(
    st.sampled_from(
        [
            *[b"application/json"] * 8, b"application/json; charset=utf-16",
            b"application/json;charset=\xff", b"text/html", b"application/json;" * 1000,
            b"multipart/form-data; boundary=" + b"x" * 9000, b";", b"multipart/form-data",
            b"application/x-www-form-urlencoded", b"", b"application/",
            b'application/json; charset="utf-8', b"application/json; charset=utf-8; charset=x",
        ]
    ),
    st.binary(max_size=30),
)  # fmt: skip

_SEGMENTS = st.one_of(
    st.sampled_from(
        [
            b"v1", b"sessions", b"SESSION", b"events", b"io", b"capabilities", b"probe", b"apps",
            b"internal", b"bundles", b"..", b".", b"", b"%00", b"%2f", b"%2e%2e", b"%ff", b"%",
            b"%zz", b"a;b=c", b"%c3%a9", b"%f0%9f%99%82", b"%0d%0a", b"*", b"admin", b"static",
            b"health", b"livez", b"readyz", b"openapi.json", b"docs", b"workspace", b"%25%30%30",
            b"x" * 300, b"a" * 12, b"%ed%a0%80", b"favicon.ico", b"\x7f", b"\xb0", b"|", b'"',
        ]
    ),
    st.binary(max_size=12),
)  # fmt: skip
_QUERIES = st.one_of(
    st.sampled_from(
        [
            b"", b"?lastEventId=9", b"?lastEventId=" + b"9" * 15_000, b"?lastEventId=%ff&&=&=",
            b"?lastEventId=-1", b"?lastEventId=1e5", b"?lastEventId=%D9%A3", b"?" + b"a&" * 7000,
            b"?" + b"a=b&" * 25_000, b"?app=app&app=app", b"?%", b"?a=%zz", b"?lastSeq=\xff", b"?",
            b"?token=" + b"0" * 48, b"?path=../../etc/passwd", b"?[]=1&[a][b]=2", b"?#", b"??",
        ]
    ),
    st.binary(max_size=20).map(lambda query: b"?" + query),
)  # fmt: skip
_METHODS = st.one_of(
    st.sampled_from(
        [
            *[b"GET"] * 4, b"POST", b"PUT", b"DELETE", b"OPTIONS", b"HEAD", b"PATCH", b"TRACE",
            b"CONNECT", b"get", b"PRI", b"X" * 1000, b"G\x00T", b"", b"G T", b"\xff", b"__class__",
            b"LINK",
        ]
    ),
    st.binary(max_size=5),
)  # fmt: skip
_VERSIONS = st.sampled_from(
    [b"HTTP/1.1"] * 12
    + [b"HTTP/1.0", b"HTTP/2.0", b"HTTP/0.9", b"http/1.1", b"", b"HTTP/1.1 x", b"HTTP/" + b"9" * 99]
)
_HEADERS = st.one_of(
    st.sampled_from(
        [
            b"last-event-id: 9", b"last-event-id: " + b"9" * 16_000, b"last-event-id: \xd9\xa3",
            b"origin: null", b"origin: \xff", b"origin: http://[", b"host: [", b"host: a b",
            b"host:", b"cookie: " + b"a=b; " * 3000, b"cookie: sessionid=\xff", b"a: b\r\n folded",
            b" folded", b"x-telo-accepted-terms: \xc3\xa9", b"x-forwarded-host: \x00", b"x_y: 1",
            b"no colon", b"content-length: 0", b"content-length: 00", b"content-length: +1",
            b"content-length: 1 1", b"transfer-encoding: chunked", b"transfer-encoding: gzip",
            b"transfer-encoding : chunked", b"upgrade: h2c", b"upgrade: websocket",
            b"connection: upgrade", b"te: trailers", b"expect: 100-continue", b"expect: 200-ok",
            b"range: bytes=0-", b"accept: \x80", b"authorization: Basic \xff",
            b"daphne-root-path: /x", b"daphne-root-path: \xff", b"if-modified-since: x",
            b"accept-language: " + b"a-" * 5000, b"x-http-method-override: X",
            b"access-control-request-method: \xff", b"accept-encoding: gzip;q=x",
            b"x" * 9000 + b": 1",
        ]
    ),
    st.tuples(st.binary(max_size=8), st.binary(max_size=20)).map(b": ".join),
    st.integers(1, 200).map(lambda count: b"\r\n".join([b"a: b"] * count)),
)  # fmt: skip


@st.composite
def heads(draw: st.DrawFn, session_id: str) -> bytes:
    """Return a request without a body whose line and headers are odd."""
    if draw(st.booleans()):
        path = draw(
            st.sampled_from([b"/v1/sessions/SESSION/events", b"/v1/health", b"/v1/sessions"])
        )
    else:
        path = b"/" + b"/".join(draw(st.lists(_SEGMENTS, max_size=6)))
        path = draw(st.sampled_from([path] * 9 + [path.strip(b"/"), b"http://x" + path, b"*"]))
    target = (path + draw(_QUERIES)).replace(b"SESSION", session_id.encode())
    line = b" ".join([draw(_METHODS), target, draw(_VERSIONS)])
    headers = draw(st.lists(_HEADERS, max_size=4))
    end = draw(st.sampled_from([b"\r\n"] * 8 + [b"\n", b"\r"]))
    return end.join([line, b"host: runner", b"connection: close", *headers, b"", b""])


_CHUNKS = st.sampled_from(
    [
        b"5\r\nhello\r\n0\r\n\r\n", b"0\r\n\r\n", b"5;a=b\r\nhello\r\n0\r\n\r\n",
        b"0x5\r\nhello\r\n", b"+5\r\nhello\r\n", b"-1\r\n", b"5 \r\nhello\r\n", b"5\nhello\n0\n\n",
        b"FFFFFFFFFFFFFFFFF\r\n", b"5\r\nhelloXX0\r\n\r\n", b"\r\n", b"5;" + b"x" * 5000 + b"\r\n",
        b"0\r\na: b\r\n\r\n", b"0\r\n" + b"a: b\r\n" * 20_000 + b"\r\n",
        b"5;\x00\r\nhello\r\n0\r\n\r\n", b"g\r\n", b"5\r", b"00000000000005\r\nhello\r\n0\r\n\r\n",
        b"1\r\nx\r\n" * 300 + b"0\r\n\r\n", b"5\r\nhe",
    ]
)  # fmt: skip
_LENGTHS = st.sampled_from(
    [
        b"content-length: 5", b"content-length: 5\r\ncontent-length: 5", b"content-length: abc",
        b"content-length: 5\r\ncontent-length: 6", b"content-length: 5, 5", b"content-length: -1",
        b"content-length: 18446744073709551616", b"content-length: 5\r\n 0", b"content-length:",
        b"transfer-encoding: chunked", b"transfer-encoding: chunked\r\ncontent-length: 5",
        b"content-length: 5\r\ntransfer-encoding: chunked", b"transfer-encoding: xchunked",
        b"transfer-encoding: chunked, identity", b"transfer-encoding: identity, chunked",
        b"transfer-encoding: chunked\r\ntransfer-encoding: chunked",
        b"transfer-encoding:\tchunked", b"transfer-encoding: CHUNKED",
        b"transfer-encoding:\x0bchunked", b"content-length: \xd9\xa3",
    ]
)  # fmt: skip
SMUGGLED = b"GET /v1/smuggled HTTP/1.1\r\nhost: runner\r\nconnection: close\r\n\r\n"


@st.composite
def framings(draw: st.DrawFn) -> list[bytes]:
    """Return pieces of requests whose bodies have odd ends, more requests behind them."""
    pieces = []
    for _ in range(draw(st.integers(1, 3))):
        head = [b"POST /v1/sessions HTTP/1.1", b"host: runner", b"content-type: application/json"]
        body = (
            draw(_CHUNKS) if draw(st.booleans()) else draw(st.sampled_from([b"hello", b"{}", b""]))
        )
        pieces.append(b"\r\n".join([*head, draw(_LENGTHS), b"", b""]) + body)
    pieces.append(draw(st.sampled_from([SMUGGLED, b"", b"\r\n\r\n", b"\x16\x03\x01\x02\x00\x01"])))
    if draw(st.booleans()):
        return pieces
    return [b"".join(pieces)]
