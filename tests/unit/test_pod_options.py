"""What the pod of a session takes over from its spec, whether it runs a bundle or an app."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from sessions.pods.app import build_app_pod
from sessions.pods.run import build_run_pod
from sessions.spec import App, Port, RunPodSpec
from sessions.states import Protocol
from telorunner.values.pullpolicy import PullPolicy
from tests.unit.specs import app_spec, container, run_spec

Build = Callable[[RunPodSpec], dict[str, Any]]
MakeSpec = Callable[..., RunPodSpec]

pytestmark = pytest.mark.parametrize(
    ("build", "make_spec"),
    [(build_run_pod, run_spec), (build_app_pod, app_spec)],
    ids=["run", "app"],
)


def test_secret_runtime_class_and_ports_appear_only_when_asked_for(
    build: Build, make_spec: MakeSpec
) -> None:
    asked = make_spec(
        app=App("app", "a.yaml", ports=(Port(8080), Port(5353, Protocol.UDP))),
        image_pull_secret="pull",
        runtime_class="gvisor",
    )
    pod = build(asked)
    assert pod["spec"]["imagePullSecrets"] == [{"name": "pull"}]
    assert pod["spec"]["runtimeClassName"] == "gvisor"
    assert container(pod)["ports"] == [
        {"containerPort": 8080, "protocol": "TCP"},
        {"containerPort": 5353, "protocol": "UDP"},
    ]
    plain = build(make_spec())
    assert not {"imagePullSecrets", "runtimeClassName"} & set(plain["spec"])
    assert "ports" not in container(plain)


@pytest.mark.parametrize(
    ("asked", "policy"),
    [
        (PullPolicy.ALWAYS, "Always"),
        (PullPolicy.NEVER, "Never"),
        (PullPolicy.MISSING, "IfNotPresent"),
    ],
)
def test_pull_policy_is_the_pods_own(
    build: Build, make_spec: MakeSpec, asked: PullPolicy, policy: str
) -> None:
    assert container(build(make_spec(pull_policy=asked)))["imagePullPolicy"] == policy


def test_env_values_do_not_show_in_a_repr(build: Build, make_spec: MakeSpec) -> None:
    spec = make_spec(env={"TOKEN": "needle"})
    assert {"name": "TOKEN", "value": "needle"} in container(build(spec))["env"]
    assert "needle" not in repr(spec)


def test_the_spec_is_not_changed_by_building(build: Build, make_spec: MakeSpec) -> None:
    spec = make_spec(env={"A": "1"})
    before = dataclasses.replace(spec, env=dict(spec.env))
    build(spec)
    assert spec == before
