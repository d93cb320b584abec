import re
from pathlib import Path

import pytest

from telorunner.localcluster.node.logs import (
    LINE_BYTES,
    ROTATE_BYTES,
    LogFile,
    LogRequest,
    find_tail,
    format_lines,
    format_time,
    last_lines,
    parse_line,
    read_log,
)

MOMENT = 1_795_980_000_123_456_789


async def read(log: LogFile, **options: object) -> bytes:
    request = LogRequest("ns", "pod", **options)  # type: ignore[arg-type] # a test's shorthand
    return b"".join([piece async for piece in read_log(log, request)])


def test_moments_have_nine_decimals() -> None:
    assert format_time(MOMENT) == b"2026-11-29T19:20:00.123456789Z"
    assert format_time(0) == b"1970-01-01T00:00:00.000000000Z"


def test_lines_are_written_as_the_container_runtime_does() -> None:
    assert format_lines(1, b"a\r\n\nb\r\r\nc", MOMENT, is_last=True) == (
        b"2026-11-29T19:20:00.123456789Z stdout F a\n"
        b"2026-11-29T19:20:00.123456789Z stdout F \n"
        b"2026-11-29T19:20:00.123456789Z stdout F b\r\n"
        b"2026-11-29T19:20:00.123456789Z stdout P c\n"
    )


def test_a_line_is_parsed_back() -> None:
    line = parse_line(b"2026-11-29T19:20:00.123456789Z stderr P a b  c")
    assert line is not None
    assert (line.is_partial, line.text) == (True, b"a b  c")
    assert parse_line(b"") is None
    assert parse_line(b"broken") is None


async def test_an_unfinished_line_is_held_back_until_it_ends(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "0.log")
    log.write(1, b"a\nb")
    log.write(2, b"error\n")
    assert await read(log) == b"a\nerror\n"
    log.write(1, b"c\nd")
    assert await read(log) == b"a\nerror\nbc\n"
    log.close()
    assert await read(log) == b"a\nerror\nbc\nd"
    pattern = rb"(\S+Z) a\n(\S+Z) error\n(\S+Z) bc\n(\S+Z) d"
    assert re.fullmatch(pattern, await read(log, timestamps=True))


async def test_a_line_longer_than_a_part_comes_back_whole(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "0.log")
    long = bytes(range(32, 127)) * 1000
    for start in range(0, len(long), 5000):
        log.write(1, long[start : start + 5000])
    log.write(1, b"\r\nshort\n")
    log.close()
    assert await read(log) == long + b"\nshort\n"
    assert (await read(log, timestamps=True)).count(b"Z ") == 2
    longest = max(len(line) for line in (tmp_path / "0.log").read_bytes().splitlines())
    assert longest < LINE_BYTES + 60


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"tail_lines": 0}, b""),
        ({"tail_lines": 1}, b"line 4999\n"),
        ({"tail_lines": 4999}, b"".join(b"line %d\n" % number for number in range(1, 5000))),
        ({"tail_lines": 99_999}, b"".join(b"line %d\n" % number for number in range(5000))),
        ({"limit_bytes": 9}, b"line 0\nli"),
        ({"limit_bytes": 9, "tail_lines": 2}, b"line 4998"),
        ({"since_time": "2999-01-01T00:00:00Z"}, b""),
        ({"since_time": "2000-01-01T00:00:00+02:00", "limit_bytes": 7}, b"line 0\n"),
    ],
)
async def test_a_part_of_a_log_can_be_read(
    tmp_path: Path, options: dict[str, object], expected: bytes
) -> None:
    log = LogFile(tmp_path / "0.log")
    for number in range(5000):
        log.write(1, b"line %d\n" % number)
    log.close()
    assert await read(log, **options) == expected


async def test_nothing_written_reads_as_nothing(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "0.log")
    assert await read(log) == b""
    assert last_lines(log, lines=80, limit_bytes=2048) == ""
    log.close()
    assert await read(log, follow=True) == b""


async def test_a_full_log_is_rotated_and_kept_bounded(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "0.log")
    block = b"x" * 9_999 + b"\n"
    for _ in range(3 * ROTATE_BYTES // len(block)):
        log.write(1, block)
    log.write(1, b"last\n")
    log.close()
    sizes = _sizes(tmp_path)
    assert set(sizes) == {"0.log", "0.log.1"}
    assert max(sizes.values()) <= ROTATE_BYTES
    assert (await read(log)).endswith(b"x\nlast\n")


def _sizes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in folder.iterdir()}


def test_a_tail_is_found_across_blocks(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"".join(b"%0100d\n" % number for number in range(2000)))
    with path.open("rb") as file:
        file.seek(find_tail(file, 1500))
        assert file.readline() == b"%0100d\n" % 500
        assert find_tail(file, 2000) == find_tail(file, 5000) == 0


async def test_the_end_of_a_log_explains_a_failure(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "0.log")
    for number in range(200):
        log.write(1, b"line %d\n" % number)
    log.write(2, b"\xff")
    log.close()
    text = last_lines(log, lines=3, limit_bytes=2048)
    assert text == "line 198\nline 199\n\ufffd"
    assert last_lines(log, lines=80, limit_bytes=4) == "199\n\ufffd"[-4:]


async def test_a_disk_that_takes_nothing_does_not_stop_the_container(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = LogFile(tmp_path / "missing" / "0.log")
    log.write(1, b"a\n")
    log.write(1, b"b\n")
    log.close()
    assert caplog.text.count("output is lost") == 1
