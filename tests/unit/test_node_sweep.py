"""Which processes of the machine are taken for a container's, and which never."""

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from telorunner.localcluster.node.sweep import (
    Marker,
    container_marker,
    find_processes,
    kill_leftovers,
    kill_processes,
    memory_bytes,
    node_marker,
)

UID = "2eba00fa-1e40-4101-9bd7-7d4ea2df58f3"


def tools_of(pods_dir: Path, uid: str = UID, container: str = "session") -> Path:
    return pods_dir / uid / "containers" / container / "bin"


@pytest.fixture
def pods_dir(tmp_path: Path) -> Path:
    return tmp_path / "pods"


@pytest.fixture
def marker(pods_dir: Path) -> Marker:
    return container_marker(tools_of(pods_dir))


class Sleepers:
    """Starts processes with an environment and ends them."""

    def __init__(self) -> None:
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, *, session: bool = False, **env: str) -> subprocess.Popen[bytes]:
        popen = subprocess.Popen(["/bin/sleep", "300"], env=env, start_new_session=session)
        self.started.append(popen)
        # A kernel shows a new program's environment a moment after it has let the parent go on.
        while env and not Path(f"/proc/{popen.pid}/environ").read_bytes():
            pass
        return popen


@pytest.fixture
def sleepers() -> Iterator[Sleepers]:
    sleepers = Sleepers()
    yield sleepers
    for popen in sleepers.started:
        popen.kill()
        popen.wait()


@pytest.mark.parametrize("session", [-1, 0, 1, os.getsid(0)])
def test_the_machines_sessions_and_the_own_are_never_looked_for(
    marker: Marker, session: int
) -> None:
    with pytest.raises(ValueError, match="session"):
        find_processes(marker, session=session)
    with pytest.raises(ValueError, match="session"):
        kill_processes(marker, session=session)


@pytest.mark.parametrize("folder", ["", "/", "pods", "state/pods", "/usr", "/a/../pods", "/pods/x"])
def test_a_folder_that_is_not_a_nodes_marks_nothing(folder: str) -> None:
    with pytest.raises(ValueError, match="folder"):
        node_marker(Path(folder))
    with pytest.raises(ValueError, match="folder"):
        kill_leftovers(Path(folder))


@pytest.mark.parametrize(
    "tools",
    [
        "/",
        "/usr/bin",
        "/s/pods",
        f"/s/pods/{UID}",
        "/s/pods/0000/containers/session/bin",
        f"/s/pods/{UID}/containers/session",
        f"s/pods/{UID}/containers/session/bin",
        f"/s/pods/{UID}/containers/session/bin/..",
    ],
)
def test_a_folder_that_is_not_a_containers_marks_nothing(tools: str) -> None:
    with pytest.raises(ValueError, match="folder"):
        container_marker(Path(tools))


def test_only_a_path_that_begins_with_the_folder_is_a_mark(pods_dir: Path) -> None:
    tools = tools_of(pods_dir)
    for marker in (container_marker(tools), node_marker(pods_dir)):
        assert marker.is_in(b"HOME=/\0PATH=%s:/bin\0" % os.fsencode(tools))
        for other in (
            f"PATH=/bin:{tools}",
            f"PATH={tools}",
            f"PATH={tools}er:/bin",
            f"XPATH={tools}:/bin",
            f"NOTE=PATH={tools}:/bin",
            f"PATH={pods_dir}:/bin",
            f"PATH={pods_dir}/bin:/bin",
            f"PATH=/else{tools}:/bin",
            "",
        ):
            assert not marker.is_in(f"HOME=/\0{other}\0".encode())


def test_a_container_is_told_from_the_others_of_its_node(
    pods_dir: Path, marker: Marker, sleepers: Sleepers
) -> None:
    ours = sleepers.start(PATH=f"{tools_of(pods_dir)}:/bin")
    neighbour = sleepers.start(PATH=f"{tools_of(pods_dir, container='other')}:/bin")
    other_pod = sleepers.start(PATH=f"{tools_of(pods_dir, uid=str(uuid.uuid4()))}:/bin")
    elsewhere = sleepers.start(PATH=f"{tools_of(pods_dir / 'x' / 'pods')}:/bin")
    assert find_processes(marker) == [ours.pid]
    assert find_processes(node_marker(pods_dir)) == sorted(
        popen.pid for popen in (ours, neighbour, other_pod)
    )
    kill_processes(marker)
    assert ours.wait() == -9
    assert kill_leftovers(pods_dir) == 2
    assert (neighbour.wait(), other_pod.wait()) == (-9, -9)
    assert elsewhere.poll() is None
    assert kill_leftovers(pods_dir) == 0


def test_a_session_is_ended_whatever_its_environment(marker: Marker, sleepers: Sleepers) -> None:
    ours, other = sleepers.start(session=True), sleepers.start(session=True)
    assert find_processes(marker, session=ours.pid) == [ours.pid]
    kill_processes(marker, session=ours.pid)
    assert ours.wait() == -9
    assert kill_processes(marker)
    assert other.poll() is None


def test_the_own_process_and_those_that_started_it_are_spared(
    pods_dir: Path, marker: Marker
) -> None:
    # A cluster may run in a container: of another, or of an earlier one of the same folder.
    script = (
        "from pathlib import Path\n"
        "from telorunner.localcluster.node import sweep\n"
        f"pods_dir = Path({str(pods_dir)!r})\n"
        "assert sweep.kill_leftovers(pods_dir) == 0\n"
        "assert sweep.kill_processes(sweep.node_marker(pods_dir))\n"
        "print('alive')"
    )
    env = {
        "PATH": f"{tools_of(pods_dir)}:/usr/bin:/bin",
        "PYTHON": sys.executable,
        "SCRIPT": script,
    }
    shell = 'sh -c \'"$PYTHON" -c "$SCRIPT"; echo inner\'; echo outer'
    done = subprocess.run(["/bin/sh", "-c", shell], env=env, capture_output=True, text=True)
    assert done.stdout == "alive\ninner\nouter\n", done.stderr


def test_memory_is_counted_for_a_whole_session() -> None:
    session = os.getsid(0)
    counted = memory_bytes([session, 999_999_999])
    assert counted[999_999_999] == 0
    assert counted[session] > 1_000_000


def test_what_is_older_than_the_container_is_not_its(
    pods_dir: Path, marker: Marker, sleepers: Sleepers
) -> None:
    first = sleepers.start(PATH=f"{tools_of(pods_dir)}:/bin")
    since_first = marker.since_start_of(first.pid)
    assert find_processes(since_first) == [first.pid]
    later = Marker(marker.entry, since_first.since_ticks + 1)
    assert find_processes(later) == []
    assert kill_processes(later)
    assert first.poll() is None
