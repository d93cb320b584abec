"""`manage.py runcluster`: one cluster a data folder, in the foreground, ended by a signal."""

import re
import subprocess
import sys
from pathlib import Path

from tests.serving import ROOT, Process

READY = re.compile(r"KUBECONFIG=(\S+)")


def test_runcluster_holds_its_folder_until_it_is_stopped(tmp_path: Path) -> None:
    environment = {"RUNNER_DATA_DIR": str(tmp_path), "RUNNER_CLUSTER": "local"}
    first = Process("runcluster", environment=environment)
    try:
        kubeconfig = Path(first.wait_for(READY)[1])
        assert kubeconfig.is_file()
        second = subprocess.run(
            [sys.executable, str(ROOT / "manage.py"), "runcluster"],
            env={"PATH": "/usr/bin:/bin", **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert second.returncode == 2
        assert second.stderr.splitlines() == [
            "telorunner: RUNNER_DATA_DIR: a local cluster is running for this folder already."
        ]
    finally:
        code = first.stop()
    assert code == 0
    assert any("NO SANDBOX" in line for line in first.output)
