"""The smallest objects that both clusters take, and what is equal of a refusal on both."""

import json
import uuid
from typing import Any

from tests.conformance.client import Answer, Object

# Every cluster of ours has it; the local one runs no image and takes any name.
IMAGE = "telo.test/busybox:1"


def make_pod(name: str = "one", *, command: list[str] | None = None, **spec: Any) -> Object:
    """Return a pod that sleeps, ends at once when told to and fits any Pod Security level."""
    container = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": command or ["sleep", "600"],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 1000,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container],
            **spec,
        },
    }


def make_configmap(name: str = "one", *, data: Object | None = None, **metadata: Any) -> Object:
    """Return a ConfigMap with one value."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, **metadata},
        "data": {"a": "b"} if data is None else data,
    }


def make_name() -> str:
    """Return a name for a namespace that nobody else has."""
    return f"telo-conf-{uuid.uuid4().hex[:8]}"


def make_failure(code: int, reason: str, message: str, details: Object | None = None) -> Object:
    """Return the Status of a refusal."""
    found: Object = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "details": details,
        "code": code,
    }
    # The real API leaves out what there is not.
    return {field: value for field, value in found.items() if value not in (None, "")}


def make_invalid(kind: str, name: str, *faults: tuple[str, str, str], group: str = "") -> Object:
    """Return the Status of 422; faults are (reason after `FieldValue`, field, text)."""
    causes = [
        {"reason": f"FieldValue{reason}", "message": text, "field": field}
        for reason, field, text in faults
    ]
    # What is found twice is told once in the message.
    parts = list(dict.fromkeys(f"{field}: {text}" for _, field, text in faults))
    told = parts[0] if len(parts) == 1 else f"[{', '.join(parts)}]"
    details: Object = {"name": name} if name else {}
    details |= {"group": group} if group else {}
    details |= {"kind": kind, "causes": causes}
    shown = f"{kind}.{group}" if group else kind
    return make_failure(422, "Invalid", f'{shown} "{name}" is invalid: {told}', details)


def check_refusal(answer: Answer, expected: Object, *, is_exact: bool = True) -> None:
    """Check that an answer is that refusal: to the byte, or as JSON."""
    assert answer.body == expected
    assert not is_exact or answer.text == _as_go_writes(expected)
    assert answer.status == expected["code"]
    assert answer.headers["Content-Type"] == "application/json"


def _as_go_writes(status: Object) -> bytes:
    text = json.dumps(status, separators=(",", ":"), ensure_ascii=False)
    for plain in "<>&":
        text = text.replace(plain, f"\\u{ord(plain):04x}")
    return text.encode() + b"\n"
