"""Runs an informer for the length of a test."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from telorunner import aio
from telorunner.kube.client import Cluster
from telorunner.kube.informer import Informer


@asynccontextmanager
async def running(cluster: Cluster, *, selector: str = "") -> AsyncIterator[Informer]:
    """Run an informer of pods, which must outlive the block."""
    informer = Informer(cluster, "pods", selector)
    task = aio.start(informer.run(), name="informer")
    try:
        yield informer
        assert not task.done()
    finally:
        await aio.stop(task)
