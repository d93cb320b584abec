"""The pod of an app session: the operator's image as it is, confined from outside."""

from typing import Any

from sessions.pods.app import build_app_pod
from sessions.spec import RunPodSpec
from tests.unit.specs import LABELS, SESSION_ID, app_spec, container


def app_container(spec: RunPodSpec) -> dict[str, Any]:
    return container(build_app_pod(spec))


def test_the_whole_manifest_of_an_app_that_was_asked_for_nothing() -> None:
    assert build_app_pod(app_spec(env={"GREETING": "hello"})) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"telo-run-{SESSION_ID}",
            "namespace": "telo-sessions",
            "labels": {**LABELS, "telo.run/app": "code-helper"},
        },
        "spec": {
            "restartPolicy": "Never",
            "activeDeadlineSeconds": 21_600,
            "terminationGracePeriodSeconds": 2,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": {
                "runAsNonRoot": True,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "session",
                    "image": "registry.example/team/code-helper:1.2",
                    "imagePullPolicy": "IfNotPresent",
                    "env": [
                        {"name": "GREETING", "value": "hello"},
                        {"name": "CLICOLOR_FORCE", "value": "1"},
                    ],
                    "stdin": True,
                    "stdinOnce": False,
                    "tty": True,
                    "resources": {
                        "requests": {"cpu": "250m", "memory": "256Mi"},
                        "limits": {
                            "cpu": "250m",
                            "memory": "256Mi",
                            "ephemeral-storage": "1Gi",
                        },
                    },
                    "securityContext": {
                        "runAsNonRoot": True,
                        "allowPrivilegeEscalation": False,
                        "capabilities": {"drop": ["ALL"]},
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                }
            ],
        },
    }


def test_an_image_that_may_run_as_root_differs_in_nothing_else() -> None:
    pod = build_app_pod(app_spec(allow_root=True))
    strict = build_app_pod(app_spec())
    del strict["spec"]["securityContext"]["runAsNonRoot"]
    del strict["spec"]["containers"][0]["securityContext"]["runAsNonRoot"]
    assert pod == strict


def test_nothing_takes_the_place_of_the_images_own_entrypoint() -> None:
    plain = app_container(app_spec())
    assert not {"command", "args", "workingDir", "volumeMounts"} & set(plain)
    # A debug stream is the image's own affair: nothing in the pod asks for it.
    assert app_container(app_spec(is_inspected=True)) == plain


def test_variables_reach_the_process_as_they_are_and_forced_colour_is_the_runners() -> None:
    env = {"A": "$(B) $$ $x", "CLICOLOR_FORCE": "0", "NO_COLOR": "1"}
    listed = app_container(app_spec(env=env))["env"]
    assert {entry["name"]: entry["value"] for entry in listed} == {
        "A": "$$(B) $$$ $x",
        "CLICOLOR_FORCE": "1",
        "NO_COLOR": "1",
    }
    assert len(listed) == 3
