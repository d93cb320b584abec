import pytest

from telorunner.values.dns import is_dns_label


@pytest.mark.parametrize("text", ["a", "0", "a-b", "a0", "a" * 63])
def test_labels_are_labels(text: str) -> None:
    assert is_dns_label(text)


@pytest.mark.parametrize(
    "text", ["", "-", "-a", "a-", "A", "a_b", "a.b", "a b", "é", "a\n", "a\0", "a" * 64, "٣"]
)
def test_other_texts_are_not(text: str) -> None:
    assert not is_dns_label(text)


def test_the_length_can_be_less() -> None:
    assert is_dns_label("a" * 59, 59)
    assert not is_dns_label("a" * 60, 59)
