"""What /v1 answers with when it does what was asked."""

from typing import Any

from sessions.states import IoMode, Mode, Protocol
from sessions.store.rows import ID_ALPHABET, ID_LENGTH
from telorunner.values.port import MAX_PORT
from telorunner.values.pullpolicy import PullPolicy

Schema = dict[str, Any]

SESSION_ID: Schema = {
    "type": "string",
    "pattern": f"^[{ID_ALPHABET}]{{{ID_LENGTH}}}$",
    "description": "A session's id: random, and never used again.",
    "examples": ["k3v7q2m5xabc"],
}
TIMESTAMP: Schema = {
    "type": "string",
    "format": "date-time",
    "pattern": r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z$",
    "description": "A moment: ISO 8601 in UTC with milliseconds.",
    "examples": ["2026-01-31T12:00:00.000Z"],
}


def reference(name: str) -> Schema:
    """Return a reference to a component."""
    return {"$ref": f"#/components/schemas/{name}"}


def record(properties: dict[str, Schema], *, optional: tuple[str, ...] = (), **more: Any) -> Schema:
    """Return the schema of an object with these keys, all required but the optional ones."""
    required = [name for name in properties if name not in optional]
    return {"type": "object", "required": required, "properties": properties, **more}


def one_of(key: str, variants: dict[str, str], **more: Any) -> Schema:
    """Return the schema of an object whose `key` tells which component it is."""
    mapping = {value: f"#/components/schemas/{name}" for value, name in variants.items()}
    return {
        "oneOf": [{"$ref": pointer} for pointer in mapping.values()],
        "discriminator": {"propertyName": key, "mapping": mapping},
        **more,
    }


PORT_NUMBER: Schema = {"type": "integer", "minimum": 1, "maximum": MAX_PORT}
IO_MODE: Schema = {
    "type": "string",
    "enum": [str(mode) for mode in IoMode],
    "description": "`tty`: one terminal; `streams`: stdout and stderr apart, no size.",
}

HOST_EXAMPLE = "8080-k3v7q2m5xabc.apps.example.com"

_ENDPOINT = record(
    {
        "host": {
            "type": "string",
            "description": "The public host of the port; empty: there is none.",
            "examples": [HOST_EXAMPLE],
        },
        "port": PORT_NUMBER,
        "protocol": {"type": "string", "enum": [str(protocol) for protocol in Protocol]},
        "url": {
            "type": "string",
            "format": "uri",
            "description": "The public URL, where there is a public host.",
            "examples": [f"https://{HOST_EXAMPLE}"],
        },
    },
    optional=("url",),
    description=(
        "A port that the running application was started with. tcp ports have a public host where "
        "`features.ports` of the capabilities is true."
    ),
)

_SESSION_CREATED = record(
    {
        "sessionId": reference("SessionId"),
        "streamUrl": {
            "type": "string",
            "format": "uri-reference",
            "description": "The event stream, relative to the runner.",
            "examples": ["/v1/sessions/k3v7q2m5xabc/events"],
        },
        "createdAt": reference("Timestamp"),
    }
)

_APP = record(
    {
        "name": {"type": "string", "minLength": 1, "examples": ["app"]},
        "io": IO_MODE,
        "generation": {"type": "integer", "const": 0, "description": "0 in a run session."},
        "ports": {"type": "array", "items": reference("Port")},
    }
)

_SESSION = record(
    {
        "sessionId": reference("SessionId"),
        "status": reference("Status"),
        "mode": {"type": "string", "enum": [str(mode) for mode in Mode]},
        "apps": {"type": "array", "minItems": 1, "items": reference("App")},
        "createdAt": reference("Timestamp"),
        "exitedAt": reference("Timestamp"),
    },
    optional=("exitedAt",),
    description="A session as it is now; `exitedAt` is there once its status is a final one.",
)

_TERMS = record(
    {
        "version": {
            "type": "string",
            "minLength": 1,
            "description": "What the header `x-telo-accepted-terms` must be.",
            "examples": ["2026-01"],
        },
        "title": {"type": "string"},
        "body": {"type": "string", "description": "Markdown."},
    },
    description="The usage terms; a client shows them and sends their version with each create.",
)

_CATALOG_APP = record(
    {
        "name": {"type": "string", "minLength": 1, "examples": ["code-helper"]},
        "title": {"type": "string", "minLength": 1},
        "description": {"type": "string", "minLength": 1},
    },
    optional=("title", "description"),
    description="An app of the operator's catalog, started by its name.",
)

_CAPABILITIES = record(
    {
        "displayName": {"type": "string"},
        "description": {"type": "string"},
        "config": record({"schema": reference("ConfigSchema")}),
        "features": record(
            {
                "io": {"type": "array", "items": IO_MODE},
                "ports": {"type": "boolean", "description": "Declared ports get public hosts."},
                "watch": {"type": "boolean", "description": "Watch sessions may be created."},
                "agents": {
                    "type": "array",
                    "minItems": 1,
                    "items": {"type": "string"},
                    "description": "Apps that can be the agent of a watch session.",
                },
            },
            optional=("agents",),
        ),
        "terms": reference("Terms"),
        "apps": {
            "type": "array",
            "minItems": 1,
            "items": reference("CatalogApp"),
            "description": "In the operator's order.",
        },
    },
    optional=("terms", "apps"),
    description="What this runner offers; resolved anew at each request. There may be no `terms`, "
    "no `apps` and no `agents`: then the key is absent.",
)

_CONFIG_SCHEMA = record(
    {
        "type": {"const": "object"},
        "required": {"const": ["image", "pullPolicy"]},
        "properties": record(
            {
                "image": record(
                    {
                        "type": {"const": "string"},
                        "title": {"type": "string"},
                        "description": {"type": "string"},
                        "minLength": {"const": 1},
                        "default": {"type": "string", "minLength": 1},
                        "enum": {
                            "type": "array",
                            "minItems": 1,
                            "uniqueItems": True,
                            "items": {"type": "string", "minLength": 1},
                            "description": "All images that are offered, the default first.",
                        },
                        "readOnly": {
                            "const": True,
                            "description": "Only the default is offered.",
                        },
                    },
                    optional=("enum", "readOnly"),
                    oneOf=[{"required": ["enum"]}, {"required": ["readOnly"]}],
                ),
                "pullPolicy": record(
                    {
                        "type": {"const": "string"},
                        "title": {"type": "string"},
                        "description": {"type": "string"},
                        "enum": {"const": [str(policy) for policy in PullPolicy]},
                        "default": {"const": str(PullPolicy.MISSING)},
                    }
                ),
            }
        ),
    },
    description="JSON Schema of a session's `config`, for a form that a person fills in.",
)

_READY = record({"status": {"const": "ready"}}, description="A session could start.")
_NEEDS_SETUP = record(
    {
        "status": {"const": "needs-setup"},
        "issues": {"type": "array", "minItems": 1, "items": reference("Issue")},
    },
    description="A session would fail until the operator, or the config, is changed.",
)
_CLUSTER_UNAVAILABLE = record(
    {
        "status": {"const": "unavailable"},
        "message": {"type": "string", "minLength": 1},
        "remediation": {"type": "string", "minLength": 1},
    },
    optional=("remediation",),
    description="The cluster does not answer.",
)

_READINESS = record(
    {
        "ready": {"type": "boolean"},
        "checks": {
            "type": "object",
            "description": "`ok`, or what is wrong, by part.",
            "propertyNames": {"enum": ["process", "database", "log", "cluster", "engine"]},
            "additionalProperties": {"type": "string"},
        },
    }
)


def components() -> dict[str, Schema]:
    """Return the components of all answers."""
    return {
        "SessionId": SESSION_ID,
        "Timestamp": TIMESTAMP,
        "Endpoint": _ENDPOINT,
        "SessionCreated": _SESSION_CREATED,
        "App": _APP,
        "Session": _SESSION,
        "Terms": _TERMS,
        "CatalogApp": _CATALOG_APP,
        "Capabilities": _CAPABILITIES,
        "ConfigSchema": _CONFIG_SCHEMA,
        "ProbeReady": _READY,
        "ProbeNeedsSetup": _NEEDS_SETUP,
        "ProbeUnavailable": _CLUSTER_UNAVAILABLE,
        "ProbeAnswer": one_of(
            "status",
            {
                "ready": "ProbeReady",
                "needs-setup": "ProbeNeedsSetup",
                "unavailable": "ProbeUnavailable",
            },
        ),
        "Health": record({"ok": {"const": True}, "version": {"type": "string"}}),
        "Liveness": record({"ok": {"const": True}}),
        "Readiness": _READINESS,
    }
