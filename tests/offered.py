"""Rows of the catalog for tests: apps and terms, as an operator would have made them."""

from collections.abc import Mapping
from typing import Any

from catalog import sealed
from catalog.models import App, Terms
from sessions import store

APP_NAME = "code-helper"
APP_IMAGE = "registry.example/team/code-helper:1.2"


def make_app(name: str = APP_NAME, *, env: Mapping[str, str] | None = None, **fields: Any) -> App:
    """Write an app down; the caller holds the transaction."""
    values = {key: sealed.seal_value(value) for key, value in (env or {}).items()}
    return App.objects.create(name=name, env=values, **{"image": APP_IMAGE, **fields})


def make_terms(version: str, **fields: Any) -> Terms:
    """Make a version of the terms the current one; the caller holds the transaction."""
    Terms.objects.filter(is_current=True).update(is_current=False)
    texts = {"title": "Usage agreement", "body": f"Be kind ({version}).\n"}
    return Terms.objects.create(version=version, is_current=True, **{**texts, **fields})


async def offer_app(
    name: str = APP_NAME, *, env: Mapping[str, str] | None = None, **fields: Any
) -> App:
    """Offer an app from now on."""
    return await store.awrite(make_app, name, env=env, **fields)


async def publish_terms(version: str, **fields: Any) -> Terms:
    """Let clients accept these terms from now on."""
    return await store.awrite(make_terms, version, **fields)
