"""The bench still works: every measurement, with counts that mean nothing."""

import re
import subprocess
import sys

import pytest

from tests.serving import ROOT


@pytest.mark.cluster
@pytest.mark.parametrize(
    "measurement", ["create", "watches", "streams", "memory", "pods", "starts", "routes"]
)
def test_a_measurement_gives_its_figures(measurement: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "bench", "--tiny", measurement],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        cwd=ROOT,
    )
    assert ran.returncode == 0, ran.stderr
    assert len(re.findall(r"^\| .+ \|$", ran.stdout, re.MULTILINE)) > 3
