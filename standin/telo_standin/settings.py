"""An application's ports and variables, read from the environment."""

from collections.abc import Mapping
from typing import Any

from telo_standin.errors import ManifestError
from telo_standin.manifest import Manifest, Setting


def read_settings(manifest: Manifest, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the scope's ``ports`` and ``variables``.

    Raises:
        ManifestError: a value is missing or of the wrong type; it names the variable, never the
            value.
    """
    return {
        "ports": {name: _read(name, item, environment) for name, item in manifest.ports.items()},
        "variables": {
            name: _read(name, item, environment) for name, item in manifest.variables.items()
        },
    }


def _read(name: str, setting: Setting, environment: Mapping[str, str]) -> Any:
    given: Any = environment.get(setting.env, setting.default)
    if given is None:
        raise ManifestError(f"'{name}' needs the environment variable {setting.env}")
    try:
        return _convert(setting.type_name, given)
    except ValueError as exc:
        source = f"environment variable {setting.env}" if setting.env in environment else "default"
        raise ManifestError(f"'{name}': the {source} is no {setting.type_name}") from exc


def _convert(type_name: str, value: Any) -> Any:
    if type_name == "string":
        return str(value)
    if type_name == "boolean":
        if str(value).lower() not in ("true", "false"):
            raise ValueError(value)
        return str(value).lower() == "true"
    if isinstance(value, bool):
        raise ValueError(value)
    if type_name == "number":
        return float(value)
    number = int(str(value))
    if type_name == "port" and not 1 <= number <= 65535:
        raise ValueError(value)
    return number
