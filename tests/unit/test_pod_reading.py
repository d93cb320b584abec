"""What is read off a pod's JSON, whatever stands there."""

from typing import Any

import pytest

from sessions.pods import reading
from tests.unit.pods import pod


@pytest.mark.parametrize(
    ("value", "address"),
    [
        ("10.244.0.7", "10.244.0.7"),
        ("127.40.7.1", "127.40.7.1"),
        ("fd00:0:0::7", "fd00::7"),
        (None, ""),
        ("", ""),
        (2130706433, ""),
        ("example.org", ""),
        ("10.0.0.1:80", ""),
        ("10.0.0.1/8", ""),
        # These would be the runner's own machine, or many.
        ("0.0.0.0", ""),  # noqa: S104 - not bound
        ("::", ""),
        ("224.0.0.1", ""),
    ],
)
def test_only_an_address_that_is_one_pods_is_dialled(value: Any, address: str) -> None:
    assert reading.address(pod("Running", podIP=value)) == address


def test_a_pod_without_a_status_has_no_address() -> None:
    assert reading.address({"metadata": {}}) == ""
    assert reading.address({"status": None}) == ""
