"""Request bodies: their shape, checked strictly, and what is refused with a JSON Pointer.

A body that passes has the right types, known keys, environment variables that `exec` takes and
quantities that parse. Whether what it asks for is offered is decided by `sessions.actions`.
"""

from sessions.requests.bodies import CreateAppSession, CreateSession, Probe
from sessions.requests.parsing import parse_create, parse_create_app, parse_probe

__all__ = [
    "CreateAppSession",
    "CreateSession",
    "Probe",
    "parse_create",
    "parse_create_app",
    "parse_probe",
]
