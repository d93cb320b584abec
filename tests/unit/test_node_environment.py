import base64
from typing import Any

import pytest

from telorunner.localcluster.node.environment import (
    ConfigTrouble,
    build_argv,
    build_env,
    expand,
    field_value,
)
from telorunner.localcluster.node.images import Image

POD = {
    "metadata": {
        "name": "one",
        "namespace": "telo-sessions",
        "uid": "1-2",
        "labels": {"telo.run/session-id": "abc"},
    },
    "spec": {"nodeName": "local"},
}
OBJECTS = {
    ("configmaps", "settings"): {"kind": "ConfigMap", "data": {"COLOUR": "blue", "N": "$(A)"}},
    ("secrets", "keys"): {
        "kind": "Secret",
        "data": {"TOKEN": base64.b64encode(b"s3cret").decode()},
    },
}


def lookup(resource: str, name: str) -> dict[str, Any] | None:
    return OBJECTS.get((resource, name))


def env_of(**container: Any) -> dict[str, str]:
    return build_env(POD, container, "127.20.0.9", lookup)


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$(A)", "x"),
        ("a$(A)b$(A)", "axbx"),
        ("$(NOBODY)", "$(NOBODY)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$x"),
        ("$$$$", "$$"),
        ("$(A", "$(A"),
        ("$A ${A} $", "$A ${A} $"),
        ("$()", "$()"),
        ("$(\n)", "$(\n)"),
        ("", ""),
    ],
)
def test_references_are_expanded_as_the_kubelet_does(text: str, expanded: str) -> None:
    assert expand(text, {"A": "x"}) == expanded


def test_a_value_sees_the_variables_before_it_and_the_arguments_all() -> None:
    container = {
        "env": [
            {"name": "A", "value": "$(B)-1"},
            {"name": "B", "value": "2"},
            {"name": "C", "value": "$(A)-$(B)"},
        ],
        "command": ["run", "$(C)"],
        "args": ["$$(A)"],
    }
    env = env_of(**container)
    assert env == {"A": "$(B)-1", "B": "2", "C": "$(B)-1-2"}
    image = Image("x", ("never",), ("never",))
    assert build_argv(container, image, env) == ["run", "$(B)-1-2", "$(A)"]


@pytest.mark.parametrize(
    ("container", "argv"),
    [
        ({}, ["entry", "$$", "cmd"]),
        ({"command": [], "args": []}, ["entry", "$$", "cmd"]),
        ({"args": ["a"]}, ["entry", "$$", "a"]),
        ({"command": ["c"]}, ["c"]),
        ({"command": ["c"], "args": ["a"]}, ["c", "a"]),
    ],
)
def test_a_command_replaces_all_of_the_image_and_arguments_its_cmd(
    container: dict[str, Any], argv: list[str]
) -> None:
    assert build_argv(container, Image("x", ("entry", "$$"), ("cmd",)), {}) == argv


def test_values_come_from_config_maps_secrets_and_the_pod() -> None:
    env = env_of(
        envFrom=[{"prefix": "CM_", "configMapRef": {"name": "settings"}}],
        env=[
            {
                "name": "T",
                "valueFrom": {"secretKeyRef": {"name": "keys", "key": "TOKEN"}},
            },
            {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        ],
    )
    # What comes from an object is never expanded.
    assert env == {
        "CM_COLOUR": "blue",
        "CM_N": "$(A)",
        "T": "s3cret",
        "NAME": "one",
        "IP": "127.20.0.9",
    }


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ({"configMapKeyRef": {"name": "no", "key": "a"}}, 'configmap "no" not found'),
        ({"secretKeyRef": {"name": "no", "key": "a"}}, 'secret "no" not found'),
        (
            {"configMapKeyRef": {"name": "settings", "key": "a"}},
            "couldn't find key a in ConfigMap telo-sessions/settings",
        ),
        ({"resourceFieldRef": {}}, "the local cluster has no values from resourceFieldRef"),
    ],
)
def test_a_missing_source_is_named(reference: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigTrouble) as failed:
        env_of(env=[{"name": "A", "valueFrom": reference}])
    assert failed.value.message == message


def test_an_optional_source_may_be_missing() -> None:
    reference = {"configMapKeyRef": {"name": "no", "key": "a", "optional": True}}
    assert env_of(env=[{"name": "A", "valueFrom": reference}]) == {}
    assert env_of(envFrom=[{"secretRef": {"name": "no", "optional": True}}]) == {}


def test_fields_of_the_pod_are_found_by_path() -> None:
    assert field_value(POD, "metadata.labels['telo.run/session-id']", "") == "abc"
    assert field_value(POD, "spec.nodeName", "") == "local"
    with pytest.raises(ConfigTrouble):
        field_value(POD, "spec.containers", "")
