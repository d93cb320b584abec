from pathlib import Path

import pytest

from telorunner.localcluster.node.process import StartFailure, find_executable


def test_a_command_is_found_on_the_containers_path(tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("")
    (tmp_path / "folder").mkdir()
    with pytest.raises(StartFailure, match='exec: "tool": executable file not found in \\$PATH'):
        find_executable("tool", str(tmp_path), "/")
    (tmp_path / "tool").chmod(0o755)
    assert find_executable("tool", f"/nowhere:{tmp_path}", "/") == str(tmp_path / "tool")
    assert find_executable("./tool", "", str(tmp_path)) == f"{tmp_path}/./tool"


@pytest.mark.parametrize(
    ("name", "detail"),
    [
        ("/no/such", 'exec: "/no/such": stat /no/such: no such file or directory'),
        ("/etc", 'exec: "/etc": permission denied'),
    ],
)
def test_what_cannot_be_executed_is_said_as_the_runtime_does(name: str, detail: str) -> None:
    with pytest.raises(StartFailure) as failed:
        find_executable(name, "/bin", "/")
    assert failed.value.message == (
        "failed to create containerd task: failed to create shim task: OCI runtime create failed:"
        f" runc create failed: unable to start container process: {detail}: unknown"
    )
