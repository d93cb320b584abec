import time
from decimal import Decimal

import pytest

from telorunner.values.quantity import (
    format_bytes,
    format_cpu,
    parse_bytes,
    parse_cpu_millis,
    parse_quantity,
)


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("0", 0),
        ("1", 1),
        ("+1", 1),
        ("-1", -1),
        (".5", Decimal("0.5")),
        ("1.", 1),
        ("1.5", Decimal("1.5")),
        ("100m", Decimal("0.1")),
        ("1n", Decimal("1e-9")),
        ("1u", Decimal("1e-6")),
        ("1k", 1000),
        ("1M", 10**6),
        ("1Mi", 2**20),
        ("1m", Decimal("0.001")),
        ("1e3", 1000),
        ("1E3", 1000),
        ("1E-3", Decimal("0.001")),
        ("1e+3", 1000),
        ("129e6", 129_000_000),
        ("12E", 12 * 10**18),
        ("1Ei", 2**60),
        ("1.5Gi", 1536 * 2**20),
        ("1536Mi", 1536 * 2**20),
    ],
)
def test_quantities_are_read_exactly(text: str, amount: Decimal | int) -> None:
    assert parse_quantity(text) == amount


@pytest.mark.parametrize(
    "text",
    ["", " ", " 1", "1 ", "1_0", "\u0661", "0x10", "1e", "1ee3", "1KI", "1Kib", "1mi", "1K", ".",
     "--1", "1.2.3", "NaN", "Infinity", "1e3Mi", "1\n", "1e1000", "1e31", "9" * 65, "1,5"],
)  # fmt: skip
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="quantity"):
        parse_quantity(text)


@pytest.mark.parametrize("text", ["1e999999", "1e-999999", "1" * 10_000, "1e" + "9" * 100_000])
def test_huge_texts_are_refused_at_once(text: str) -> None:
    began = time.perf_counter()
    with pytest.raises(ValueError, match="quantity"):
        parse_quantity(text)
    assert time.perf_counter() - began < 0.1


def test_equal_amounts_in_any_spelling_are_equal() -> None:
    assert parse_bytes("1.5Gi") == parse_bytes("1536Mi") == parse_bytes("1610612736")
    assert parse_cpu_millis(".5") == parse_cpu_millis("500m") == 500


@pytest.mark.parametrize("text", ["1n", "0", "-1", "0.9m"])
def test_less_than_a_millicore_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="1m"):
        parse_cpu_millis(text)


@pytest.mark.parametrize(("text", "millis"), [("1m", 1), ("100.5m", 101), ("2", 2000)])
def test_cpu_is_rounded_up_to_millicores(text: str, millis: int) -> None:
    assert parse_cpu_millis(text) == millis


@pytest.mark.parametrize("text", ["100m", "0", "0.5", "-1Gi", "4095Ki"])
def test_memory_that_nothing_fits_into_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="4Mi"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("count", "text"),
    [(2**30, "1Gi"), (1536 * 2**20, "1536Mi"), (100_000_000, "100000000"), (4 * 2**20, "4Mi")],
)
def test_bytes_are_written_canonically(count: int, text: str) -> None:
    assert format_bytes(count) == text
    assert parse_bytes(text) == count


@pytest.mark.parametrize(("millis", "text"), [(500, "500m"), (2000, "2"), (1, "1m")])
def test_cpu_is_written_canonically(millis: int, text: str) -> None:
    assert format_cpu(millis) == text
    assert parse_cpu_millis(text) == millis
