"""The table of types that the local cluster decodes by is that of a real Kubernetes 1.34."""

import pytest

from telorunner.localcluster import schema
from tests.conformance.client import Api
from tests.conformance.schemas import render


async def test_the_types_are_those_of_the_real_cluster(api: Api) -> None:
    """Where it fails for a new version, `schemas.render` makes the new table."""
    if not api.is_real:
        pytest.skip("the local cluster has no other table to compare with")
    assert schema.text() == render(await api.ask("GET", "/openapi/v2"))
