"""The pod of an app session: the operator's image as it is, confined from outside."""

import dataclasses
from typing import Any

import pytest

from sessions.pods.app import build_app_pod
from sessions.spec import App, Limits, Port, RunPodSpec, SessionSpec
from sessions.states import Delivery, Mode, Protocol
from telorunner.values.pullpolicy import PullPolicy

SESSION_ID = "abcdefghijkl"


def make_spec(
    *,
    ports: tuple[Port, ...] = (),
    env: dict[str, str] | None = None,
    pull_policy: PullPolicy = PullPolicy.MISSING,
    allow_root: bool = False,
    is_inspected: bool = False,
    **pod: Any,
) -> RunPodSpec:
    session = SessionSpec(
        session_id=SESSION_ID,
        mode=Mode.RUN,
        image="registry.example/team/code-helper:1.2",
        pull_policy=pull_policy,
        apps=(App("app", "", ports),),
        limits=Limits(250, 256 * 2**20, 2**30, 21_600),
        is_inspected=is_inspected,
        delivery=Delivery.NONE,
        app_name="code-helper",
        allow_root=allow_root,
    )
    return RunPodSpec(
        session=session,
        namespace="telo-sessions",
        managed_by="telo-k8s-runner",
        env=env or {},
        **pod,
    )


def container(spec: RunPodSpec) -> dict[str, Any]:
    only: dict[str, Any]
    (only,) = build_app_pod(spec)["spec"]["containers"]
    return only


def test_the_whole_manifest_of_an_app_that_was_asked_for_nothing() -> None:
    assert build_app_pod(make_spec(env={"GREETING": "hello"})) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"telo-run-{SESSION_ID}",
            "namespace": "telo-sessions",
            "labels": {
                "app.kubernetes.io/managed-by": "telo-k8s-runner",
                "telo.run/session-id": SESSION_ID,
                "telo.run/app": "code-helper",
            },
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
    pod = build_app_pod(make_spec(allow_root=True))
    strict = build_app_pod(make_spec())
    del strict["spec"]["securityContext"]["runAsNonRoot"]
    del strict["spec"]["containers"][0]["securityContext"]["runAsNonRoot"]
    assert pod == strict


def test_secret_runtime_class_and_ports_appear_only_when_asked_for() -> None:
    ports = (Port(8080), Port(5353, Protocol.UDP))
    pod = build_app_pod(make_spec(ports=ports, image_pull_secret="pull", runtime_class="gvisor"))
    assert pod["spec"]["imagePullSecrets"] == [{"name": "pull"}]
    assert pod["spec"]["runtimeClassName"] == "gvisor"
    assert pod["spec"]["containers"][0]["ports"] == [
        {"containerPort": 8080, "protocol": "TCP"},
        {"containerPort": 5353, "protocol": "UDP"},
    ]


@pytest.mark.parametrize(
    ("asked", "policy"),
    [
        (PullPolicy.ALWAYS, "Always"),
        (PullPolicy.NEVER, "Never"),
        (PullPolicy.MISSING, "IfNotPresent"),
    ],
)
def test_pull_policy_is_the_pods_own(asked: PullPolicy, policy: str) -> None:
    assert container(make_spec(pull_policy=asked))["imagePullPolicy"] == policy


def test_nothing_takes_the_place_of_the_images_own_entrypoint() -> None:
    plain = container(make_spec())
    assert not {"command", "args", "workingDir", "volumeMounts"} & set(plain)
    # A debug stream is the image's own affair: nothing in the pod asks for it.
    assert container(make_spec(is_inspected=True)) == plain


def test_variables_reach_the_process_as_they_are_and_forced_colour_is_the_runners() -> None:
    env = {"A": "$(B) $$ $x", "CLICOLOR_FORCE": "0", "NO_COLOR": "1"}
    listed = container(make_spec(env=env))["env"]
    assert {entry["name"]: entry["value"] for entry in listed} == {
        "A": "$$(B) $$$ $x",
        "CLICOLOR_FORCE": "1",
        "NO_COLOR": "1",
    }
    assert len(listed) == 3


def test_env_values_do_not_show_in_a_repr() -> None:
    assert "needle" not in repr(make_spec(env={"TOKEN": "needle"}))


def test_the_spec_is_not_changed_by_building() -> None:
    spec = make_spec(env={"A": "1"})
    before = dataclasses.replace(spec, env=dict(spec.env))
    build_app_pod(spec)
    assert spec == before
