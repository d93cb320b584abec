"""Sealed environments: only the right key opens them, and nothing shows."""

import pytest

from telorunner import secretbox

KEY = "k" * 50
OTHER = "o" * 50
PLAIN = b'{"TOKEN": "hunter2"}'


def test_what_was_sealed_is_opened_with_the_same_key() -> None:
    assert secretbox.open(secretbox.seal(PLAIN, [KEY]), [KEY]) == PLAIN


def test_the_first_key_seals_and_every_key_opens() -> None:
    old = secretbox.seal(PLAIN, [OTHER])
    assert secretbox.open(old, [KEY, OTHER]) == PLAIN
    new = secretbox.seal(PLAIN, [KEY, OTHER])
    assert secretbox.open(new, [KEY]) == PLAIN


def test_another_key_opens_nothing_and_says_nothing() -> None:
    with pytest.raises(secretbox.CannotOpen) as caught:
        secretbox.open(secretbox.seal(PLAIN, [KEY]), [OTHER])
    assert KEY not in str(caught.value)
    assert OTHER not in str(caught.value)


@pytest.mark.parametrize("place", [0, 10, 40, -1])
def test_a_changed_byte_is_noticed(place: int) -> None:
    sealed = bytearray(secretbox.seal(PLAIN, [KEY]))
    sealed[place] ^= 1
    with pytest.raises(secretbox.CannotOpen):
        secretbox.open(bytes(sealed), [KEY])


def test_nothing_of_the_plain_text_shows_and_no_two_seals_are_alike() -> None:
    first, second = secretbox.seal(PLAIN, [KEY]), secretbox.seal(PLAIN, [KEY])
    assert first != second
    assert b"hunter2" not in first


def test_a_view_of_memory_as_databases_return_it_is_opened() -> None:
    sealed = secretbox.seal(PLAIN, [KEY])
    view: bytes = memoryview(sealed)  # type: ignore[assignment] # what psycopg hands to Django
    assert secretbox.open(view, [KEY]) == PLAIN


def test_a_derived_key_serves_one_purpose_and_is_the_same_everywhere() -> None:
    key = secretbox.derive(KEY, b"one purpose")
    assert len(key) == 32
    assert key == secretbox.derive(KEY, b"one purpose")
    assert key != secretbox.derive(KEY, b"another purpose")
    assert key != secretbox.derive(OTHER, b"one purpose")
