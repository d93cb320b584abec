"""What this runner offers to clients: capabilities, and the images that may run."""

from typing import Any

from sessions.states import PullPolicy
from telorunner.conf import Settings
from telorunner.errors import InvalidConfig
from telorunner.values.image import parse_image


def offered_images(config: Settings) -> list[str]:
    """Return the images a session may run, the default first."""
    return [config.image]


def offered_image(wanted: str, config: Settings) -> str:
    """Return the offered image that a reference names, in the operator's spelling.

    Raises:
        InvalidConfig: None is that image; the message lists them.
    """
    offered = offered_images(config)
    try:
        reference = parse_image(wanted)
    except ValueError:
        reference = None
    for image in offered:
        if parse_image(image) == reference:
            return image
    raise InvalidConfig(f"This image is not offered. Allowed: {', '.join(offered)}.")


def capabilities(config: Settings) -> dict[str, Any]:
    """Return the body of GET /v1/capabilities, resolved anew at each call."""
    return {
        "displayName": config.display_name,
        "description": config.description,
        "config": {"schema": _config_schema(config)},
        "features": {"io": ["tty", "streams"], "ports": False, "watch": False},
    }


def _config_schema(config: Settings) -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["image", "pullPolicy"],
        "properties": {
            "image": {
                "type": "string",
                "title": "Image",
                "description": "The container image that runs the application.",
                "minLength": 1,
                "default": config.image,
                "readOnly": True,
            },
            "pullPolicy": {
                "type": "string",
                "title": "Pull policy",
                "description": (
                    "The Pod's imagePullPolicy: missing (IfNotPresent), always or never. With "
                    "never, a session fails (ErrImageNeverPull) on a node that has not cached "
                    "the image."
                ),
                "enum": [str(policy) for policy in PullPolicy],
                "default": str(PullPolicy.MISSING),
            },
        },
    }
