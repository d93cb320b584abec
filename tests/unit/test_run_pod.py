import base64
import io
import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.pods.run import (
    build_bundle_config_map,
    build_run_pod,
    literal,
)
from sessions.pods.script import START_SCRIPT
from sessions.spec import App, RunPodSpec
from sessions.states import IoMode
from tests.unit.specs import (
    HARDENED,
    LABELS,
    MOUNTS,
    POD,
    RESOURCES,
    SESSION_ID,
    VARIABLES,
    VOLUMES,
    container,
    run_spec,
)


def run_container(spec: RunPodSpec) -> dict[str, Any]:
    return container(build_run_pod(spec))


def variables(spec: RunPodSpec) -> dict[str, str]:
    pairs = [(entry["name"], entry["value"]) for entry in run_container(spec)["env"]]
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def test_the_whole_manifest_of_a_session_that_asks_for_nothing() -> None:
    assert build_run_pod(run_spec(env={"GREETING": "hello"})) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"telo-run-{SESSION_ID}",
            "namespace": "telo-sessions",
            "labels": LABELS,
        },
        "spec": {
            **POD,
            "containers": [
                {
                    "name": "session",
                    "image": "telorun/node:latest-slim",
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["sh", "-c", literal(START_SCRIPT)],
                    "args": [
                        "telo-start",
                        "/bundle/bundle.tgz",
                        "/app",
                        "/dev/termination-log",
                        "telo",
                        "run",
                        "/app/telo.yaml",
                    ],
                    "workingDir": "/work",
                    "env": VARIABLES,
                    "stdin": True,
                    "stdinOnce": False,
                    "tty": True,
                    "resources": RESOURCES,
                    "securityContext": HARDENED,
                    "volumeMounts": [
                        {"name": "bundle", "mountPath": "/bundle", "readOnly": True},
                        *MOUNTS,
                    ],
                }
            ],
            "volumes": [
                {"name": "bundle", "configMap": {"name": f"telo-run-{SESSION_ID}"}},
                *VOLUMES,
            ],
        },
    }


def test_the_whole_config_map_of_a_bundle() -> None:
    archive = bytes(range(256))
    assert build_bundle_config_map(SESSION_ID, "telo-sessions", "telo-k8s-runner", archive) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": f"telo-run-{SESSION_ID}",
            "namespace": "telo-sessions",
            "labels": LABELS,
        },
        "immutable": True,
        "binaryData": {"bundle.tgz": base64.b64encode(archive).decode()},
    }


def test_streams_have_no_terminal_and_no_forced_colour() -> None:
    spec = run_spec(app=App("app", "a.yaml", io=IoMode.STREAMS))
    assert run_container(spec)["tty"] is False
    assert run_container(spec)["stdin"] is True
    assert set(variables(spec)) == {"TELO_CACHE_DIR", "HOME", "npm_config_cache"}
    theirs = {"FORCE_COLOR": "3", "CLICOLOR_FORCE": "1"}
    forced = run_spec(app=App("app", "a.yaml", io=IoMode.STREAMS), env=theirs)
    assert variables(forced) == variables(spec)


def test_inspect_options_stand_before_the_entry() -> None:
    assert run_container(run_spec(is_inspected=True))["args"][4:] == [
        "telo",
        "run",
        "--inspect",
        "0.0.0.0:9230",
        "--no-open",
        "/app/telo.yaml",
    ]


def test_the_runners_own_variables_override_a_clients() -> None:
    names = ("HOME", "npm_config_cache", "TELO_CACHE_DIR", "CLICOLOR_FORCE", "FORCE_COLOR")
    assert variables(run_spec(env=dict.fromkeys(names, "theirs"))) == variables(run_spec())


def test_nothing_of_the_session_and_no_mount_stands_in_the_shell_text() -> None:
    entry = "$(id); rm -rf `x`\n'quote.yaml"
    spec = run_spec(app=App("app", entry), env={"NAME": "needle"})
    command = run_container(spec)["command"]
    assert command == run_container(run_spec())["command"]
    for mount in run_container(spec)["volumeMounts"]:
        assert mount["mountPath"] not in command[2]
    assert run_container(spec)["args"][-1] == "/app/" + entry.replace("$(", "$$(")


def expand(text: str) -> str:
    """Expand as a kubelet does with no variable defined: `$$` is `$`, all else stays."""
    return re.sub(r"\$\$", "$", text)


@given(st.text(alphabet="$()a{} \n", max_size=20))
def test_any_text_survives_the_kubelets_expansion(text: str) -> None:
    doubled = literal(text)
    assert expand(doubled) == text
    # No unescaped reference is left over.
    assert "$(" not in doubled.replace("$$", "")


def test_only_dollars_that_mean_something_are_doubled() -> None:
    assert literal("$HOME costs 5$") == "$HOME costs 5$"
    assert literal("$(HOME)") == "$$(HOME)"
    assert literal("$$x") == "$$$x"


def make_archive(folder: Path) -> Path:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        member = tarfile.TarInfo("deep/run.txt")
        member.size, member.uid, member.gid = 5, 4711, 4711
        archive.addfile(member, io.BytesIO(b"hello"))
    path = folder / "bundle.tgz"
    path.write_bytes(buffer.getvalue())
    return path


def start(tmp_path: Path, *argv: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    (tmp_path / "app").mkdir()
    notes = tmp_path / "termination-log"
    notes.touch()
    shell = shutil.which("sh") or "/bin/sh"
    return subprocess.run(
        [
            shell,
            "-c",
            START_SCRIPT,
            "telo-start",
            str(tmp_path / "bundle.tgz"),
            str(tmp_path / "app"),
            str(notes),
            *argv,
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={**os.environ, "PATH": path} if path is not None else None,
    )


def test_the_start_script_unpacks_and_becomes_its_arguments(tmp_path: Path) -> None:
    make_archive(tmp_path)
    odd = "$(echo no) 'a b'\n;exit 9"
    ended = start(tmp_path, "printf", "%s", odd)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, odd, "")
    assert (tmp_path / "app/deep/run.txt").read_text() == "hello"


def only(tmp_path: Path, **programs: str) -> str:
    """Make a PATH that has only the named programs."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, target in programs.items():
        (folder / name).symlink_to(target)
    return str(folder)


def test_the_start_script_works_with_busybox(tmp_path: Path) -> None:
    busybox = shutil.which("busybox")
    if busybox is None:
        pytest.skip("no busybox here")
    make_archive(tmp_path)
    path = only(tmp_path, tar=busybox, cat=busybox)
    ended = start(tmp_path, "cat", str(tmp_path / "app/deep/run.txt"), path=path)
    assert (ended.returncode, ended.stdout) == (0, "hello")


@pytest.mark.parametrize(
    ("programs", "words"), [({}, "no tar"), ({"tar": "/bin/false"}, "could not unpack")]
)
def test_a_bundle_that_cannot_be_unpacked_names_the_setting(
    tmp_path: Path, programs: dict[str, str], words: str
) -> None:
    ended = start(tmp_path, "true", path=only(tmp_path, **programs))
    assert ended.returncode == 127
    told = (tmp_path / "termination-log").read_text()
    assert words in told
    assert "RUNNER_BUNDLE_DELIVERY" in told
    assert told in ended.stderr


def test_an_image_without_the_command_says_which(tmp_path: Path) -> None:
    make_archive(tmp_path)
    ended = start(tmp_path, "no-such-kernel", "run")
    assert ended.returncode == 127
    assert "the image has no no-such-kernel command" in ended.stderr
