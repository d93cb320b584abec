"""What this runner offers to clients: capabilities, and the images that may run."""

from typing import Any

from catalog.cache import current_offer
from catalog.offer import Offer
from sessions import runtime
from telorunner.conf import Settings
from telorunner.errors import InvalidConfig
from telorunner.values.pullpolicy import PullPolicy


def offered_image(wanted: str, offer: Offer) -> str:
    """Return the offered image that a reference names, in the operator's spelling.

    Raises:
        InvalidConfig: None is that image; the message lists them.
    """
    image = offer.image(wanted)
    if image is None:
        raise InvalidConfig(f"This image is not offered. Allowed: {', '.join(offer.images)}.")
    return image


def capabilities(config: Settings) -> dict[str, Any]:
    """Return the body of GET /v1/capabilities, resolved anew at each call.

    Raises:
        Stopping: The process is going down.
        Unavailable: The database cannot be reached.
    """
    offer = current_offer(config)
    has_routes = runtime.current().router.is_active
    body: dict[str, Any] = {
        "displayName": config.display_name,
        "description": config.description,
        "config": {"schema": _config_schema(offer, config)},
        # Nothing runs watch sessions yet.
        "features": features(offer, has_routes=has_routes, is_watch_enabled=False),
    }
    if offer.terms is not None:
        body["terms"] = offer.terms.to_json()
    if offer.apps:
        body["apps"] = [app.to_json() for app in offer.apps.values()]
    return body


def features(offer: Offer, *, has_routes: bool, is_watch_enabled: bool) -> dict[str, Any]:
    """Return what sessions can have here; agents are apps that serve watch sessions at a port."""
    found: dict[str, Any] = {
        "io": ["tty", "streams"],
        "ports": has_routes,
        "watch": is_watch_enabled,
    }
    agents = [app.name for app in offer.apps.values() if app.port is not None]
    if is_watch_enabled and agents:
        found["agents"] = agents
    return found


def _config_schema(offer: Offer, config: Settings) -> dict[str, Any]:
    choice: dict[str, Any] = (
        {"enum": list(offer.images)} if config.base_image_catalog_enabled else {"readOnly": True}
    )
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
                **choice,
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
